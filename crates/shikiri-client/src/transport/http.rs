//! Streamable HTTP: a POST for each message, a stream or a document back.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use reqwest::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, WWW_AUTHENTICATE,
};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::Value;
use shikiri_model::host::sanitize_line;

use super::MAX_MESSAGE;
use super::sse::SseEventStream;
use crate::error::ClientError;
use crate::http_setup::{ProxyRules, describe_http_error, http_client_builder, pin_addresses};
use crate::rpc_messages::ServerRpcError;
use crate::token_provider::{AuthChallenge, TokenProvider};

/// Content types that a client of the protocol accepts.
const ACCEPTED: &str = "application/json, text/event-stream";
/// Bytes of a refusal's body that are read.
const MAX_SAID: usize = 2_000;
/// Read timeout. A server that sends neither messages nor keep-alives for this long counts as gone.
const SILENCE: Duration = Duration::from_secs(300);
/// Authentication attempts for one request.
const MAX_CHALLENGES: usize = 3;

pub(crate) struct HttpTransport {
    client: reqwest::Client,
    url: String,
    headers: HeaderMap,
    authority: Option<Arc<dyn TokenProvider>>,
}

pub(crate) enum HttpReply {
    /// Accepted, without a body.
    Accepted,
    Document(Value),
    Events(SseEventStream),
}

/// A reply and the session that the server opened with it.
pub(crate) struct PostOutcome {
    pub(crate) reply: HttpReply,
    pub(crate) session: Option<String>,
}

/// Headers of one request, beyond those of every request.
pub(crate) type RequestHeaders = Vec<(String, String)>;

