//! Sends requests: retries transient failures once, and limits the size and time of answers.

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::StatusCode;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use serde::Deserialize;
use shikiri_model::key::SecretToken;
use shikiri_model::time::Timestamp;
use tokio::time::{Instant, sleep, timeout_at};

use super::error_text::{join_causes, on_one_line};
use super::http_clients;
use super::message_stream::ModelMessageStream;
use super::model_api_error::ModelApiError;
use super::model_provider::{ModelApiCall, ModelProvider};
use super::streaming_request::StreamingRequest;
use super::wire_types::{MessagesRequest, MessagesResponse};

/// The largest answer that is read.
const MAX_ANSWER: usize = 10 * 1024 * 1024;
/// The largest refusal.
const MAX_REFUSAL: usize = 64 * 1024;
/// Characters of a refusal that an error shows.
const MAX_REASON: usize = 500;
const MAX_TRIES: u32 = 2;
/// Before the second try, where the API names no time.
const PAUSE: Duration = Duration::from_millis(250);

/// A serialized request. It is signed when it is sent.
pub struct PreparedModelCall(ModelApiCall);

#[derive(Clone, Debug)]
pub struct MessagesClient {
    http: reqwest::Client,
    provider: ModelProvider,
}

impl MessagesClient {
    /// `env` names the proxies.
    pub fn new(
        provider: ModelProvider,
        env: &BTreeMap<String, String>,
    ) -> Result<Self, ModelApiError> {
        Ok(Self { http: http_clients::client(env)?, provider })
    }

    /// With a shared HTTP client.
    pub fn over(http: reqwest::Client, provider: ModelProvider) -> Self {
        Self { http, provider }
    }

    /// Serializes a request, so that it borrows nothing.
    pub fn prepare(&self, ask: &StreamingRequest<'_>) -> Result<PreparedModelCall, ModelApiError> {
        Ok(PreparedModelCall(self.provider.streaming_call(ask)?))
    }

    /// Requests a streamed message. Not retried.
    pub async fn stream(
        &self,
        asked: PreparedModelCall,
    ) -> Result<ModelMessageStream, ModelApiError> {
        let answer = self.send_call(asked.0).await?;
        Ok(ModelMessageStream::new(self.clone(), answer, self.provider.is_bedrock()))
    }

    /// Requests a whole message, within `limit`.
    pub async fn send(
        &self,
        request: &MessagesRequest,
        limit: Duration,
    ) -> Result<MessagesResponse, ModelApiError> {
        let deadline = Instant::now() + limit;
        let sending = async {
            let answer = self.open(request, deadline).await?;
            let body = self.read(answer, MAX_ANSWER).await?;
            // The error names only the position, because the answer may hold anything.
            serde_json::from_slice(&body).map_err(|error| {
                ModelApiError::Unreadable(format!(
                    "line {}, column {}",
                    error.line(),
                    error.column()
                ))
            })
        };
        timeout_at(deadline, sending).await.unwrap_or(Err(ModelApiError::TimedOut))
    }

    /// Sends a request, retried once. The body of the answer is unread.
    async fn open(
        &self,
        request: &MessagesRequest,
        deadline: Instant,
    ) -> Result<reqwest::Response, ModelApiError> {
        let mut tries = 1;
        loop {
            let failure = match self.attempt(request).await {
                Err(failure) if failure.is_transient() && tries < MAX_TRIES => failure,
                done => return done,
            };
            let pause = failure.retry_after().unwrap_or(PAUSE);
            if Instant::now() + pause >= deadline {
                return Err(failure);
            }
            sleep(pause).await;
            tries += 1;
        }
    }

    async fn attempt(&self, request: &MessagesRequest) -> Result<reqwest::Response, ModelApiError> {
        self.send_call(self.provider.call(request)?).await
    }

    async fn send_call(&self, mut call: ModelApiCall) -> Result<reqwest::Response, ModelApiError> {
        self.provider.add_credentials(&mut call).await?;
        let sent = self.http.post(call.url).headers(call.headers).body(call.body).send().await;
        let answer = sent.map_err(|error| self.unreachable(error))?;
        let status = answer.status();
        if status == StatusCode::OK {
            return Ok(answer);
        }
        let headers = answer.headers().clone();
        let body = self.read(answer, MAX_REFUSAL).await.unwrap_or_default();
        Err(self.refusal_error(status, &headers, &body))
    }

    async fn read(
        &self,
        mut answer: reqwest::Response,
        limit: usize,
    ) -> Result<Vec<u8>, ModelApiError> {
        let mut body = Vec::new();
        while let Some(piece) = answer.chunk().await.map_err(|error| self.unreachable(error))? {
            if body.len() + piece.len() > limit {
                return Err(ModelApiError::TooLarge(limit));
            }
            body.extend_from_slice(&piece);
        }
        Ok(body)
    }

    fn refusal_error(&self, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> ModelApiError {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let said: ModelApiErrorBody = serde_json::from_slice(body).unwrap_or_default();
        let (kind, message) = match said.error {
            Some(error) => (Some(error.kind), Some(error.message)),
            None => (None, said.message),
        };
        // Bedrock puts it in front of an address: `ThrottlingException:http://…`.
        let kind = kind.or_else(|| {
            let named = header("x-amzn-errortype")?;
            named.split(':').next().map(str::to_owned)
        });
        let reason = || status.canonical_reason().unwrap_or("no reason given").to_owned();
        let seconds = header(RETRY_AFTER.as_str()).and_then(|text| text.trim().parse().ok());
        ModelApiError::Refused {
            status: status.as_u16(),
            kind: self.sanitize_text(&kind.unwrap_or_else(|| "error".to_owned())),
            message: self.sanitize_text(&message.unwrap_or_else(reason)),
            retry_after: seconds.map(Duration::from_secs),
        }
    }

    /// The secrets to redact that are known by now.
    pub fn secrets(&self) -> Vec<SecretToken> {
        self.provider.secrets()
    }

    /// A failure without secrets.
    pub(super) fn sanitize_error(&self, failure: ModelApiError) -> ModelApiError {
        match failure {
            ModelApiError::BrokenOff { kind, message } => ModelApiError::BrokenOff {
                kind: self.sanitize_text(&kind),
                message: self.sanitize_text(&message),
            },
            other => other,
        }
    }

    pub(super) fn unreachable(&self, error: reqwest::Error) -> ModelApiError {
        if error.is_timeout() {
            return ModelApiError::TimedOut;
        }
        ModelApiError::Unreachable(self.sanitize_text(&join_causes(&error.without_url())))
    }

    /// A text of a server, shortened, on one line and without secrets, which some servers repeat in
    /// their errors.
    fn sanitize_text(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in self.provider.secrets() {
            text = text.replace(secret.reveal(), "[hidden]");
        }
        on_one_line(&text, MAX_REASON)
    }
}

/// The two formats of an error: Anthropic's, and AWS's with only a message.
#[derive(Default, Deserialize)]
struct ModelApiErrorBody {
    error: Option<ModelApiErrorDetail>,
    #[serde(alias = "Message")]
    message: Option<String>,
}

#[derive(Deserialize)]
struct ModelApiErrorDetail {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    message: String,
}

#[expect(clippy::disallowed_methods, reason = "AWS compares the signature's date with its clock")]
pub(crate) fn now() -> Timestamp {
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let millis = since_epoch.unwrap_or_default().as_millis();
    Timestamp::from_millis(i64::try_from(millis).unwrap_or(i64::MAX))
}
