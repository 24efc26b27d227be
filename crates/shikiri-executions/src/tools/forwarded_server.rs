//! One MCP server behind the loopback server. It adds the server's headers to requests, so that the
//! run's program never has them, and removes secrets from what the server answers, so that the
//! program writes none into its session files.
//!
//! Only the server's own address is forwarded, and the endpoints that a server with the older SSE
//! transport names on its stream.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::{HeaderMap, Method, Response, StatusCode, header};
use reqwest::Url;
use reqwest::header::{HeaderName, HeaderValue};
use shikiri_client::{ProxyRules, describe_http_error, http_client_builder, pin_addresses};
use shikiri_model::known_secrets::KnownSecrets;
use shikiri_model::server::McpServerTransport;

use super::endpoint_event::{EndpointEvent, find_endpoint_event};
use super::loopback_server::{LoopbackResponse, text};
use crate::execution::ResolvedServer;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Redirects within the server's origin that are followed.
const MAX_REDIRECTS: usize = 3;
/// Endpoints that are remembered: one for each open stream.
const MAX_ENDPOINTS: usize = 64;
/// Bytes before the event that names an endpoint.
const MAX_ENDPOINT_EVENT: usize = 64 * 1024;
/// Headers of one hop, of the loopback server itself, or that a changed body makes wrong.
const DROPPED: [&str; 13] = [
    "accept-encoding",
    "authorization",
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// It holds secrets, so the type has no `Debug`.
pub(super) struct ForwardedServer {
    /// The path of this server on the loopback server.
    path: String,
    url: Url,
    is_sse: bool,
    headers: HeaderMap,
    client: reqwest::Client,
    secrets: KnownSecrets,
    endpoints: Mutex<Endpoints>,
}

#[derive(Default)]
struct Endpoints {
    last: u64,
    known: BTreeMap<u64, Url>,
}

impl ForwardedServer {
    /// Resolves and checks the server's addresses: only these are connected to.
    pub(super) async fn open(
        server: &ResolvedServer,
        secrets: &KnownSecrets,
    ) -> Result<Self, String> {
        let (url, is_sse) = match &server.transport {
            McpServerTransport::Http { url } => (url, false),
            McpServerTransport::Sse { url } => (url, true),
            McpServerTransport::Stdio { .. } | McpServerTransport::Openapi { .. } => {
                return Err("is no server that is reached over HTTP".to_owned());
            }
        };
        // The address of our own server comes from us.
        let addresses = match server.is_own {
            true => Vec::new(),
            false => crate::servers::addresses(url, server.allow_private).await?,
        };
        let builder = http_client_builder(&ProxyRules::from_environment())?;
        let builder = pin_addresses(builder, url, &addresses)?.connect_timeout(CONNECT_TIMEOUT);
        let client = builder.build().map_err(|error| describe_http_error(&error))?;
        Ok(Self {
            path: format!("/{}", server.name),
            url: Url::parse(url).map_err(|error| format!("the url cannot be read: {error}"))?,
            is_sse,
            headers: header_map(server)?,
            client,
            secrets: secrets.clone().with(server.secret_values()).with_json_escapes(),
            endpoints: Mutex::default(),
        })
    }

    /// Forwards a request. `rest` is what follows the server's name in the path.
    pub(super) async fn forward(
        &self,
        method: Method,
        rest: &str,
        mut headers: HeaderMap,
        body: Bytes,
    ) -> LoopbackResponse {
        let Some(url) = self.target(rest) else {
            return text(StatusCode::NOT_FOUND, "this server has no such address");
        };
        drop_headers(&mut headers);
        // What comes back is searched for secrets.
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        headers.extend(self.headers.clone());
        let names_endpoint = self.is_sse && method == Method::GET;
        match self.send(method, url, headers, body).await {
            Ok(answer) if answer.headers().contains_key(header::CONTENT_ENCODING) => {
                text(StatusCode::BAD_GATEWAY, "the server compresses what was asked for plainly")
            }
            Ok(answer) => self.answer(answer, names_endpoint).await,
            Err(why) => text(StatusCode::BAD_GATEWAY, &format!("the server {why}")),
        }
    }

    fn target(&self, rest: &str) -> Option<Url> {
        if rest.is_empty() {
            return Some(self.url.clone());
        }
        let number = rest.strip_prefix('/')?.parse().ok()?;
        self.endpoints().known.get(&number).cloned()
    }

    async fn send(
        &self,
        method: Method,
        mut url: Url,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<reqwest::Response, String> {
        for _ in 0..=MAX_REDIRECTS {
            let request = self.client.request(method.clone(), url.clone());
            let sent = request.headers(headers.clone()).body(body.clone()).send().await;
            let answer = sent.map_err(|error| match error.is_connect() {
                true => format!("cannot be reached: {}", describe_http_error(&error)),
                false => format!("did not answer: {}", describe_http_error(&error)),
            })?;
            let status = answer.status();
            if !status.is_redirection() || status == StatusCode::NOT_MODIFIED {
                return Ok(answer);
            }
            let location = answer.headers().get(header::LOCATION);
            let location = location.and_then(|to| to.to_str().ok()).unwrap_or_default();
            let next = url.join(location).ok();
            // Another origin must not get the headers.
            let next = next.filter(|next| next.origin() == self.url.origin());
            let keeps_method = matches!(status.as_u16(), 307 | 308) || method == Method::GET;
            url = next.filter(|_| keeps_method).ok_or("sends us on to another address")?;
        }
        Err("sends us on and on".to_owned())
    }

    async fn answer(&self, answer: reqwest::Response, names_endpoint: bool) -> LoopbackResponse {
        let status = answer.status();
        let mut headers = answer.headers().clone();
        drop_headers(&mut headers);
        for value in headers.values_mut() {
            self.redact_header(value);
        }
        let mut pieces = answer.bytes_stream();
        let mut held = Vec::new();
        if names_endpoint && status.is_success() {
            held = match self.read_endpoint(&mut pieces).await {
                Ok(start) => start,
                Err(why) => return text(StatusCode::BAD_GATEWAY, &format!("the server {why}")),
            };
        }
        let state = RedactedStream { pieces: Some(pieces), held, secrets: self.secrets.clone() };
        let frames = futures_util::stream::unfold(state, async |mut state| {
            let piece = state.next().await?;
            Some((piece.map(Frame::data), state))
        });
        let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        response
    }

    fn redact_header(&self, value: &mut HeaderValue) {
        let clean = value.to_str().map(|text| self.secrets.redact(text));
        if let Some(clean) = clean.ok().and_then(|clean| HeaderValue::try_from(clean).ok()) {
            *value = clean;
        }
    }

    /// Reads a stream up to the event that names its endpoint, and gives what was read with the
    /// endpoint's address on the loopback server.
    async fn read_endpoint<S>(&self, pieces: &mut S) -> Result<Vec<u8>, String>
    where
        S: futures_util::Stream<Item = reqwest::Result<Bytes>> + Unpin,
    {
        let mut read = Vec::new();
        loop {
            if let Some(EndpointEvent { address, event }) = find_endpoint_event(&read) {
                let endpoint = self.url.join(&address).ok();
                let endpoint = endpoint.filter(|endpoint| endpoint.origin() == self.url.origin());
                let endpoint = endpoint.ok_or("names an endpoint elsewhere")?;
                let named =
                    format!("event: endpoint\ndata: {}/{}\n\n", self.path, self.remember(endpoint));
                read.splice(event, named.into_bytes());
                return Ok(read);
            }
            if read.len() > MAX_ENDPOINT_EVENT {
                return Err("names no endpoint on its stream".to_owned());
            }
            match pieces.next().await {
                Some(Ok(piece)) => read.extend_from_slice(&piece),
                Some(Err(error)) => {
                    return Err(format!("broke off: {}", describe_http_error(&error)));
                }
                None => return Err("ended its stream before it named an endpoint".to_owned()),
            }
        }
    }

    fn remember(&self, endpoint: Url) -> u64 {
        let mut endpoints = self.endpoints();
        endpoints.last += 1;
        let number = endpoints.last;
        endpoints.known.insert(number, endpoint);
        if endpoints.known.len() > MAX_ENDPOINTS {
            endpoints.known.pop_first();
        }
        number
    }

    fn endpoints(&self) -> std::sync::MutexGuard<'_, Endpoints> {
        self.endpoints.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn header_map(server: &ResolvedServer) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (name, value) in &server.headers {
        let name = HeaderName::from_bytes(name.as_bytes());
        let value = HeaderValue::from_bytes(value.as_bytes());
        let (Ok(name), Ok(value)) = (name, value) else {
            return Err("has a header in headers_template that cannot be sent".to_owned());
        };
        headers.insert(name, value);
    }
    Ok(headers)
}

fn drop_headers(headers: &mut HeaderMap) {
    for name in DROPPED {
        headers.remove(name);
    }
}

/// An answer's body without secrets.
struct RedactedStream<S> {
    /// `None` after the end.
    pieces: Option<S>,
    /// What may be the start of a secret.
    held: Vec<u8>,
    secrets: KnownSecrets,
}

impl<S> RedactedStream<S>
where
    S: futures_util::Stream<Item = reqwest::Result<Bytes>> + Unpin,
{
    async fn next(&mut self) -> Option<reqwest::Result<Bytes>> {
        loop {
            let pieces = self.pieces.as_mut()?;
            let (clean, taken) = self.secrets.redact_piece(&self.held, false);
            self.held.drain(..taken);
            if !clean.is_empty() {
                return Some(Ok(clean.into()));
            }
            match pieces.next().await {
                Some(Ok(piece)) => self.held.extend_from_slice(&piece),
                Some(Err(error)) => {
                    self.pieces = None;
                    return Some(Err(error.without_url()));
                }
                None => {
                    self.pieces = None;
                    let (clean, _) = self.secrets.redact_piece(&self.held, true);
                    return (!clean.is_empty()).then(|| Ok(clean.into()));
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "forwarded_server_tests.rs"]
mod tests;
