//! The operator's model API as the gateway of a run uses it: its address and credentials.

use std::collections::BTreeMap;

use http::Method;
use reqwest::Url;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use shikiri_model::key::SecretToken;
use shikiri_model::models::Model;

use super::aws::AwsCredentialSources;
use super::messages_client::now;
use super::model_api_error::ModelApiError;
use super::model_provider::{
    ANTHROPIC_URL, BEDROCK_SWITCH, ModelCredentials, ModelProvider, base_url, env_value,
    is_bedrock, signature_headers,
};
use crate::claude_login::ClaudeLogin;

type Env = BTreeMap<String, String>;

/// Variables with which a model sets its own API or credentials.
const OWN_UPSTREAM: [&str; 5] = [
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_CUSTOM_HEADERS",
    BEDROCK_SWITCH,
];

/// Clones share the credential cache.
#[derive(Clone, Debug)]
pub(crate) struct ModelApiUpstream {
    provider: Result<ModelProvider, MissingCredential>,
    custom_headers: Vec<(HeaderName, HeaderValue)>,
}

/// An upstream without a credential.
#[derive(Clone, Debug)]
struct MissingCredential {
    base_url: Option<Url>,
    is_bedrock: bool,
    reason: String,
}

impl ModelApiUpstream {
    pub(crate) async fn from_env(
        model: &Model,
        env: &Env,
        aws: &AwsCredentialSources,
    ) -> Result<Self, ModelApiError> {
        let custom_headers = custom_headers(env);
        let is_bedrock = is_bedrock(model, env);
        let provider = match ModelProvider::from_env(model, env, aws).await {
            Ok(provider) => Ok(provider),
            Err(failure) => {
                // An address of its own may need no credential.
                let name = "ANTHROPIC_BASE_URL";
                let base_url = match env_value(env, name).filter(|_| !is_bedrock) {
                    Some(_) => Some(base_url(env, name, "")?),
                    None => None,
                };
                let login = match is_bedrock {
                    true => "",
                    false => ", or lend a run your own login: `shikiri run --my-login`",
                };
                let reason = format!("{failure}{login}");
                Err(MissingCredential { base_url, is_bedrock, reason })
            }
        };
        Ok(Self { provider, custom_headers })
    }

    /// Anthropic's API with a person's own login. Models with their own address or credentials are
    /// refused, because they could send the login elsewhere.
    pub(crate) fn with_login(
        model: &Model,
        env: &Env,
        login: ClaudeLogin,
    ) -> Result<Self, ModelApiError> {
        let is_own = |name: &&String| OWN_UPSTREAM.contains(&name.as_str());
        if let Some(name) = model.env.keys().find(is_own) {
            let (id, reason) = (&model.id, "your login is lent only to models without one");
            return Err(ModelApiError::NotConfigured(format!(
                "the model {id} sets {name}: {reason}"
            )));
        }
        let base_url = base_url(env, "ANTHROPIC_BASE_URL", ANTHROPIC_URL)?;
        let credentials = ModelCredentials::Login(login);
        let provider = Ok(ModelProvider::Anthropic { base_url, credentials });
        Ok(Self { provider, custom_headers: custom_headers(env) })
    }

    pub(crate) fn is_bedrock(&self) -> bool {
        match &self.provider {
            Ok(provider) => provider.is_bedrock(),
            Err(none) => none.is_bedrock,
        }
    }

    /// The secrets to redact that are known by now.
    pub(crate) fn secrets(&self) -> Vec<SecretToken> {
        self.provider.as_ref().map(ModelProvider::secrets).unwrap_or_default()
    }

    /// The address of a path of the API, which is given as the caller wrote it.
    pub(crate) fn url(&self, path: &str, query: Option<&str>) -> Option<Url> {
        let base = match &self.provider {
            Ok(
                ModelProvider::Anthropic { base_url, .. } | ModelProvider::Bedrock { base_url, .. },
            ) => base_url.clone(),
            // Never called, because `add_credential` fails.
            Err(none) => match &none.base_url {
                Some(base_url) => base_url.clone(),
                None => Url::parse("https://api.anthropic.com").ok()?,
            },
        };
        let mut text = base.as_str().trim_end_matches('/').to_owned();
        text.push_str(path);
        if let Some(query) = query {
            text.push('?');
            text.push_str(query);
        }
        Url::parse(&text).ok()
    }

    /// Adds the credential for Anthropic's API.
    pub(crate) fn add_credential(&self, headers: &mut HeaderMap) -> Result<(), ModelApiError> {
        match &self.provider {
            Ok(provider) => {
                let credentials = provider.credentials();
                if let Some((name, value)) = credentials.header()? {
                    headers.insert(name, value);
                }
            }
            Err(none) if none.base_url.is_some() => {}
            Err(none) => return Err(ModelApiError::NotConfigured(none.reason.clone())),
        }
        headers.extend(self.custom_headers.iter().cloned());
        Ok(())
    }

    /// Signs a request to Bedrock, or adds the token that stands for a signature.
    pub(crate) async fn sign(
        &self,
        method: &Method,
        url: &Url,
        headers: &mut HeaderMap,
        body: &[u8],
    ) -> Result<(), ModelApiError> {
        let (credentials, region) = match &self.provider {
            Ok(ModelProvider::Bedrock { credentials, region, .. }) => (credentials, region),
            Ok(ModelProvider::Anthropic { .. }) => return self.add_credential(headers),
            Err(none) => return Err(ModelApiError::NotConfigured(none.reason.clone())),
        };
        headers.extend(self.custom_headers.iter().cloned());
        let ModelCredentials::Aws(source) = credentials else {
            headers.extend(credentials.header()?);
            return Ok(());
        };
        let at = now();
        let keys = source.keys(at).await?;
        let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let signed =
            signature_headers(method.as_str(), url, content_type, body, &keys, region, at)?;
        headers.extend(signed);
        Ok(())
    }
}

/// `ANTHROPIC_CUSTOM_HEADERS` has one header a line.
fn custom_headers(env: &Env) -> Vec<(HeaderName, HeaderValue)> {
    let text = env_value(env, "ANTHROPIC_CUSTOM_HEADERS").unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let pairs = lines.filter_map(|(name, value)| {
        let mut value = HeaderValue::from_str(value.trim()).ok()?;
        value.set_sensitive(true);
        Some((name.trim().parse().ok()?, value))
    });
    pairs.collect()
}