impl HttpTransport {
    pub(crate) fn new(
        url: &str,
        headers: &BTreeMap<String, String>,
        authority: Option<Arc<dyn TokenProvider>>,
        addresses: &[SocketAddr],
    ) -> Result<Self, ClientError> {
        let unfit = |name: &str| ClientError::Refused {
            status: 0,
            said: format!(
                "the header {:?} of the configuration cannot be sent",
                sanitize_line(name)
            ),
        };
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let key = HeaderName::try_from(name.as_str()).map_err(|_| unfit(name))?;
            let mut value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| unfit(name))?;
            value.set_sensitive(true);
            map.insert(key, value);
        }
        let client = build_client(url, addresses).map_err(ClientError::Unreachable)?;
        Ok(Self { client, url: url.to_owned(), headers: map, authority })
    }

    pub(crate) async fn post(
        &self,
        body: &Value,
        extra: &RequestHeaders,
    ) -> Result<PostOutcome, ClientError> {
        let text =
            serde_json::to_string(body).map_err(|error| ClientError::Garbled(error.to_string()))?;
        let response = self
            .send(Method::POST, extra, |request| {
                request.header(CONTENT_TYPE, "application/json").body(text.clone())
            })
            .await?;
        let header = response.headers().get("mcp-session-id");
        let session = header.and_then(|value| value.to_str().ok()).map(str::to_owned);
        Ok(PostOutcome { reply: reply(response).await?, session })
    }

    /// Opens the server's own stream, or resumes a stream after an event.
    pub(crate) async fn listen(
        &self,
        extra: &RequestHeaders,
        after: Option<&str>,
    ) -> Result<SseEventStream, ClientError> {
        let response = self
            .send(Method::GET, extra, |request| match after {
                Some(id) => request.header("Last-Event-ID", id),
                None => request,
            })
            .await?;
        match reply(response).await? {
            HttpReply::Events(events) => Ok(events),
            _ => Err(ClientError::Garbled("a GET was not answered with a stream".to_owned())),
        }
    }

    /// Posts a message whose answer comes on another stream. Only the status of this response
    /// counts.
    pub(crate) async fn post_one_way(&self, body: &Value) -> Result<(), ClientError> {
        let text = body.to_string();
        let finish = |request: RequestBuilder| {
            request.header(CONTENT_TYPE, "application/json").body(text.clone())
        };
        self.send(Method::POST, &Vec::new(), finish).await.map(drop)
    }

    /// The same server at another path of the same origin.
    pub(crate) fn at_endpoint(&self, announced: &str) -> Result<Self, ClientError> {
        let garbled = |said: &str| ClientError::Garbled(said.to_owned());
        let unreadable = || garbled("it named an endpoint that cannot be read");
        let base = reqwest::Url::parse(&self.url).map_err(|_| unreadable())?;
        let announced = announced.trim();
        let endpoint =
            base.join(announced).ok().filter(|_| !announced.is_empty()).ok_or_else(unreadable)?;
        // Another origin could receive the headers and the secrets in them.
        if endpoint.origin() != base.origin() {
            return Err(garbled("it named an endpoint elsewhere"));
        }
        Ok(Self {
            client: self.client.clone(),
            url: endpoint.into(),
            headers: self.headers.clone(),
            authority: self.authority.clone(),
        })
    }

    pub(crate) async fn delete(&self, extra: &RequestHeaders) -> Result<(), ClientError> {
        self.send(Method::DELETE, extra, |request| request).await.map(drop)
    }

    /// Sends a request, and authenticates if the server requires it.
    async fn send(
        &self,
        method: Method,
        extra: &RequestHeaders,
        finish: impl Fn(RequestBuilder) -> RequestBuilder,
    ) -> Result<Response, ClientError> {
        for _ in 0..=MAX_CHALLENGES {
            let mut request =
                self.client.request(method.clone(), &self.url).header(ACCEPT, ACCEPTED);
            request = request.headers(self.headers.clone());
            let token = self.token().await;
            if let Some(value) = token.as_deref().and_then(bearer) {
                request = request.header(AUTHORIZATION, value);
            }
            for (name, value) in extra {
                request = request.header(name, value);
            }
            let sent = finish(request).send().await;
            let response = sent.map_err(|error| unsent(&error))?;
            match self.challenged(&response, token.as_deref()).await? {
                true => {}
                false => return check_status(response).await,
            }
        }
        Err(ClientError::Unauthorized("refused every token that it was shown".to_owned()))
    }

    async fn token(&self) -> Option<String> {
        // A header configured by the user takes precedence.
        if self.headers.contains_key(AUTHORIZATION) {
            return None;
        }
        self.authority.as_ref()?.token().await
    }

    /// Whether it is worth sending again, with another token.
    async fn challenged(
        &self,
        response: &Response,
        token: Option<&str>,
    ) -> Result<bool, ClientError> {
        let status = response.status();
        // Each authentication scheme may have its own header: ours is Bearer.
        let headers = response.headers().get_all(WWW_AUTHENTICATE).iter();
        let all: Vec<&str> = headers.filter_map(|value| value.to_str().ok()).collect();
        let said = all.iter().find(|text| is_bearer(text)).or(all.first()).copied();
        let wants_more = said.is_some_and(|text| text.contains("insufficient_scope"));
        if status != StatusCode::UNAUTHORIZED && !(status == StatusCode::FORBIDDEN && wants_more) {
            return Ok(false);
        }
        match &self.authority {
            Some(authority) if !self.headers.contains_key(AUTHORIZATION) => {
                let challenge = AuthChallenge { status: status.as_u16(), said, token };
                authority.handle_challenge(challenge).await?;
                Ok(true)
            }
            _ => Err(ClientError::Unauthorized(
                "wants a key: give one as the header Authorization".to_owned(),
            )),
        }
    }
}

fn build_client(url: &str, addresses: &[SocketAddr]) -> Result<reqwest::Client, String> {
    let builder = http_client_builder(&ProxyRules::from_environment())?
        .connect_timeout(Duration::from_secs(10))
        .read_timeout(SILENCE);
    let built = pin_addresses(builder, url, addresses)?.build();
    built.map_err(|error| describe_http_error(&error))
}

