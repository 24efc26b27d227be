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
use shikiri_model::host::clean_line;

use super::MAX_MESSAGE;
use super::sse::{Events, plain};
use super::tls::tls;
use crate::authority::{Authority, Challenge};
use crate::error::ClientError;
use crate::wire::RpcError;

/// What a client of the protocol takes.
const ACCEPTED: &str = "application/json, text/event-stream";
/// Words of a refusal that are repeated.
const MAX_SAID: usize = 2_000;
/// A server that neither says anything nor keeps the line alive is taken for gone.
const SILENCE: Duration = Duration::from_secs(300);
/// Proving who we are again and again helps nobody.
const MAX_CHALLENGES: usize = 3;

pub(crate) struct HttpLink {
    client: reqwest::Client,
    url: String,
    headers: HeaderMap,
    authority: Option<Arc<dyn Authority>>,
}

pub(crate) enum Reply {
    /// Taken, nothing to say.
    Accepted,
    Document(Value),
    Events(Events),
}

/// A reply and the session that the server opened with it.
pub(crate) struct Posted {
    pub(crate) reply: Reply,
    pub(crate) session: Option<String>,
}

/// Headers of one request, beyond those of every request.
pub(crate) type Extra = Vec<(String, String)>;

impl HttpLink {
    pub(crate) fn new(
        url: &str,
        headers: &BTreeMap<String, String>,
        authority: Option<Arc<dyn Authority>>,
        addresses: &[SocketAddr],
    ) -> Result<Self, ClientError> {
        let unfit = |name: &str| ClientError::Refused {
            status: 0,
            said: format!("the header {:?} of the configuration cannot be sent", clean_line(name)),
        };
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let key = HeaderName::try_from(name.as_str()).map_err(|_| unfit(name))?;
            let mut value = HeaderValue::try_from(value.as_str()).map_err(|_| unfit(name))?;
            value.set_sensitive(true);
            map.insert(key, value);
        }
        // A redirect would carry the headers, and what is in them, to another place.
        let mut client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls().map_err(ClientError::Unreachable)?)
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(Duration::from_secs(10))
            .read_timeout(SILENCE)
            .tcp_nodelay(true);
        let parsed = reqwest::Url::parse(url).ok();
        if let Some(host) = parsed.as_ref().and_then(|url| url.host_str())
            && !addresses.is_empty()
        {
            client = client.resolve_to_addrs(host, addresses);
        }
        let client = client.build().map_err(|error| ClientError::Unreachable(plain(&error)))?;
        Ok(Self { client, url: url.to_owned(), headers: map, authority })
    }

    pub(crate) async fn post(&self, body: &Value, extra: &Extra) -> Result<Posted, ClientError> {
        let text =
            serde_json::to_string(body).map_err(|error| ClientError::Garbled(error.to_string()))?;
        let response = self
            .send(Method::POST, extra, |request| {
                request.header(CONTENT_TYPE, "application/json").body(text.clone())
            })
            .await?;
        let header = response.headers().get("mcp-session-id");
        let session = header.and_then(|value| value.to_str().ok()).map(str::to_owned);
        Ok(Posted { reply: reply(response).await?, session })
    }

    /// A stream of its own, or one that is read on after an event.
    pub(crate) async fn listen(
        &self,
        extra: &Extra,
        after: Option<&str>,
    ) -> Result<Events, ClientError> {
        let response = self
            .send(Method::GET, extra, |request| match after {
                Some(id) => request.header("Last-Event-ID", id),
                None => request,
            })
            .await?;
        match reply(response).await? {
            Reply::Events(events) => Ok(events),
            _ => Err(ClientError::Garbled("a GET was not answered with a stream".to_owned())),
        }
    }

    pub(crate) async fn delete(&self, extra: &Extra) -> Result<(), ClientError> {
        self.send(Method::DELETE, extra, |request| request).await.map(drop)
    }

    /// Sends, and proves who we are if the server asks for it.
    async fn send(
        &self,
        method: Method,
        extra: &Extra,
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
                false => return refused(response).await,
            }
        }
        Err(ClientError::Unauthorized("refused every token that it was shown".to_owned()))
    }

    async fn token(&self) -> Option<String> {
        // A header that the user wrote wins.
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
        // Each way to prove who we are may have a header of its own: ours is Bearer.
        let headers = response.headers().get_all(WWW_AUTHENTICATE).iter();
        let all: Vec<&str> = headers.filter_map(|value| value.to_str().ok()).collect();
        let said = all.iter().find(|text| is_bearer(text)).or(all.first()).copied();
        let wants_more = said.is_some_and(|text| text.contains("insufficient_scope"));
        if status != StatusCode::UNAUTHORIZED && !(status == StatusCode::FORBIDDEN && wants_more) {
            return Ok(false);
        }
        match &self.authority {
            Some(authority) if !self.headers.contains_key(AUTHORIZATION) => {
                let challenge = Challenge { status: status.as_u16(), said, token };
                authority.challenged(challenge).await?;
                Ok(true)
            }
            _ => Err(ClientError::Unauthorized(
                "wants a key: give one as the header Authorization".to_owned(),
            )),
        }
    }
}

fn bearer(token: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(format!("Bearer {token}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn is_bearer(said: &str) -> bool {
    said.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer"))
}

/// Only what never reached the server was not sent: an answer that fails to come says nothing.
fn unsent(error: &reqwest::Error) -> ClientError {
    match error.is_connect() || error.is_builder() {
        true => ClientError::Unreachable(plain(error)),
        false => ClientError::Cut(plain(error)),
    }
}

async fn refused(response: Response) -> Result<Response, ClientError> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    if status.is_redirection() {
        let header = response.headers().get("location");
        let to = header.and_then(|value| value.to_str().ok()).unwrap_or("nowhere");
        let said = format!("it sends us on to {}: name that address instead", clean_line(to));
        return Err(ClientError::Refused { status: status.as_u16(), said });
    }
    let text = body(response, MAX_SAID).await.unwrap_or_default();
    // An error by the protocol may come with any status.
    let parsed = serde_json::from_slice::<Value>(&text).ok();
    let error = parsed.as_ref().and_then(|body| body.get("error")).filter(|it| it.is_object());
    let error = error.map(RpcError::parse);
    if status == StatusCode::NOT_FOUND
        && error.as_ref().is_none_or(|it| it.code != crate::wire::METHOD_NOT_FOUND)
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

async fn reply(response: Response) -> Result<Reply, ClientError> {
    let header = response.headers().get(CONTENT_TYPE);
    let kind = header.and_then(|value| value.to_str().ok()).unwrap_or_default().to_lowercase();
    if kind.starts_with("text/event-stream") {
        return Ok(Reply::Events(Events::new(response)));
    }
    if response.status() == StatusCode::ACCEPTED || response.status() == StatusCode::NO_CONTENT {
        return Ok(Reply::Accepted);
    }
    let text = body(response, MAX_MESSAGE).await?;
    if text.is_empty() {
        return Ok(Reply::Accepted);
    }
    let document = serde_json::from_slice(&text);
    document.map(Reply::Document).map_err(|_| {
        ClientError::Garbled(format!("an answer that is no JSON ({})", clean_line(&kind)))
    })
}

/// The body up to a bound, which for an answer is an error and for a refusal is enough.
async fn body(response: Response, bound: usize) -> Result<Vec<u8>, ClientError> {
    let mut bytes = response.bytes_stream();
    let mut text = Vec::new();
    while let Some(part) = bytes.next().await {
        let part = part.map_err(|error| ClientError::Cut(plain(&error)))?;
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
