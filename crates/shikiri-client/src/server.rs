//! A server that we are connected to: the era it speaks, and requests to it.

mod connect;
#[cfg(test)]
mod connect_tests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Map, Value, json};
use shikiri_model::host::{ServerSpec, clean_line};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::authority::Authority;
use crate::error::ClientError;
use crate::exchange::{Exchange, Heard};
use crate::headers;
use crate::link::http::{Extra, HttpLink, Posted, Reply};
use crate::link::stdio::StdioLink;
use crate::router::{Router, progress_token};
use crate::wire::{self, INTERNAL_ERROR, METHOD_NOT_FOUND, Message};

pub(crate) const MODERN: &str = "2026-07-28";
pub(crate) const LEGACY: &str = "2025-11-25";
/// The extension by which calls become tasks.
pub(crate) const TASKS: &str = "io.modelcontextprotocol/tasks";
/// How long a call waits for the stream on which its server may ask things: one that shows no
/// sign of opening it will hardly use it.
const OPENING: Duration = Duration::from_secs(1);

/// How we present ourselves, and what we can be asked.
#[derive(Clone)]
pub struct Introduction {
    pub name: String,
    pub version: String,
    /// A person can be asked.
    pub elicitation: bool,
    /// A model can be asked.
    pub sampling: bool,
    pub authority: Option<Arc<dyn Authority>>,
    /// Only this revision, instead of the newest that both speak.
    pub protocol: Option<String>,
    /// Where the server's host is, if whoever connects has looked and judged; connections go to just
    /// these, whatever the name points to by then. Otherwise the name is looked up.
    pub addresses: Vec<SocketAddr>,
}

/// What the server says of itself: a stranger's words.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct About {
    pub name: String,
    pub version: String,
    pub instructions: Option<String>,
    pub capabilities: Value,
}

pub struct Server {
    pub(crate) spec: ServerSpec,
    pub(crate) link: Link,
    pub(crate) era: Era,
    pub(crate) about: About,
    pub(crate) router: Arc<Router>,
    introduction: Introduction,
    numbers: AtomicU64,
    /// Tells our ids from those of an earlier process in the same session.
    prefix: String,
    /// Whether the stream of the older era is there, or is known not to come.
    listening: Option<watch::Receiver<bool>>,
    /// Reads what comes outside of any request.
    _listener: Option<AbortOnDropHandle<()>>,
}

pub(crate) enum Link {
    Http(Arc<HttpLink>),
    Stdio(Arc<StdioLink>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    /// A session per connection.
    Legacy { version: String, session: Option<String> },
    /// Every request says everything itself.
    Modern,
}

impl Server {
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    pub fn about(&self) -> &About {
        &self.about
    }

    pub fn protocol(&self) -> &str {
        match &self.era {
            Era::Legacy { version, .. } => version,
            Era::Modern => MODERN,
        }
    }

    pub fn session(&self) -> Option<&str> {
        match &self.era {
            Era::Legacy { session, .. } => session.as_deref(),
            Era::Modern => None,
        }
    }

    /// Whether the line to it is still there, as far as is known.
    pub fn is_alive(&self) -> bool {
        self.router.gone().is_none()
    }

    /// Whether a server that went away may come back: a program of ours does not.
    pub(crate) fn can_return(&self) -> bool {
        matches!(self.link, Link::Http(_))
    }

    /// Whether giving up has to be said.
    pub(crate) fn takes_cancellations(&self) -> bool {
        self.era != Era::Modern || matches!(self.link, Link::Stdio(_))
    }

    pub(crate) fn offers_people(&self) -> bool {
        self.introduction.elicitation
    }

    pub(crate) fn offers_models(&self) -> bool {
        self.introduction.sampling
    }

    /// Waits until the server can ask things outside of requests, if it does that at all.
    pub(crate) async fn listening(&self) {
        let Some(mut listening) = self.listening.clone() else { return };
        // Its end says the same: nothing more is to be waited for.
        let opened = listening.wait_for(|is_open| *is_open);
        let _ = tokio::time::timeout(OPENING, opened).await;
    }

    /// An id for a request that nobody has used in this session.
    pub(crate) fn number(&self) -> String {
        format!("{}.{}", self.prefix, self.numbers.fetch_add(1, Ordering::Relaxed))
    }

    /// A short request. What the server asks meanwhile is not answered.
    pub async fn ask(&self, method: &str, params: Value) -> Result<Value, ClientError> {
        let id = self.number();
        let mut exchange = self.begin(&id, method, params, None).await?;
        self.answer_of(&id, &mut exchange).await
    }

    async fn answer_of(&self, id: &str, exchange: &mut Exchange) -> Result<Value, ClientError> {
        loop {
            let Heard { message, .. } = exchange.next().await?;
            match message {
                Some(Message::Answer { id: of, outcome }) if of == id => {
                    return outcome.map_err(ClientError::Rpc);
                }
                Some(Message::Request { id, method, .. }) => self.decline(&id, &method).await?,
                _ => {}
            }
        }
    }

