//! A person's own Claude login: what Claude Code keeps after `/login`, or a token made by
//! `claude setup-token`.
//!
//! The gateway of a run adds it to each request. It is never stored, and is read again for each
//! request, because the person's own Claude Code renews it from time to time.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use shikiri_model::key::SecretToken;
use shikiri_model::time::Timestamp;

use crate::messages::now;

const FILE: &str = ".credentials.json";
const MAX_FILE: u64 = 1024 * 1024;

/// The source of the login: a file or a token.
#[derive(Clone, Debug)]
pub struct ClaudeLogin(ClaudeLoginSource);

#[derive(Clone, Debug)]
enum ClaudeLoginSource {
    Token(SecretToken),
    File(PathBuf),
}

/// Why no login can be used. The texts hold no part of it.
#[derive(Debug, thiserror::Error)]
pub enum ClaudeLoginError {
    #[error(
        "there is no Claude login in {0}: log in with `claude`, or set CLAUDE_CODE_OAUTH_TOKEN to a \
         token of `claude setup-token`"
    )]
    Missing(PathBuf),
    #[error("the Claude login in {0} cannot be read: {1}")]
    Unreadable(PathBuf, String),
    #[error("your Claude login has expired at {0}: `claude` renews it when it is next used")]
    Expired(Timestamp),
}

/// The used part of Claude Code's file.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LoginFile {
    claude_ai_oauth: Option<StoredLogin>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredLogin {
    access_token: String,
    /// Milliseconds since 1970. A token of `claude setup-token` has none.
    expires_at: Option<i64>,
}

impl ClaudeLogin {
    /// Uses the given token, or else the login in Claude Code's configuration folder. Fails unless it
    /// is valid now.
    pub fn find(token: Option<&str>, config_dir: &Path) -> Result<Self, ClaudeLoginError> {
        let token = token.map(str::trim).filter(|token| !token.is_empty());
        let login = Self(match token {
            Some(token) => ClaudeLoginSource::Token(SecretToken::from_caller(token)),
            None => ClaudeLoginSource::File(config_dir.join(FILE)),
        });
        login.access_token(now())?;
        Ok(login)
    }

    pub(crate) fn access_token(&self, now: Timestamp) -> Result<SecretToken, ClaudeLoginError> {
        let path = match &self.0 {
            ClaudeLoginSource::Token(token) => return Ok(token.clone()),
            ClaudeLoginSource::File(path) => path,
        };
        let stored = read(path)?;
        match stored.expires_at.map(Timestamp::from_millis) {
            Some(expiry) if expiry <= now => Err(ClaudeLoginError::Expired(expiry)),
            _ => Ok(SecretToken::from_caller(&stored.access_token)),
        }
    }
}

fn read(path: &Path) -> Result<StoredLogin, ClaudeLoginError> {
    let unreadable = |reason: String| ClaudeLoginError::Unreadable(path.to_owned(), reason);
    let file = File::open(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => ClaudeLoginError::Missing(path.to_owned()),
        _ => unreadable(error.to_string()),
    })?;
    let mut text = String::new();
    let reading = file.take(MAX_FILE).read_to_string(&mut text);
    reading.map_err(|error| unreadable(error.to_string()))?;
    // The error of serde could quote a secret.
    let parsed: LoginFile = serde_json::from_str(&text)
        .map_err(|_| unreadable("it does not have the form that Claude Code writes".to_owned()))?;
    let stored = parsed.claude_ai_oauth.filter(|login| !login.access_token.is_empty());
    stored.ok_or_else(|| ClaudeLoginError::Missing(path.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(text: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(FILE), text).unwrap();
        folder
    }

    #[test]
    fn a_login_is_read_again_each_time() {
        let folder = folder(r#"{"claudeAiOauth":{"accessToken":"first","scopes":[]},"other":1}"#);
        let login = ClaudeLogin::find(None, folder.path()).unwrap();
        let renewed = r#"{"claudeAiOauth":{"accessToken":"second","expiresAt":32503680000000}}"#;
        std::fs::write(folder.path().join(FILE), renewed).unwrap();
        assert_eq!(login.access_token(now()).unwrap().reveal(), "second");
    }

    #[test]
    fn a_token_comes_before_the_file() {
        let folder = folder(r#"{"claudeAiOauth":{"accessToken":"file"}}"#);
        let login = ClaudeLogin::find(Some(" token\n"), folder.path()).unwrap();
        assert_eq!(login.access_token(now()).unwrap().reveal(), "token");
        let login = ClaudeLogin::find(Some(" "), folder.path()).unwrap();
        assert_eq!(login.access_token(now()).unwrap().reveal(), "file");
    }

    #[test]
    fn errors_of_a_login_hold_no_secrets() {
        let expired = r#"{"claudeAiOauth":{"accessToken":"canary","expiresAt":1000}}"#;
        let cut = r#"{"claudeAiOauth":{"accessToken":"canary""#;
        let wrong = r#"{"claudeAiOauth":"canary"}"#;
        for (text, part) in [
            (expired, "expired at 1970-01-01"),
            (cut, "cannot be read"),
            (wrong, "cannot be read"),
            (r#"{"claudeAiOauth":{"accessToken":""}}"#, "log in with `claude`"),
            ("{}", "log in with `claude`"),
        ] {
            let error = ClaudeLogin::find(None, folder(text).path()).unwrap_err().to_string();
            assert!(error.contains(part) && !error.contains("canary"), "{text}: {error}");
        }
        let none = tempfile::tempdir().unwrap();
        let error = ClaudeLogin::find(None, none.path()).unwrap_err().to_string();
        assert!(error.contains("setup-token"), "{error}");
    }
}
