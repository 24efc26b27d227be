//! The environment of a run. The address and token of the run's gateway replace credentials.

use std::collections::BTreeMap;

use shikiri_model::models::Model;

pub use shikiri_model::models::is_credential_name;

use super::run_token::PROXY_USER;

type Env = BTreeMap<String, String>;

/// AWS variables without credentials. Others may name keys, or files and addresses that provide keys.
const AWS_VISIBLE: [&str; 5] = [
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_DEFAULT_OUTPUT",
    "AWS_MAX_ATTEMPTS",
    "AWS_RETRY_MODE",
];
/// Addresses and headers of the operator's model API, which may hold credentials.
const ANTHROPIC_HIDDEN_ENDS: [&str; 3] = ["_HEADERS", "_URL", "_FILE"];
const PROXIES: [&str; 4] = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"];
/// Hosts that are reached without the proxy.
const LOOPBACK: &str = "127.0.0.1,localhost,::1";
/// Shorter values occur in other variables by chance.
const SHORTEST_SECRET: usize = 6;

/// The kind of credential as which the CLI sends the run's token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenUse {
    ApiKey,
    /// A login, with which the CLI behaves slightly differently.
    Login,
    Bedrock,
}

pub(super) struct RunEnvironment {
    pub(super) visible: Env,
    /// The removed secrets, which must not appear in messages.
    pub(super) withheld: Vec<String>,
}

impl RunEnvironment {
    pub(super) fn of(env: &Env, model: &Model) -> Self {
        let (visible, hidden): (Env, Env) =
            env.clone().into_iter().partition(|(name, _)| is_visible(name, model));
        let mut withheld: Vec<String> =
            hidden.iter().flat_map(|(name, value)| secrets_in(name, value, model)).collect();
        withheld.retain(|secret| secret.len() >= SHORTEST_SECRET);
        // A variable with another name may hold the same secret.
        let is_clean = |value: &str| !withheld.iter().any(|secret| value.contains(secret.as_str()));
        let visible = visible.into_iter().filter(|(_, value)| is_clean(value)).collect();
        Self { visible, withheld }
    }
}

fn is_visible(name: &str, model: &Model) -> bool {
    if model.secret_env.iter().any(|secret| secret == name) || is_proxy(name) {
        return false;
    }
    let upper = name.to_ascii_uppercase();
    if upper.starts_with("AWS_") {
        return AWS_VISIBLE.contains(&upper.as_str());
    }
    if upper.starts_with("ANTHROPIC_")
        && ANTHROPIC_HIDDEN_ENDS.iter().any(|end| upper.ends_with(end))
    {
        return false;
    }
    !is_credential_name(name)
}

fn is_proxy(name: &str) -> bool {
    PROXIES.contains(&name.to_ascii_uppercase().as_str())
}

/// The secrets in a hidden variable. Names of files and profiles, and addresses without a password,
/// are no secrets.
fn secrets_in(name: &str, value: &str, model: &Model) -> Vec<String> {
    let value = value.trim();
    if is_credential_name(name) || model.secret_env.iter().any(|secret| secret == name) {
        return with_bare_credential(value);
    }
    if name.to_ascii_uppercase().ends_with("_HEADERS") {
        let lines = value.lines().filter_map(|line| line.split_once(':'));
        let secret = lines.filter(|(header, _)| is_credential_header(header));
        return secret.flat_map(|(_, value)| with_bare_credential(value.trim())).collect();
    }
    let password = value.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@'));
    let password = password.and_then(|(user, _)| user.split_once(':'));
    password.map(|(_, password)| password.to_owned()).into_iter().collect()
}

fn is_credential_header(name: &str) -> bool {
    let name = name.trim().replace('-', "_");
    let lower = name.to_ascii_lowercase();
    is_credential_name(&name) || lower.contains("auth") || lower.contains("cookie")
}

/// The value, and the part after a scheme such as `Bearer`.
fn with_bare_credential(value: &str) -> Vec<String> {
    let bare = value.split_once(' ').map(|(_, rest)| rest.to_owned());
    [value.to_owned()].into_iter().chain(bare).collect()
}

/// The variables that replace the operator's credentials and proxies.
pub(super) fn gateway_variables(port: u16, token: &str, token_use: TokenUse) -> Env {
    let mut env = Env::new();
    let mut set = |name: &str, value: String| env.insert(name.to_owned(), value);
    let credential = match token_use {
        TokenUse::ApiKey => "ANTHROPIC_API_KEY",
        TokenUse::Login => "CLAUDE_CODE_OAUTH_TOKEN",
        // The CLI sends this as a bearer token and signs nothing.
        TokenUse::Bedrock => "AWS_BEARER_TOKEN_BEDROCK",
    };
    set(credential, token.to_owned());
    if token_use == TokenUse::Bedrock {
        set("ANTHROPIC_BEDROCK_BASE_URL", format!("http://127.0.0.1:{port}/bedrock"));
        // Prevents a search for an instance's role.
        set("AWS_EC2_METADATA_DISABLED", "true".to_owned());
    } else {
        set("ANTHROPIC_BASE_URL", format!("http://127.0.0.1:{port}/anthropic"));
    }
    let proxy = format!("http://{PROXY_USER}:{token}@127.0.0.1:{port}");
    for name in PROXIES {
        let value = if name == "NO_PROXY" { LOOPBACK } else { proxy.as_str() };
        set(name, value.to_owned());
        set(&name.to_ascii_lowercase(), value.to_owned());
    }
    env
}