    /// Sends a request; what comes of it is heard from the exchange.
    pub(crate) async fn begin(
        &self,
        id: &str,
        method: &str,
        params: Value,
        schema: Option<&Value>,
    ) -> Result<Exchange, ClientError> {
        let params = self.dress(id, params);
        let extra = self.extra(method, &params, schema);
        let body = wire::request(id, method, params);
        Ok(self.open(id, method, &body, extra).await?.0)
    }

    async fn open(
        &self,
        id: &str,
        method: &str,
        body: &Value,
        extra: Extra,
    ) -> Result<(Exchange, Option<String>), ClientError> {
        let place = self.router.wait(id)?;
        match &self.link {
            Link::Stdio(link) => {
                // What was wrong with what it said tells more than that it has gone.
                let sent = link.send(body).await;
                sent.map_err(|error| self.router.gone().unwrap_or(error))?;
                Ok((Exchange::shared(place), None))
            }
            Link::Http(link) => {
                let posted = link.post(body, &extra).await.map_err(|error| self.told(error))?;
                let Posted { reply, session } = posted;
                let exchange = match reply {
                    Reply::Events(events) => Exchange::streamed(place, events),
                    Reply::Document(document) => Exchange::answered(place, document),
                    Reply::Accepted => {
                        let said = format!("{method} was accepted but not answered");
                        return Err(ClientError::Garbled(said));
                    }
                };
                Ok((exchange, session))
            }
        }
    }

    /// Reads a call's stream on from where it was.
    pub(crate) async fn reopen(&self, id: &str, cursor: &str) -> Result<Exchange, ClientError> {
        let place = self.router.wait(id)?;
        match &self.link {
            Link::Http(link) => {
                let extra = self.extra("", &Value::Null, None);
                let events = link.listen(&extra, Some(cursor)).await;
                Ok(Exchange::streamed(place, events.map_err(|error| self.told(error))?))
            }
            Link::Stdio(_) => Err(ClientError::SessionGone),
        }
    }

    pub(crate) async fn notify(&self, method: &str, params: Value) -> Result<(), ClientError> {
        self.post(method, wire::notice(method, params)).await
    }

    pub(crate) async fn answer(
        &self,
        id: &Value,
        outcome: Result<Value, (i64, String)>,
    ) -> Result<(), ClientError> {
        self.post("", wire::answer(id, outcome)).await
    }

    async fn post(&self, method: &str, body: Value) -> Result<(), ClientError> {
        match &self.link {
            Link::Stdio(link) => link.send(&body).await,
            Link::Http(link) => {
                let extra = self.extra(method, &Value::Null, None);
                let posted = link.post(&body, &extra).await;
                posted.map(drop).map_err(|error| self.told(error))
            }
        }
    }

    /// Answers a request of the server that nobody here has an answer to.
    pub(crate) async fn decline(&self, id: &Value, method: &str) -> Result<(), ClientError> {
        if method == "ping" {
            return self.answer(id, Ok(json!({}))).await;
        }
        let refusal = format!("{} is not offered", clean_line(method));
        self.answer(id, Err((METHOD_NOT_FOUND, refusal))).await
    }

    pub(crate) async fn fail(&self, id: &Value, why: &str) -> Result<(), ClientError> {
        self.answer(id, Err((INTERNAL_ERROR, why.to_owned()))).await
    }

    /// Leaves. A session that is still of use to a call must not be ended.
    pub async fn close(&self, end_session: bool) {
        match &self.link {
            Link::Stdio(link) => link.close().await,
            Link::Http(link) if end_session && self.session().is_some() => {
                let extra = self.extra("", &Value::Null, None);
                let ending = link.delete(&extra);
                let _ = tokio::time::timeout(Duration::from_secs(2), ending).await;
            }
            Link::Http(_) => {}
        }
    }

    /// What a request says of its sender, in the newer era, and where its progress goes.
    fn dress(&self, id: &str, mut params: Value) -> Value {
        let Some(fields) = params.as_object_mut() else { return params };
        let meta = fields.entry("_meta").or_insert_with(|| json!({}));
        let Some(meta) = meta.as_object_mut() else { return params };
        meta.insert("progressToken".to_owned(), progress_token(id));
        if self.era == Era::Modern {
            meta.insert(own("protocolVersion"), json!(MODERN));
            meta.insert(own("clientInfo"), self.client_info());
            meta.insert(own("clientCapabilities"), self.capabilities());
            meta.insert(own("logLevel"), json!("info"));
        }
        params
    }

    fn extra(&self, method: &str, params: &Value, schema: Option<&Value>) -> Extra {
        let mut extra = match &self.era {
            Era::Modern if !method.is_empty() => headers::of(method, params, schema),
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
        if self.era == Era::Modern {
            capabilities.insert("extensions".to_owned(), json!({ TASKS: {} }));
        }
        Value::Object(capabilities)
    }

    /// "Not found" is about the session only where there is one.
    fn told(&self, error: ClientError) -> ClientError {
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
