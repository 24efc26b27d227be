//! Where a call goes and what proves who makes it, read from an environment.

use std::collections::BTreeMap;
use std::sync::Arc;

use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use shikiri_model::key::Secret;
use shikiri_model::models::{EngineKind, Model};
use shikiri_model::time::Timestamp;

use super::ask::Ask;
use super::aws::{AwsCredentialSource, AwsCredentialSources};
use super::client::now;
use super::failure::Failure;
use super::sign::{self, Keys, Unsigned};
use super::wire::Request;
use crate::claude_login::ClaudeLogin;

type Env = BTreeMap<String, String>;

pub(super) const ANTHROPIC_URL: &str = "https://api.anthropic.com";
const ANTHROPIC_VERSION: &str = "2023-06-01";
const BEDROCK_VERSION: &str = "bedrock-2023-05-31";
/// Has Claude Code use Bedrock.
pub(crate) const BEDROCK_SWITCH: &str = "CLAUDE_CODE_USE_BEDROCK";
const BEDROCK_SERVICE: &str = "bedrock";
/// Says which subagent asks, to whoever counts on the way.
const AGENT_HEADER: &str = "x-shikiri-agent-id";
const DEFAULT_REGION: &str = "us-west-2";

#[derive(Clone, Debug)]
pub enum Provider {
    Anthropic { base_url: Url, credentials: Credentials },
    Bedrock { base_url: Url, credentials: Credentials, region: String },
}

#[derive(Clone, Debug)]
pub enum Credentials {
    /// Anthropic's own header.
    ApiKey(Secret),
    Bearer(Secret),
    /// AWS: the request is signed with the keys that this has at the time.
    Aws(Arc<AwsCredentialSource>),
    /// A person's own, read anew for each request.
    Login(ClaudeLogin),
}

/// A request, ready to be sent.
pub(super) struct Call {
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

impl Provider {
    /// The provider of this model, with the base URL and the secrets of `env`.
    pub async fn from_env(
        model: &Model,
        env: &Env,
        aws: &AwsCredentialSources,
    ) -> Result<Self, Failure> {
        match is_bedrock(model, env) {
            true => Self::bedrock(model, env, aws).await,
            false => Self::anthropic(env),
        }
    }

    /// Fails if there is nothing to prove who calls. Whether it is accepted only the API knows.
    pub async fn ensure_credentials(&self) -> Result<(), Failure> {
        match self.credentials() {
            Credentials::Aws(source) => source.keys(now()).await.map(drop),
            _ => Ok(()),
        }
    }

    fn anthropic(env: &Env) -> Result<Self, Failure> {
        // As in Claude Code, the token comes first.
        let token = set(env, "ANTHROPIC_AUTH_TOKEN").map(|text| Credentials::Bearer(secret(&text)));
        let key = || set(env, "ANTHROPIC_API_KEY").map(|text| Credentials::ApiKey(secret(&text)));
        let credentials = token.or_else(key).ok_or_else(|| {
            not_configured("set ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN to call the model API")
        })?;
        let base_url = base_url(env, "ANTHROPIC_BASE_URL", ANTHROPIC_URL)?;
        Ok(Self::Anthropic { base_url, credentials })
    }

    async fn bedrock(
        model: &Model,
        env: &Env,
        aws: &AwsCredentialSources,
    ) -> Result<Self, Failure> {
        let region = model.region.clone().filter(|region| !region.is_empty());
        let region = region.or_else(|| set(env, "AWS_REGION"));
        let (credentials, region) = match set(env, "AWS_BEARER_TOKEN_BEDROCK") {
            Some(token) => (Credentials::Bearer(secret(&token)), region),
            None => {
                let (source, region) = aws.source(env, region).await?;
                (Credentials::Aws(source), region)
            }
        };
        let region = region.unwrap_or_else(|| DEFAULT_REGION.to_owned());
        // It becomes a part of the host's name.
        if !region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            return Err(not_configured("the region may hold letters, digits and `-` only"));
        }
        let usual = format!("https://bedrock-runtime.{region}.amazonaws.com");
        let base_url = base_url(env, "ANTHROPIC_BEDROCK_BASE_URL", &usual)?;
        Ok(Self::Bedrock { base_url, credentials, region })
    }