fn bearer(token: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(format!("Bearer {token}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn is_bearer(said: &str) -> bool {
    said.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer"))
}

/// Only a request that never reached the server counts as not sent. A missing answer proves
/// nothing.
fn unsent(error: &reqwest::Error) -> ClientError {
    match error.is_connect() || error.is_builder() {
        true => ClientError::Unreachable(describe_http_error(error)),
        false => ClientError::Cut(describe_http_error(error)),
    }
}

async fn check_status(response: Response) -> Result<Response, ClientError> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    if status.is_redirection() {
        let header = response.headers().get("location");
        let to = header.and_then(|value| value.to_str().ok()).unwrap_or("nowhere");
        let said = format!("it sends us on to {}: name that address instead", sanitize_line(to));
        return Err(ClientError::Refused { status: status.as_u16(), said });
    }
    let text = body(response, MAX_SAID).await.unwrap_or_default();
    // A JSON-RPC error may come with any status.
    let parsed = serde_json::from_slice::<Value>(&text).ok();
    let error = parsed.as_ref().and_then(|body| body.get("error")).filter(|it| it.is_object());
    let error = error.map(ServerRpcError::parse);
    if status == StatusCode::NOT_FOUND
        && error.as_ref().is_none_or(|it| it.code != crate::rpc_messages::METHOD_NOT_FOUND)
    {
        return Err(ClientError::SessionGone);
    }
    match error {
        Some(error) if error.code != 0 => Err(ClientError::Rpc(error)),
        _ => {
            let said = String::from_utf8_lossy(&text).into_owned();
            Err(ClientError::Refused { status: status.as_u16(), said })
        }
    }
}

async fn reply(response: Response) -> Result<HttpReply, ClientError> {
    let header = response.headers().get(CONTENT_TYPE);
    let kind = header.and_then(|value| value.to_str().ok()).unwrap_or_default().to_lowercase();
    if kind.starts_with("text/event-stream") {
        return Ok(HttpReply::Events(SseEventStream::new(response)));
    }
    if response.status() == StatusCode::ACCEPTED || response.status() == StatusCode::NO_CONTENT {
        return Ok(HttpReply::Accepted);
    }
    let text = body(response, MAX_MESSAGE).await?;
    if text.is_empty() {
        return Ok(HttpReply::Accepted);
    }
    let document = serde_json::from_slice(&text);
    document.map(HttpReply::Document).map_err(|_| {
        ClientError::Garbled(format!("an answer that is no JSON ({})", sanitize_line(&kind)))
    })
}

/// Reads the body up to a bound. A longer answer is an error; a longer refusal is cut.
async fn body(response: Response, bound: usize) -> Result<Vec<u8>, ClientError> {
    let mut bytes = response.bytes_stream();
    let mut text = Vec::new();
    while let Some(part) = bytes.next().await {
        let part = part.map_err(|error| ClientError::Cut(describe_http_error(&error)))?;
        text.extend_from_slice(&part);
        if text.len() > bound {
            if bound == MAX_MESSAGE {
                return Err(ClientError::Garbled("an answer of more than 16 MiB".to_owned()));
            }
            text.truncate(bound);
            break;
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_go_to_the_same_origin_only() {
        let server = HttpTransport::new("http://a.test:81/sse", &BTreeMap::new(), None, &[]);
        let server = server.ok().unwrap();
        let at = |announced| server.at_endpoint(announced).map(|found| found.url).ok();
        assert_eq!(at("/messages?id=1").as_deref(), Some("http://a.test:81/messages?id=1"));
        assert_eq!(at("http://a.test:81/m").as_deref(), Some("http://a.test:81/m"));
        for bad in ["http://a.test/m", "https://a.test:81/m", "http://b.test/", "//b.test/m", " "] {
            assert_eq!(at(bad), None, "{bad:?}");
        }
    }
}
