//! Where a call goes and what proves who makes it, read from an environment.

use std::collections::BTreeMap;

use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use shikiri_model::key::Secret;
use shikiri_model::models::{EngineKind, Model};
use shikiri_model::time::Timestamp;

use super::ask::Ask;
use super::failure::Failure;
use super::profile::Profile;
use super::sign::{self, Keys, Unsigned};
use super::wire::Request;

type Env = BTreeMap<String, String>;

const ANTHROPIC_URL: &str = "https://api.anthropic.com";
const ANTHROPIC_VERSION: &str = "2023-06-01";
const BEDROCK_VERSION: &str = "bedrock-2023-05-31";
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
    /// AWS: the request is signed.
    Keys(Keys),
}

/// A request, ready to be sent.
pub(super) struct Call {
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

impl Provider {
    /// The provider of this model, with the base URL and the secrets of `env`.
    pub fn from_env(model: &Model, env: &Env) -> Result<Self, Failure> {
        let is_bedrock = match model.engine {
            EngineKind::Bedrock => true,
            // The record says it; the variable is Claude Code's.
            EngineKind::Anthropic => false,
            EngineKind::ClaudeCode | EngineKind::Offline => {
                set(env, "CLAUDE_CODE_USE_BEDROCK").is_some_and(|value| is_yes(&value))
            }
        };
        if is_bedrock { Self::bedrock(model, env) } else { Self::anthropic(env) }
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

    fn bedrock(model: &Model, env: &Env) -> Result<Self, Failure> {
        let region = model.region.clone().filter(|region| !region.is_empty());
        let region = region.or_else(|| set(env, "AWS_REGION"));
        let bearer = set(env, "AWS_BEARER_TOKEN_BEDROCK");
        let bearer = bearer.map(|text| Credentials::Bearer(secret(&text)));
        let known = bearer.or_else(|| keys(env).map(Credentials::Keys));
        // Only where variables do not say all of it.
        let profile = match known {
            Some(_) => Profile::default(),
            None => Profile::from_env(env)?,
        };
        let region = region.or(profile.region).unwrap_or_else(|| DEFAULT_REGION.to_owned());
        // It becomes a part of the host's name.
        if !region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            return Err(not_configured("the region may hold letters, digits and `-` only"));
        }
        let credentials =
            known.or_else(|| profile.keys.map(Credentials::Keys)).ok_or_else(|| {
                not_configured(
                    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or \
                 AWS_BEARER_TOKEN_BEDROCK, to call Bedrock",
                )
            })?;
        let usual = format!("https://bedrock-runtime.{region}.amazonaws.com");
        let base_url = base_url(env, "ANTHROPIC_BEDROCK_BASE_URL", &usual)?;
        Ok(Self::Bedrock { base_url, credentials, region })
    }

    pub(super) fn call(&self, request: &Request, now: Timestamp) -> Result<Call, Failure> {
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
        self.prove(call, now)
    }

    pub(super) fn streaming_call(&self, ask: &Ask<'_>, now: Timestamp) -> Result<Call, Failure> {
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
        self.prove(call, now)
    }

    pub(super) fn is_bedrock(&self) -> bool {
        matches!(self, Self::Bedrock { .. })
    }

    fn prove(&self, mut call: Call, now: Timestamp) -> Result<Call, Failure> {
        call.header("content-type", "application/json")?;
        match self {
            Self::Anthropic { credentials, .. } => {
                call.header("anthropic-version", ANTHROPIC_VERSION)?;
                call.prove(credentials, "", now)?;
            }
            Self::Bedrock { credentials, region, .. } => call.prove(credentials, region, now)?,
        }
        Ok(call)
    }

    /// What must not be repeated to anybody.
    pub(super) fn secrets(&self) -> Vec<&Secret> {
        let (Self::Anthropic { credentials, .. } | Self::Bedrock { credentials, .. }) = self;
        match credentials {
            Credentials::ApiKey(secret) | Credentials::Bearer(secret) => vec![secret],
            Credentials::Keys(keys) => {
                [&keys.secret].into_iter().chain(&keys.session_token).collect()
            }
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
        let Ok(mut value) = HeaderValue::from_str(value) else {
            let detail = "a key for the model API holds characters that cannot be sent";
            return Err(not_configured(detail));
        };
        value.set_sensitive(true);
        self.headers.insert(HeaderName::from_static(name), value);
        Ok(())
    }

    fn prove(&mut self, by: &Credentials, region: &str, now: Timestamp) -> Result<(), Failure> {
        match by {
            Credentials::ApiKey(key) => self.header("x-api-key", key.reveal()),
            Credentials::Bearer(token) => {
                self.header("authorization", &format!("Bearer {}", token.reveal()))
            }
            Credentials::Keys(keys) => self.sign(keys, region, now),
        }
    }

    fn sign(&mut self, keys: &Keys, region: &str, now: Timestamp) -> Result<(), Failure> {
        let date = sign::stamp(now);
        // As it will be sent: a usual port is left out.
        let host = self.url.host_str().unwrap_or_default();
        let host = match self.url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        let mut headers = vec![
            ("content-type", "application/json"),
            ("host", host.as_str()),
            ("x-amz-date", date.as_str()),
        ];
        let token = keys.session_token.as_ref().map(Secret::reveal);
        headers.extend(token.map(|token| ("x-amz-security-token", token)));
        let unsigned = Unsigned {
            method: "POST",
            path: self.url.path(),
            headers: &headers,
            body: &self.body,
            region,
            service: BEDROCK_SERVICE,
            at: now,
        };
        let authorization = unsigned.authorization(keys);
        self.header("authorization", &authorization)?;
        self.header("x-amz-date", &date)?;
        match token {
            Some(token) => self.header("x-amz-security-token", token),
            None => Ok(()),
        }
    }
}

fn keys(env: &Env) -> Option<Keys> {
    Some(Keys {
        id: set(env, "AWS_ACCESS_KEY_ID")?,
        secret: secret(&set(env, "AWS_SECRET_ACCESS_KEY")?),
        session_token: set(env, "AWS_SESSION_TOKEN").map(|text| secret(&text)),
    })
}

fn base_url(env: &Env, name: &str, usual: &str) -> Result<Url, Failure> {
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
