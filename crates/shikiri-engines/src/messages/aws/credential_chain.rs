//! Fetches credentials with AWS's library, using the environment of a model instead of this process's.
//! The library uses the first configured source: variables, the profile, web identity, the container's
//! endpoint, the instance's metadata.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use aws_config::profile::ProfileSet;
use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region};
use aws_credential_types::Credentials;
use aws_credential_types::provider::ProvideCredentials as _;
use aws_credential_types::provider::error::CredentialsError;
use aws_types::os_shim_internal::{Env as SdkEnv, Fs};
use shikiri_model::key::SecretToken;
use shikiri_model::models::is_credential_name;
use shikiri_model::time::Timestamp;
use tokio::time::timeout;
use tracing::instrument::WithSubscriber as _;
use tracing::subscriber::NoSubscriber;

use super::http_connector::AwsHttp;
use super::{Env, FetchedKeys};
use crate::messages::aws_signature::AwsKeys;
use crate::messages::error_text::{join_causes, on_one_line};
use crate::messages::model_api_error::ModelApiError;
use crate::messages::model_provider::env_value;

/// Time limit of a fetch with all its requests.
const FETCH_LIMIT: Duration = Duration::from_secs(15);
/// Time limit if only the instance's metadata can be asked: they answer fast or not at all, and a
/// missing key should be reported soon.
const METADATA_LIMIT: Duration = Duration::from_secs(3);
const REQUEST_LIMIT: Duration = Duration::from_secs(5);
const MAX_TRIES: u32 = 2;
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// Variables that say where credentials are.
const SOURCE_VARIABLES: [&str; 4] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
];
/// Fields of a profile that say where credentials are.
const SOURCE_FIELDS: [&str; 6] = [
    "aws_access_key_id",
    "role_arn",
    "sso_session",
    "sso_start_url",
    "web_identity_token_file",
    "credential_process",
];
const SECRET_FIELDS: [&str; 2] = ["aws_secret_access_key", "aws_session_token"];
/// Output of a `credential_process` follows this and is cut off: it may hold anything.
const PROGRAM_OUTPUT: &str = "Stderr:";
/// Errors after which a person must log in again.
const SSO_LOGIN_NEEDED: [&str; 3] =
    ["SSO token", "UnauthorizedException", "Session token not found"];
/// Shorter values occur in other texts by chance.
const SHORTEST_SECRET: usize = 6;
/// Characters of a reason that an error shows.
const MAX_REASON: usize = 1_000;

pub(super) struct CredentialChain {
    env: Env,
    http: AwsHttp,
}

impl CredentialChain {
    pub(super) fn new(env: Env, http: AwsHttp) -> Self {
        Self { env, http }
    }

    pub(super) async fn fetch(&self, now: Timestamp) -> Result<FetchedKeys, ModelApiError> {
        let profiles = load_profiles(&self.env).await?;
        let limit = if self.has_source(&profiles) { FETCH_LIMIT } else { METADATA_LIMIT };
        let asking = Box::pin(self.ask()).with_subscriber(NoSubscriber::default());
        let asked = timeout(limit, asking).await;
        let sent = self.http.take_sent();
        let reason = match asked {
            Ok(Ok(credentials)) => return Ok(fetched(&credentials, now)),
            Ok(Err(error)) => join_causes(&error),
            Err(_) => "they were not given in time".to_owned(),
        };
        let reason = without_secrets(&reason, self.secrets(&profiles).chain(sent));
        Err(ModelApiError::NotConfigured(self.explained(&reason, &profiles)))
    }

    /// Loads the library's configuration each time, because the library reads files once and keeps its
    /// first failure. Its own log is off: at trace level it would hold requests and answers.
    async fn ask(&self) -> Result<Credentials, CredentialsError> {
        let retries =
            RetryConfig::standard().with_max_attempts(MAX_TRIES).with_initial_backoff(FIRST_PAUSE);
        let limits = TimeoutConfig::builder()
            .operation_attempt_timeout(REQUEST_LIMIT)
            .operation_timeout(FETCH_LIMIT)
            .build();
        let region = env_value(&self.env, "AWS_REGION").map(Region::new);
        let config = aws_config::defaults(BehaviorVersion::latest())
            .env(sdk_env(&self.env))
            .region(region)
            .http_client(self.http.clone())
            .retry_config(retries)
            .timeout_config(limits)
            .load()
            .await;
        match config.credentials_provider() {
            Some(provider) => provider.provide_credentials().await,
            None => Err(CredentialsError::not_loaded("there is no source")),
        }
    }

