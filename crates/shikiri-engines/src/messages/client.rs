//! Calls: opened with a second try where that is worth it, read within bounds, and ended in time.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::time::Duration;

use reqwest::StatusCode;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use serde::Deserialize;
use shikiri_model::key::Secret;
use shikiri_model::time::Timestamp;
use tokio::time::{Instant, sleep, timeout_at};

use super::ask::Ask;
use super::failure::Failure;
use super::http;
use super::provider::{Call, Provider};
use super::stream::Streaming;
use super::wire::{Request, Response};

/// The largest answer that is read.
const MAX_ANSWER: usize = 10 * 1024 * 1024;
/// The largest refusal.
const MAX_REFUSAL: usize = 64 * 1024;
/// Characters of a refusal that are told.
const MAX_TOLD: usize = 500;
const MAX_TRIES: u32 = 2;
/// Before the second try, where the API names no time.
const PAUSE: Duration = Duration::from_millis(250);

/// A request that is written, but not signed: that is done when it is sent.
pub struct Prepared(Call);

#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    provider: Provider,
}

impl Client {
    /// `env` names the proxies.
    pub fn new(provider: Provider, env: &BTreeMap<String, String>) -> Result<Self, Failure> {
        Ok(Self { http: http::client(env)?, provider })
    }

    /// Over connections that others use, too.
    pub fn over(http: reqwest::Client, provider: Provider) -> Self {
        Self { http, provider }
    }

    /// A question, written: it borrows nothing any more.
    pub fn prepare(&self, ask: &Ask<'_>) -> Result<Prepared, Failure> {
        Ok(Prepared(self.provider.streaming_call(ask)?))
    }

    /// Asks for a message that is read as it arrives. Not tried again.
    pub async fn stream(&self, asked: Prepared) -> Result<Streaming, Failure> {
        let answer = self.sent(asked.0).await?;
        Ok(Streaming::new(self.clone(), answer, self.provider.is_bedrock()))
    }

    /// Asks for a message and waits for all of it, at most `limit`.
    pub async fn send(&self, request: &Request, limit: Duration) -> Result<Response, Failure> {
        let deadline = Instant::now() + limit;
        let sending = async {
            let answer = self.open(request, deadline).await?;
            let body = self.read(answer, MAX_ANSWER).await?;
            // Only the place is told: the answer itself may be anything.
            serde_json::from_slice(&body).map_err(|error| {
                Failure::Unreadable(format!("line {}, column {}", error.line(), error.column()))
            })
        };
        timeout_at(deadline, sending).await.unwrap_or(Err(Failure::TimedOut))
    }

    /// An answer whose body is still to be read.
    async fn open(
        &self,
        request: &Request,
        deadline: Instant,
    ) -> Result<reqwest::Response, Failure> {
        let mut tries = 1;
        loop {
            let failure = match self.attempt(request).await {
                Err(failure) if failure.is_passing() && tries < MAX_TRIES => failure,
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

    async fn attempt(&self, request: &Request) -> Result<reqwest::Response, Failure> {
        self.sent(self.provider.call(request)?).await
    }

    async fn sent(&self, mut call: Call) -> Result<reqwest::Response, Failure> {
        self.provider.prove(&mut call).await?;
        let sent = self.http.post(call.url).headers(call.headers).body(call.body).send().await;
        let answer = sent.map_err(|error| self.unreachable(error))?;
        let status = answer.status();
        if status == StatusCode::OK {
            return Ok(answer);
        }
        let headers = answer.headers().clone();
        let body = self.read(answer, MAX_REFUSAL).await.unwrap_or_default();
        Err(self.refused(status, &headers, &body))
    }

    async fn read(&self, mut answer: reqwest::Response, limit: usize) -> Result<Vec<u8>, Failure> {
        let mut body = Vec::new();
        while let Some(piece) = answer.chunk().await.map_err(|error| self.unreachable(error))? {
            if body.len() + piece.len() > limit {
                return Err(Failure::TooLarge(limit));
            }
            body.extend_from_slice(&piece);
        }
        Ok(body)
    }

    fn refused(&self, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Failure {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let said: Refusal = serde_json::from_slice(body).unwrap_or_default();
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
        Failure::Refused {
            status: status.as_u16(),
            kind: self.told(&kind.unwrap_or_else(|| "error".to_owned())),
            message: self.told(&message.unwrap_or_else(reason)),
            retry_after: seconds.map(Duration::from_secs),
        }
    }

    /// What must not be repeated to anybody, as far as it is known by now.
    pub fn secrets(&self) -> Vec<Secret> {
        self.provider.secrets()
    }

    /// A failure as it may be told.
    pub(super) fn cleaned(&self, failure: Failure) -> Failure {
        match failure {
            Failure::BrokenOff { kind, message } => {
                Failure::BrokenOff { kind: self.told(&kind), message: self.told(&message) }
            }
            other => other,
        }
    }

    pub(super) fn unreachable(&self, error: reqwest::Error) -> Failure {
        if error.is_timeout() {
            return Failure::TimedOut;
        }
        let error = error.without_url();
        let mut causes = vec![error.to_string()];
        let mut next = error.source();
        while let Some(cause) = next {
            causes.push(cause.to_string());
            next = cause.source();
        }
        Failure::Unreachable(self.told(&causes.join(": ")))
    }

    /// A text from outside as it may be repeated: short, on one line, without our secrets, which
    /// some servers send back in their complaints.
    fn told(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in self.provider.secrets() {
            text = text.replace(secret.reveal(), "[hidden]");
        }
        let line = text.split(|c: char| c.is_control() || c.is_whitespace());
        let line = line.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
        line.chars().take(MAX_TOLD).collect()
    }
}

/// Both ways in which a refusal is written: Anthropic's, and AWS's with the message alone.
#[derive(Default, Deserialize)]
struct Refusal {
    error: Option<RefusalError>,
    #[serde(alias = "Message")]
    message: Option<String>,
}

#[derive(Deserialize)]
struct RefusalError {
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
