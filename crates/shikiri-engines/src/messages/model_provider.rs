//! The address and credentials of the model API, read from an environment.

use std::collections::BTreeMap;
use std::sync::Arc;

use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use shikiri_model::key::SecretToken;
use shikiri_model::models::{EngineKind, Model};
use shikiri_model::time::Timestamp;

use super::aws::{AwsCredentialSource, AwsCredentialSources};
use super::aws_signature::{self, AwsKeys, SignatureInput};
use super::messages_client::now;
use super::model_api_error::ModelApiError;
use super::streaming_request::StreamingRequest;
use super::wire_types::MessagesRequest;
use crate::claude_login::ClaudeLogin;

type Env = BTreeMap<String, String>;

pub(super) const ANTHROPIC_URL: &str = "https://api.anthropic.com";
const ANTHROPIC_VERSION: &str = "2023-06-01";
const BEDROCK_VERSION: &str = "bedrock-2023-05-31";
/// Makes Claude Code use Bedrock.
pub(crate) const BEDROCK_SWITCH: &str = "CLAUDE_CODE_USE_BEDROCK";
const BEDROCK_SERVICE: &str = "bedrock";
/// Names the subagent of a request, for metering on the way.
const AGENT_HEADER: &str = "x-shikiri-agent-id";
const DEFAULT_REGION: &str = "us-west-2";

#[derive(Clone, Debug)]
pub enum ModelProvider {
    Anthropic { base_url: Url, credentials: ModelCredentials },
    Bedrock { base_url: Url, credentials: ModelCredentials, region: String },
}

#[derive(Clone, Debug)]
pub enum ModelCredentials {
    /// Anthropic's own header.
    ApiKey(SecretToken),
    Bearer(SecretToken),
    /// AWS: requests are signed with the current keys.
    Aws(Arc<AwsCredentialSource>),
    /// A person's own login, read again for each request.
    Login(ClaudeLogin),
}

/// A request, ready to be sent.
pub(super) struct ModelApiCall {
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

impl ModelProvider {
    /// The provider of this model, with the base URL and the secrets of `env`.
    pub async fn from_env(
        model: &Model,
        env: &Env,
        aws: &AwsCredentialSources,
    ) -> Result<Self, ModelApiError> {
        match is_bedrock(model, env) {
            true => Self::bedrock(model, env, aws).await,
            false => Self::anthropic(env),
        }
    }

    /// Fails if there are no credentials. Whether they are valid, only the API can tell.
    pub async fn ensure_credentials(&self) -> Result<(), ModelApiError> {
        match self.credentials() {
            ModelCredentials::Aws(source) => source.keys(now()).await.map(drop),
            _ => Ok(()),
        }
    }