    /// Whether something besides the instance's metadata can be asked.
    fn has_source(&self, profiles: &ProfileSet) -> bool {
        SOURCE_VARIABLES.iter().any(|name| self.env.contains_key(*name))
            || SOURCE_FIELDS.iter().any(|field| profiles.get(field).is_some())
    }

    /// The secrets in variables and files.
    fn secrets<'a>(&'a self, profiles: &'a ProfileSet) -> impl Iterator<Item = String> + 'a {
        let variables = self.env.iter().filter(|(name, _)| is_credential_name(name));
        let variables = variables.map(|(_, value)| value.clone());
        let profiles = profiles.profiles().filter_map(|name| profiles.get_profile(name));
        let fields = profiles.flat_map(|profile| SECRET_FIELDS.map(|field| profile.get(field)));
        variables.chain(fields.flatten().map(str::to_owned))
    }

    fn explained(&self, reason: &str, profiles: &ProfileSet) -> String {
        if SSO_LOGIN_NEEDED.iter().any(|text| reason.contains(text)) {
            let profile = profiles.selected_profile();
            return format!("run `aws sso login --profile {profile}` on the server: {reason}");
        }
        format!(
            "no AWS credentials for Bedrock: {reason}; set AWS_ACCESS_KEY_ID and \
             AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or AWS_BEARER_TOKEN_BEDROCK, or give the machine \
             a role"
        )
    }
}

/// The region of the chosen profile.
pub(super) async fn profile_region(env: &Env) -> Result<Option<String>, ModelApiError> {
    let profiles = load_profiles(env).await?;
    Ok(profiles.get("region").map(str::to_owned))
}

/// The profiles of an environment's files. A profile that the environment names must exist, so that
/// no other identity is used by mistake.
async fn load_profiles(env: &Env) -> Result<ProfileSet, ModelApiError> {
    let (fs, sdk_env, files) = (Fs::real(), sdk_env(env), Default::default());
    let loading = aws_config::profile::load(&fs, &sdk_env, &files, None);
    let loaded = Box::pin(loading).with_subscriber(NoSubscriber::default()).await;
    // The cause may repeat a line of the file.
    let profiles = loaded.map_err(|_| {
        ModelApiError::NotConfigured(
            "a file of AWS profiles cannot be read or is not well-formed".into(),
        )
    })?;
    match env_value(env, "AWS_PROFILE") {
        Some(name) if profiles.get_profile(&name).is_none() => Err(ModelApiError::NotConfigured(
            format!("the AWS profile {name:?} is in none of the files that can be read here"),
        )),
        _ => Ok(profiles),
    }
}

fn sdk_env(env: &BTreeMap<String, String>) -> SdkEnv {
    SdkEnv::from(env.clone().into_iter().collect::<HashMap<_, _>>())
}

fn fetched(credentials: &Credentials, now: Timestamp) -> FetchedKeys {
    let keys = AwsKeys {
        id: credentials.access_key_id().to_owned(),
        secret: SecretToken::from_caller(credentials.secret_access_key()),
        session_token: credentials.session_token().map(SecretToken::from_caller),
    };
    let millis = credentials.expiry().map(|end| {
        let since_epoch = end.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX)
    });
    FetchedKeys { keys, fetched_at: now, expires_at: millis.map(Timestamp::from_millis) }
}

/// A text on one line, short, and without secrets.
fn without_secrets(text: &str, secrets: impl Iterator<Item = String>) -> String {
    let mut text = text.split(PROGRAM_OUTPUT).next().unwrap_or_default().to_owned();
    let mut secrets: Vec<_> = secrets.filter(|secret| secret.len() >= SHORTEST_SECRET).collect();
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    for secret in secrets {
        text = text.replace(&secret, "[hidden]");
    }
    on_one_line(&text, MAX_REASON)
}
