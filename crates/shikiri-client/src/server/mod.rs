//! A connection to a server: the era it speaks, and requests to it.

mod connect;
#[cfg(test)]
mod connect_tests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Map, Value, json};
use shikiri_model::host::{ServerSpec, sanitize_line};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::error::ClientError;
use crate::exchange::{ExchangeItem, RequestExchange};
use crate::mcp_headers;
use crate::message_router::{MessageRouter, progress_token};
use crate::rpc_messages::{self, INTERNAL_ERROR, METHOD_NOT_FOUND, ServerMessage};
use crate::token_provider::TokenProvider;
use crate::transport::http::{HttpReply, HttpTransport, PostOutcome, RequestHeaders};
use crate::transport::older_sse::OlderSseTransport;
use crate::transport::stdio::StdioTransport;

pub(crate) const MODERN: &str = "2026-07-28";
pub(crate) const LEGACY: &str = "2025-11-25";
/// The extension by which calls become tasks.
pub(crate) const TASKS: &str = "io.modelcontextprotocol/tasks";
/// How long a call waits for the stream on which its server may ask questions. A server that has
/// not opened it by then will hardly use it.
const OPENING: Duration = Duration::from_secs(1);

/// How the client identifies itself, and which requests of the server it supports.
#[derive(Clone)]
pub struct ClientOptions {
    pub name: String,
    pub version: String,
    /// Whether a user can be asked.
    pub elicitation: bool,
    /// Whether a model can be asked.
    pub sampling: bool,
    pub authority: Option<Arc<dyn TokenProvider>>,
    /// The only revision to use, instead of the newest common one.
    pub protocol: Option<String>,
    /// The server's addresses, if the caller has resolved and checked them. Connections go to just
    /// these. If empty, the name is resolved as usual.
    pub addresses: Vec<SocketAddr>,
}

/// The server's untrusted description of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerInfo {
    pub name: String,
    pub version: String,
    pub instructions: Option<String>,
    pub capabilities: Value,
}

pub struct ServerConnection {
    pub(crate) spec: ServerSpec,
    pub(crate) link: ServerTransport,
    pub(crate) era: ServerEra,
    pub(crate) about: ServerInfo,
    pub(crate) router: Arc<MessageRouter>,
    introduction: ClientOptions,
    numbers: AtomicU64,
    /// Distinguishes our ids from those of an earlier process in the same session.
    prefix: String,
    /// Whether the older era's stream is open. Closed if it will not open.
    listening: Option<watch::Receiver<bool>>,
    /// Reads messages outside of requests.
    _listener: Option<AbortOnDropHandle<()>>,
}