    fn anthropic(env: &Env) -> Result<Self, ModelApiError> {
        // As in Claude Code, the token comes first.
        let token = env_value(env, "ANTHROPIC_AUTH_TOKEN")
            .map(|text| ModelCredentials::Bearer(secret(&text)));
        let key = || {
            env_value(env, "ANTHROPIC_API_KEY").map(|text| ModelCredentials::ApiKey(secret(&text)))
        };
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
    ) -> Result<Self, ModelApiError> {
        let region = model.region.clone().filter(|region| !region.is_empty());
        let region = region.or_else(|| env_value(env, "AWS_REGION"));
        let (credentials, region) = match env_value(env, "AWS_BEARER_TOKEN_BEDROCK") {
            Some(token) => (ModelCredentials::Bearer(secret(&token)), region),
            None => {
                let (source, region) = aws.source(env, region).await?;
                (ModelCredentials::Aws(source), region)
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

    /// A request without credentials.
    pub(super) fn call(&self, request: &MessagesRequest) -> Result<ModelApiCall, ModelApiError> {
        let unreadable = |error: serde_json::Error| ModelApiError::NotConfigured(error.to_string());
        let mut body = serde_json::to_value(request).map_err(unreadable)?;
        let (base, path) = match self {
            Self::Anthropic { base_url, .. } => (base_url, "v1/messages".to_owned()),
            Self::Bedrock { base_url, .. } => {
                // The path says which model it is for.
                if let Value::Object(fields) = &mut body {
                    fields.remove("model");
                    fields.insert("anthropic_version".to_owned(), BEDROCK_VERSION.into());
                }
                (base_url, format!("model/{}/invoke", aws_signature::encoded(&request.model)))
            }
        };
        let mut call = ModelApiCall::new(base, &path, body.to_string().into());
        call.header("accept", "application/json")?;
        Ok(call)
    }

    /// A streaming request without credentials.
    pub(super) fn streaming_call(
        &self,
        ask: &StreamingRequest<'_>,
    ) -> Result<ModelApiCall, ModelApiError> {
        let unreadable = |error: serde_json::Error| ModelApiError::NotConfigured(error.to_string());
        let mut call = match self {
            Self::Anthropic { base_url, .. } => {
                let body = ask.body(None).map_err(unreadable)?;
                let mut call = ModelApiCall::new(base_url, "v1/messages", body);
                call.header("accept", "text/event-stream")?;
                call
            }
            Self::Bedrock { base_url, .. } => {
                let model = aws_signature::encoded(ask.model);
                let path = format!("model/{model}/invoke-with-response-stream");
                let body = ask.body(Some(BEDROCK_VERSION)).map_err(unreadable)?;
                let mut call = ModelApiCall::new(base_url, &path, body);
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

    /// Adds the credentials, which may be fetched first.
    pub(super) async fn add_credentials(
        &self,
        call: &mut ModelApiCall,
    ) -> Result<(), ModelApiError> {
        call.header("content-type", "application/json")?;
        match self {
            Self::Anthropic { .. } => call.header("anthropic-version", ANTHROPIC_VERSION)?,
            Self::Bedrock { credentials: ModelCredentials::Aws(source), region, .. } => {
                let at = now();
                return call.sign(&source.keys(at).await?, region, at);
            }
            Self::Bedrock { .. } => {}
        }
        call.headers.extend(self.credentials().header()?);
        Ok(())
    }

    pub(super) fn credentials(&self) -> &ModelCredentials {
        let (Self::Anthropic { credentials, .. } | Self::Bedrock { credentials, .. }) = self;
        credentials
    }

    /// The secrets to redact.
    pub(super) fn secrets(&self) -> Vec<SecretToken> {
        match self.credentials() {
            ModelCredentials::ApiKey(secret) | ModelCredentials::Bearer(secret) => {
                vec![secret.clone()]
            }
            ModelCredentials::Aws(source) => source.secrets(),
            // Only the gateway uses a login, and its own texts hold no part of it.
            ModelCredentials::Login(_) => Vec::new(),
        }
    }
}

impl ModelApiCall {
    fn new(base: &Url, path: &str, body: Vec<u8>) -> Self {
        let mut url = base.clone();
        url.set_path(&format!("{}/{path}", base.path().trim_end_matches('/')));
        Self { url, headers: HeaderMap::new(), body }
    }

    fn header(&mut self, name: &'static str, value: &str) -> Result<(), ModelApiError> {
        self.headers.insert(HeaderName::from_static(name), sensitive(value)?);
        Ok(())
    }

    fn sign(&mut self, keys: &AwsKeys, region: &str, now: Timestamp) -> Result<(), ModelApiError> {
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
    keys: &AwsKeys,
    region: &str,
    now: Timestamp,
) -> Result<Vec<(HeaderName, HeaderValue)>, ModelApiError> {
    let date = aws_signature::stamp(now);
    // As it is sent: without a default port.
    let host = url.host_str().unwrap_or_default();
    let host = match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    };
    let token = keys.session_token.as_ref().map(SecretToken::reveal);
    let mut signed: Vec<_> = content_type.map(|kind| ("content-type", kind)).into_iter().collect();
    signed.extend([("host", host.as_str()), ("x-amz-date", date.as_str())]);
    signed.extend(token.map(|token| ("x-amz-security-token", token)));
    let unsigned = SignatureInput {
        method,
        path: url.path(),
        query: &aws_signature::canonical_query(url.query().unwrap_or_default()),
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

fn sensitive(value: &str) -> Result<HeaderValue, ModelApiError> {
    let value = HeaderValue::from_str(value);
    let mut value = value.map_err(|_| {
        not_configured("a key for the model API holds characters that cannot be sent")
    })?;
    value.set_sensitive(true);
    Ok(value)
}

impl ModelCredentials {
    /// The header with the credential; `None` if requests are signed.
    pub(super) fn header(&self) -> Result<Option<(HeaderName, HeaderValue)>, ModelApiError> {
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

fn bearer(token: &SecretToken) -> Result<(HeaderName, HeaderValue), ModelApiError> {
    let value = sensitive(&format!("Bearer {}", token.reveal()))?;
    Ok((HeaderName::from_static("authorization"), value))
}

pub(super) fn is_bedrock(model: &Model, env: &Env) -> bool {
    match model.engine {
        EngineKind::Bedrock => true,
        // The variable applies to Claude Code only.
        EngineKind::Anthropic => false,
        EngineKind::ClaudeCode | EngineKind::Offline => {
            env_value(env, BEDROCK_SWITCH).is_some_and(|value| is_yes(&value))
        }
    }
}

pub(super) fn base_url(env: &Env, name: &str, usual: &str) -> Result<Url, ModelApiError> {
    let text = env_value(env, name);
    // The text is not repeated: it may hold a password.
    let bad = || not_configured(&format!("{name} must be a plain http or https URL"));
    let url = Url::parse(text.as_deref().unwrap_or(usual)).map_err(|_| bad())?;
    let is_plain = matches!(url.scheme(), "http" | "https")
        && url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none();
    if is_plain { Ok(url) } else { Err(bad()) }
}

/// The value of a variable that is set and not empty.
pub(super) fn env_value(env: &Env, name: &str) -> Option<String> {
    env.get(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
}

fn is_yes(value: &str) -> bool {
    matches!(value.to_ascii_lowercase().as_str(), "1" | "true" | "yes" | "on")
}

fn secret(text: &str) -> SecretToken {
    SecretToken::from_caller(text)
}

fn not_configured(detail: &str) -> ModelApiError {
    ModelApiError::NotConfigured(detail.to_owned())
}