    /// Not proven yet.
    pub(super) fn call(&self, request: &Request) -> Result<Call, Failure> {
        let unreadable = |error: serde_json::Error| Failure::NotConfigured(error.to_string());
        let mut said = serde_json::to_value(request).map_err(unreadable)?;
        let (base, path) = match self {
            Self::Anthropic { base_url, .. } => (base_url, "v1/messages".to_owned()),
            Self::Bedrock { base_url, .. } => {
                // The path says which model it is for.
                if let Value::Object(fields) = &mut said {
                    fields.remove("model");
                    fields.insert("anthropic_version".to_owned(), BEDROCK_VERSION.into());
                }
                (base_url, format!("model/{}/invoke", sign::encoded(&request.model)))
            }
        };
        let mut call = Call::new(base, &path, said.to_string().into());
        call.header("accept", "application/json")?;
        Ok(call)
    }

    /// Not proven yet.
    pub(super) fn streaming_call(&self, ask: &Ask<'_>) -> Result<Call, Failure> {
        let unreadable = |error: serde_json::Error| Failure::NotConfigured(error.to_string());
        let mut call = match self {
            Self::Anthropic { base_url, .. } => {
                let body = ask.body(None).map_err(unreadable)?;
                let mut call = Call::new(base_url, "v1/messages", body);
                call.header("accept", "text/event-stream")?;
                call
            }
            Self::Bedrock { base_url, .. } => {
                let model = sign::encoded(ask.model);
                let path = format!("model/{model}/invoke-with-response-stream");
                let body = ask.body(Some(BEDROCK_VERSION)).map_err(unreadable)?;
                let mut call = Call::new(base_url, &path, body);
                call.header("accept", "application/vnd.amazon.eventstream")?;
                call
            }
        };
        if let Some(agent) = ask.agent {
            call.header(AGENT_HEADER, agent)?;
        }
        Ok(call)
    }

    pub(super) fn is_bedrock(&self) -> bool {
        matches!(self, Self::Bedrock { .. })
    }

    /// Adds what proves who calls, which may have to be fetched first.
    pub(super) async fn prove(&self, call: &mut Call) -> Result<(), Failure> {
        call.header("content-type", "application/json")?;
        match self {
            Self::Anthropic { .. } => call.header("anthropic-version", ANTHROPIC_VERSION)?,
            Self::Bedrock { credentials: Credentials::Aws(source), region, .. } => {
                let at = now();
                return call.sign(&source.keys(at).await?, region, at);
            }
            Self::Bedrock { .. } => {}
        }
        call.headers.extend(self.credentials().header()?);
        Ok(())
    }

    pub(super) fn credentials(&self) -> &Credentials {
        let (Self::Anthropic { credentials, .. } | Self::Bedrock { credentials, .. }) = self;
        credentials
    }

    /// What must not be repeated to anybody.
    pub(super) fn secrets(&self) -> Vec<Secret> {
        match self.credentials() {
            Credentials::ApiKey(secret) | Credentials::Bearer(secret) => vec![secret.clone()],
            Credentials::Aws(source) => source.secrets(),
            // Only the gateway uses one, which repeats nothing of its own.
            Credentials::Login(_) => Vec::new(),
        }
    }
}

impl Call {
    fn new(base: &Url, path: &str, body: Vec<u8>) -> Self {
        let mut url = base.clone();
        url.set_path(&format!("{}/{path}", base.path().trim_end_matches('/')));
        Self { url, headers: HeaderMap::new(), body }
    }

    fn header(&mut self, name: &'static str, value: &str) -> Result<(), Failure> {
        self.headers.insert(HeaderName::from_static(name), sensitive(value)?);
        Ok(())
    }

    fn sign(&mut self, keys: &Keys, region: &str, now: Timestamp) -> Result<(), Failure> {
        let kind = Some("application/json");
        let signed = signature_headers("POST", &self.url, kind, &self.body, keys, region, now)?;
        self.headers.extend(signed);
        Ok(())
    }
}