pub(crate) enum ServerTransport {
    Http(Arc<HttpTransport>),
    OlderSse(Arc<OlderSseTransport>),
    Stdio(Arc<StdioTransport>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServerEra {
    /// A session per connection.
    Legacy { version: String, session: Option<String> },
    /// Every request is self-contained.
    Modern,
}

impl ServerConnection {
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    pub fn about(&self) -> &ServerInfo {
        &self.about
    }

    pub fn protocol(&self) -> &str {
        match &self.era {
            ServerEra::Legacy { version, .. } => version,
            ServerEra::Modern => MODERN,
        }
    }

    pub fn session(&self) -> Option<&str> {
        match &self.era {
            ServerEra::Legacy { session, .. } => session.as_deref(),
            ServerEra::Modern => None,
        }
    }

    /// Whether the connection is still open, as far as is known.
    pub fn is_alive(&self) -> bool {
        self.router.closed_reason().is_none()
    }

    /// Whether an unreachable server may come back on this connection. A local program does not,
    /// nor does the stream of the older SSE transport.
    pub(crate) fn can_reconnect(&self) -> bool {
        matches!(self.link, ServerTransport::Http(_))
    }

    /// Whether cancelling a call needs a notification.
    pub(crate) fn takes_cancellations(&self) -> bool {
        self.era != ServerEra::Modern || matches!(self.link, ServerTransport::Stdio(_))
    }

    pub(crate) fn offers_elicitation(&self) -> bool {
        self.introduction.elicitation
    }

    pub(crate) fn offers_sampling(&self) -> bool {
        self.introduction.sampling
    }

    /// Waits until the server's own stream is open, if it has one.
    pub(crate) async fn listening(&self) {
        let Some(mut listening) = self.listening.clone() else { return };
        // A closed channel ends the wait too: the stream will not open.
        let opened = listening.wait_for(|is_open| *is_open);
        let _ = tokio::time::timeout(OPENING, opened).await;
    }

    /// An unused request id in this session.
    pub(crate) fn next_request_id(&self) -> String {
        format!("{}.{}", self.prefix, self.numbers.fetch_add(1, Ordering::Relaxed))
    }

    /// Sends a short request. Questions of the server meanwhile are declined.
    pub async fn send_request(&self, method: &str, params: Value) -> Result<Value, ClientError> {
        let id = self.next_request_id();
        let mut exchange = self.begin(&id, method, params, None).await?;
        self.answer_of(&id, &mut exchange).await
    }

    async fn answer_of(
        &self,
        id: &str,
        exchange: &mut RequestExchange,
    ) -> Result<Value, ClientError> {
        loop {
            let ExchangeItem { message, .. } = exchange.next().await?;
            match message {
                Some(ServerMessage::Answer { id: of, outcome }) if of == id => {
                    return outcome.map_err(ClientError::Rpc);
                }
                Some(ServerMessage::Request { id, method, .. }) => {
                    self.decline(&id, &method).await?
                }
                _ => {}
            }
        }
    }

    /// Sends a request. The exchange receives everything that belongs to it.
    pub(crate) async fn begin(
        &self,
        id: &str,
        method: &str,
        params: Value,
        schema: Option<&Value>,
    ) -> Result<RequestExchange, ClientError> {
        let params = self.add_request_meta(id, params);
        let extra = self.extra(method, &params, schema);
        let body = rpc_messages::request(id, method, params);
        Ok(self.open(id, method, &body, extra).await?.0)
    }

    async fn open(
        &self,
        id: &str,
        method: &str,
        body: &Value,
        extra: RequestHeaders,
    ) -> Result<(RequestExchange, Option<String>), ClientError> {
        let subscription = self.router.subscribe(id).map_err(|error| match error {
            // The connection was already closed: this request was not sent.
            ClientError::Cut(why) => ClientError::Unreachable(why),
            other => other,
        })?;
        match &self.link {
            ServerTransport::OlderSse(link) => {
                link.send(body).await.map_err(|error| self.explain_not_found(error))?;
                Ok((RequestExchange::shared(subscription), None))
            }
            ServerTransport::Stdio(link) => {
                // An earlier protocol error says more than that the program has ended.
                let sent = link.send(body).await;
                sent.map_err(|error| self.router.closed_reason().unwrap_or(error))?;
                Ok((RequestExchange::shared(subscription), None))
            }
            ServerTransport::Http(link) => {
                let posted =
                    link.post(body, &extra).await.map_err(|error| self.explain_not_found(error))?;
                let PostOutcome { reply, session } = posted;
                let exchange = match reply {
                    HttpReply::Events(events) => RequestExchange::streamed(subscription, events),
                    HttpReply::Document(document) => {
                        RequestExchange::from_document(subscription, document)
                    }
                    HttpReply::Accepted => {
                        let said = format!("{method} was accepted but not answered");
                        return Err(ClientError::Garbled(said));
                    }
                };
                Ok((exchange, session))
            }
        }
    }

    /// Resumes a call's stream after `cursor`.
    pub(crate) async fn reopen(
        &self,
        id: &str,
        cursor: &str,
    ) -> Result<RequestExchange, ClientError> {
        let subscription = self.router.subscribe(id)?;
        match &self.link {
            ServerTransport::Http(link) => {
                let extra = self.extra("", &Value::Null, None);
                let events = link.listen(&extra, Some(cursor)).await;
                Ok(RequestExchange::streamed(
                    subscription,
                    events.map_err(|error| self.explain_not_found(error))?,
                ))
            }
            ServerTransport::OlderSse(_) | ServerTransport::Stdio(_) => {
                Err(ClientError::SessionGone)
            }
        }
    }

    pub(crate) async fn notify(&self, method: &str, params: Value) -> Result<(), ClientError> {
        self.post(method, rpc_messages::notice(method, params)).await
    }

    pub(crate) async fn answer(
        &self,
        id: &Value,
        outcome: Result<Value, (i64, String)>,
    ) -> Result<(), ClientError> {
        self.post("", rpc_messages::answer(id, outcome)).await
    }

    async fn post(&self, method: &str, body: Value) -> Result<(), ClientError> {
        match &self.link {
            ServerTransport::OlderSse(link) => {
                link.send(&body).await.map_err(|error| self.explain_not_found(error))
            }
            ServerTransport::Stdio(link) => link.send(&body).await,
            ServerTransport::Http(link) => {
                let extra = self.extra(method, &Value::Null, None);
                let posted = link.post(&body, &extra).await;
                posted.map(drop).map_err(|error| self.explain_not_found(error))
            }
        }
    }

    /// Answers a request of the server that is not supported.
    pub(crate) async fn decline(&self, id: &Value, method: &str) -> Result<(), ClientError> {
        if method == "ping" {
            return self.answer(id, Ok(json!({}))).await;
        }
        let refusal = format!("{} is not offered", sanitize_line(method));
        self.answer(id, Err((METHOD_NOT_FOUND, refusal))).await
    }

    pub(crate) async fn fail(&self, id: &Value, why: &str) -> Result<(), ClientError> {
        self.answer(id, Err((INTERNAL_ERROR, why.to_owned()))).await
    }

    /// Closes the connection. A session that a call still needs must not be ended.
    pub async fn close(&self, end_session: bool) {
        match &self.link {
            ServerTransport::Stdio(link) => link.close().await,
            ServerTransport::Http(link) if end_session && self.session().is_some() => {
                let extra = self.extra("", &Value::Null, None);
                let ending = link.delete(&extra);
                let _ = tokio::time::timeout(Duration::from_secs(2), ending).await;
            }
            ServerTransport::Http(_) | ServerTransport::OlderSse(_) => {}
        }
    }

    /// Adds the request's metadata: its progress token and, in the newer era, the client's
    /// identity.
    fn add_request_meta(&self, id: &str, mut params: Value) -> Value {
        let Some(fields) = params.as_object_mut() else { return params };
        let meta = fields.entry("_meta").or_insert_with(|| json!({}));
        let Some(meta) = meta.as_object_mut() else { return params };
        meta.insert("progressToken".to_owned(), progress_token(id));
        if self.era == ServerEra::Modern {
            meta.insert(own("protocolVersion"), json!(MODERN));
            meta.insert(own("clientInfo"), self.client_info());
            meta.insert(own("clientCapabilities"), self.capabilities());
            meta.insert(own("logLevel"), json!("info"));
        }
        params
    }

    fn extra(&self, method: &str, params: &Value, schema: Option<&Value>) -> RequestHeaders {
        let mut extra = match &self.era {
            ServerEra::Modern if !method.is_empty() => {
                mcp_headers::request_headers(method, params, schema)
            }
            _ => Vec::new(),
        };
        extra.push(("MCP-Protocol-Version".to_owned(), self.protocol().to_owned()));
        if let Some(session) = self.session() {
            extra.push(("Mcp-Session-Id".to_owned(), session.to_owned()));
        }
        extra
    }

    fn client_info(&self) -> Value {
        json!({ "name": self.introduction.name, "version": self.introduction.version })
    }

    fn capabilities(&self) -> Value {
        let mut capabilities = Map::new();
        if self.introduction.elicitation {
            let kinds = json!({ "form": { "applyDefaults": true }, "url": {} });
            capabilities.insert("elicitation".to_owned(), kinds);
        }
        if self.introduction.sampling {
            capabilities.insert("sampling".to_owned(), json!({}));
        }
        if self.era == ServerEra::Modern {
            capabilities.insert("extensions".to_owned(), json!({ TASKS: {} }));
        }
        Value::Object(capabilities)
    }

    /// Maps "not found" to a missing server if there is no session.
    fn explain_not_found(&self, error: ClientError) -> ClientError {
        match error {
            ClientError::SessionGone if self.session().is_none() => {
                let said = "there is no MCP server at this address".to_owned();
                ClientError::Refused { status: 404, said }
            }
            other => other,
        }
    }
}

fn own(name: &str) -> String {
    format!("io.modelcontextprotocol/{name}")
}
