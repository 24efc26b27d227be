//! Keys and region from AWS's files of profiles. Keys that must be fetched first (single sign-on,
//! roles, programs) are not: `aws configure export-credentials` makes variables of them.

use std::collections::BTreeMap;

use shikiri_model::key::Secret;

use super::failure::Failure;
use super::provider::set;
use super::sign::Keys;

type Env = BTreeMap<String, String>;

/// Files larger than this are not profiles.
const MAX_FILE: u64 = 1024 * 1024;

/// What the chosen profile says.
#[derive(Default)]
pub(super) struct Profile {
    pub(super) keys: Option<Keys>,
    pub(super) region: Option<String>,
}

impl Profile {
    /// The profile that `AWS_PROFILE` names, or the default one, in the files that
    /// `AWS_SHARED_CREDENTIALS_FILE` and `AWS_CONFIG_FILE` name. One that is named must have keys.
    pub(super) fn from_env(env: &Env) -> Result<Self, Failure> {
        let named = set(env, "AWS_PROFILE");
        let name = named.as_deref().unwrap_or("default");
        let mut fields = Env::new();
        for (variable, is_config) in
            [("AWS_CONFIG_FILE", true), ("AWS_SHARED_CREDENTIALS_FILE", false)]
        {
            let text = set(env, variable).and_then(|path| read(&path));
            fields.extend(section(&text.unwrap_or_default(), name, is_config));
        }
        let mut field = |name: &str| fields.remove(name).filter(|value| !value.is_empty());
        let region = field("region");
        let pair = field("aws_access_key_id").zip(field("aws_secret_access_key"));
        let keys = pair.map(|(id, secret)| Keys {
            id,
            secret: Secret::from_caller(&secret),
            session_token: field("aws_session_token").map(|text| Secret::from_caller(&text)),
        });
        match (&keys, named) {
            (None, Some(name)) => Err(Failure::NotConfigured(format!(
                "the AWS profile {name:?} has no aws_access_key_id and aws_secret_access_key that \
                 can be read here"
            ))),
            _ => Ok(Self { keys, region }),
        }
    }
}

fn read(path: &str) -> Option<String> {
    let is_small =
        std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() <= MAX_FILE);
    is_small.then(|| std::fs::read_to_string(path).ok())?
}

/// The fields of one section. In the file of settings all but the default one are `profile NAME`.
fn section(text: &str, name: &str, is_config: bool) -> Env {
    let (mut fields, mut is_ours) = (Env::new(), false);
    for line in text.lines().map(str::trim) {
        if line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(title) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let title = title.trim();
            let short = title.strip_prefix("profile ").filter(|_| is_config).map(str::trim);
            is_ours = short == Some(name) || (title == name && (!is_config || name == "default"));
        } else if let Some((field, value)) = line.split_once('=').filter(|_| is_ours) {
            fields.insert(field.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(folder: &std::path::Path, profile: Option<&str>) -> Env {
        let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        let mut env = Env::from([
            ("AWS_SHARED_CREDENTIALS_FILE".to_owned(), path("credentials")),
            ("AWS_CONFIG_FILE".to_owned(), path("config")),
        ]);
        env.extend(profile.map(|name| ("AWS_PROFILE".to_owned(), name.to_owned())));
        env
    }

    #[test]
    fn a_profile_is_found_in_both_files() {
        let folder = tempfile::tempdir().unwrap();
        let credentials = "# 鍵\n[default]\naws_access_key_id = A1\naws_secret_access_key=s=1\n\
                           [ work ]\naws_access_key_id=A2\naws_secret_access_key=s2\n\
                           aws_session_token=t2\n[sso]\nsso_start_url=https://x\n";
        std::fs::write(folder.path().join("credentials"), credentials).unwrap();
        let config = "[default]\nregion=eu-west-1\n[work]\nregion=wrong\n\
                      [profile work]\nregion = ap-northeast-1\n";
        std::fs::write(folder.path().join("config"), config).unwrap();
        let found = |profile| {
            let profile = Profile::from_env(&env(folder.path(), profile)).unwrap();
            let keys = profile.keys.unwrap();
            let token = keys.session_token.map(|token| token.reveal().to_owned());
            (keys.id, keys.secret.reveal().to_owned(), token, profile.region.unwrap())
        };
        let text = str::to_owned;
        assert_eq!(found(None), (text("A1"), text("s=1"), None, text("eu-west-1")));
        let work = (text("A2"), text("s2"), Some(text("t2")), text("ap-northeast-1"));
        assert_eq!(found(Some("work")), work);
        for missing in ["sso", "nobody"] {
            let failed = Profile::from_env(&env(folder.path(), Some(missing))).err().unwrap();
            assert!(failed.to_string().contains(missing), "{failed}");
        }
    }

    #[test]
    fn without_files_there_is_no_profile() {
        let folder = tempfile::tempdir().unwrap();
        let profile = Profile::from_env(&env(folder.path(), None)).unwrap();
        assert!(profile.keys.is_none() && profile.region.is_none());
        assert!(Profile::from_env(&Env::new()).unwrap().keys.is_none());
    }
}