/// The headers that sign a request to Bedrock.
pub(super) fn signature_headers(
    method: &str,
    url: &Url,
    content_type: Option<&str>,
    body: &[u8],
    keys: &Keys,
    region: &str,
    now: Timestamp,
) -> Result<Vec<(HeaderName, HeaderValue)>, Failure> {
    let date = sign::stamp(now);
    // As it will be sent: a usual port is left out.
    let host = url.host_str().unwrap_or_default();
    let host = match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    };
    let token = keys.session_token.as_ref().map(Secret::reveal);
    let mut signed: Vec<_> = content_type.map(|kind| ("content-type", kind)).into_iter().collect();
    signed.extend([("host", host.as_str()), ("x-amz-date", date.as_str())]);
    signed.extend(token.map(|token| ("x-amz-security-token", token)));
    let unsigned = Unsigned {
        method,
        path: url.path(),
        query: &sign::canonical_query(url.query().unwrap_or_default()),
        headers: &signed,
        body,
        region,
        service: BEDROCK_SERVICE,
        at: now,
    };
    let authorization = unsigned.authorization(keys);
    let mut headers = vec![
        (HeaderName::from_static("authorization"), sensitive(&authorization)?),
        (HeaderName::from_static("x-amz-date"), sensitive(&date)?),
    ];
    if let Some(token) = token {
        headers.push((HeaderName::from_static("x-amz-security-token"), sensitive(token)?));
    }
    Ok(headers)
}

fn sensitive(value: &str) -> Result<HeaderValue, Failure> {
    let value = HeaderValue::from_str(value);
    let mut value = value.map_err(|_| {
        not_configured("a key for the model API holds characters that cannot be sent")
    })?;
    value.set_sensitive(true);
    Ok(value)
}

impl Credentials {
    /// The header that proves who calls. None where requests are signed.
    pub(super) fn header(&self) -> Result<Option<(HeaderName, HeaderValue)>, Failure> {
        Ok(match self {
            Self::ApiKey(key) => {
                Some((HeaderName::from_static("x-api-key"), sensitive(key.reveal())?))
            }
            Self::Bearer(token) => Some(bearer(token)?),
            Self::Login(login) => {
                let token = login.access_token(now());
                Some(bearer(&token.map_err(|error| not_configured(&error.to_string()))?)?)
            }
            Self::Aws(_) => None,
        })
    }
}

fn bearer(token: &Secret) -> Result<(HeaderName, HeaderValue), Failure> {
    let value = sensitive(&format!("Bearer {}", token.reveal()))?;
    Ok((HeaderName::from_static("authorization"), value))
}

pub(super) fn is_bedrock(model: &Model, env: &Env) -> bool {
    match model.engine {
        EngineKind::Bedrock => true,
        // The record says it; the variable is Claude Code's.
        EngineKind::Anthropic => false,
        EngineKind::ClaudeCode | EngineKind::Offline => {
            set(env, BEDROCK_SWITCH).is_some_and(|value| is_yes(&value))
        }
    }
}

pub(super) fn base_url(env: &Env, name: &str, usual: &str) -> Result<Url, Failure> {
    let text = set(env, name);
    // The text is not repeated: it may hold a password.
    let bad = || not_configured(&format!("{name} must be a plain http or https URL"));
    let url = Url::parse(text.as_deref().unwrap_or(usual)).map_err(|_| bad())?;
    let is_plain = matches!(url.scheme(), "http" | "https")
        && url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none();
    if is_plain { Ok(url) } else { Err(bad()) }
}

/// A variable that says something: an empty one is as good as none.
pub(super) fn set(env: &Env, name: &str) -> Option<String> {
    env.get(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
}

fn is_yes(value: &str) -> bool {
    matches!(value.to_ascii_lowercase().as_str(), "1" | "true" | "yes" | "on")
}

fn secret(text: &str) -> Secret {
    Secret::from_caller(text)
}

fn not_configured(detail: &str) -> Failure {
    Failure::NotConfigured(detail.to_owned())
}
