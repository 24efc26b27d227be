//! A server that we are connected to: the era it speaks, and requests to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Map, Value, json};
use shikiri_model::host::{Reach, ServerSpec, clean_line};
use tokio_util::task::AbortOnDropHandle;

use crate::authority::Authority;
use crate::error::ClientError;
use crate::exchange::{Exchange, Heard};
use crate::headers;
use crate::link::http::{Extra, HttpLink, Posted, Reply};
use crate::link::stdio::{Program, StdioLink};
use crate::listener;
use crate::router::{Router, progress_token};
use crate::wire::{self, INTERNAL_ERROR, METHOD_NOT_FOUND, Message};

pub(crate) const MODERN: &str = "2026-07-28";
pub(crate) const LEGACY: &str = "2025-11-25";
/// Older revisions that we still speak.
const KNOWN: [&str; 4] = [LEGACY, "2025-06-18", "2025-03-26", "2024-11-05"];
/// The extension by which calls become tasks.
pub(crate) const TASKS: &str = "io.modelcontextprotocol/tasks";
/// How long a server may take to say who it is.
const HELLO: Duration = Duration::from_secs(10);

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
    /// Reaches the server, and finds out which era it speaks.
    pub async fn connect(
        spec: &ServerSpec,
        introduction: &Introduction,
        prefix: &str,
    ) -> Result<Self, ClientError> {
        let mut server = Self::reach(spec, introduction, prefix)?;
        let wanted = introduction.protocol.as_deref();
        if wanted.is_none_or(|wanted| wanted == MODERN) {
            server.era = Era::Modern;
            match tokio::time::timeout(HELLO, server.discover()).await {
                Ok(Ok(())) => return Ok(server),
                Ok(Err(error)) if wanted.is_some() || is_final(&error) => return Err(error),
                Err(_) if wanted.is_some() => return Err(ClientError::Slow(HELLO.as_secs())),
                // It does not know the newer era, in whichever way it says so.
                Ok(Err(error)) => tracing::debug!(%error, "no answer to server/discover"),
                Err(_) => tracing::debug!("no answer to server/discover in time"),
            }
            if server.router.gone().is_some() {
                // The question itself was too much for its program.
                server = Self::reach(spec, introduction, prefix)?;
            }
        }
        let version = wanted.unwrap_or(LEGACY).to_owned();
        server.era = Era::Legacy { version, session: None };
        let hello = tokio::time::timeout(HELLO, server.initialize());
        hello.await.map_err(|_| ClientError::Slow(HELLO.as_secs()))??;
        server.listen();
        Ok(server)
    }

    /// Takes up a session that another process opened. Nothing is sent yet.
    pub fn rejoin(
        spec: &ServerSpec,
        introduction: &Introduction,
        prefix: &str,
        protocol: &str,
        session: Option<String>,
    ) -> Result<Self, ClientError> {
        let mut server = Self::reach(spec, introduction, prefix)?;
        server.era = match protocol {
            MODERN => Era::Modern,
            version => Era::Legacy { version: version.to_owned(), session },
        };
        server.listen();
        Ok(server)
    }

    fn reach(
        spec: &ServerSpec,
        introduction: &Introduction,
        prefix: &str,
    ) -> Result<Self, ClientError> {
        let router = Arc::new(Router::default());
        let mut listener = None;
        let link = match &spec.reach {
            Reach::Http { url, headers } => {
                let authority = introduction.authority.clone();
                Link::Http(Arc::new(HttpLink::new(url, headers, authority)?))
            }
            Reach::Stdio { command, args, env, cwd } => {
                let program = Program { command, args, env, cwd: cwd.as_deref() };
                let (link, lines) = StdioLink::start(&program)?;
                let link = Arc::new(link);
                let reading = listener::lines(Arc::clone(&link), lines, Arc::clone(&router));
                listener = Some(AbortOnDropHandle::new(tokio::spawn(reading)));
                Link::Stdio(link)
            }
        };
        Ok(Self {
            spec: spec.clone(),
            link,
            era: Era::Modern,
            about: About::default(),
            router,
            introduction: introduction.clone(),
            numbers: AtomicU64::new(1),
            prefix: prefix.to_owned(),
            _listener: listener,
        })
    }

    /// In the older era over HTTP, a server speaks outside of requests on a stream of its own.
    fn listen(&mut self) {
        if let (Link::Http(link), Era::Legacy { .. }) = (&self.link, &self.era) {
            let extra = self.extra("", &Value::Null, None);
            let reading = listener::stream(Arc::clone(link), extra, Arc::clone(&self.router));
            self._listener = Some(AbortOnDropHandle::new(tokio::spawn(reading)));
        }
    }

    async fn discover(&mut self) -> Result<(), ClientError> {
        let said = self.ask("server/discover", json!({})).await?;
        let versions = said.get("supportedVersions").and_then(Value::as_array);
        let knows = |versions: &Vec<Value>| versions.iter().any(|version| version == MODERN);
        if !versions.is_some_and(knows) {
            return Err(ClientError::Garbled(format!("it does not speak {MODERN}")));
        }
        let info = &said["_meta"]["io.modelcontextprotocol/serverInfo"];
        self.about = about(info, &said);
        Ok(())
    }

    async fn initialize(&mut self) -> Result<(), ClientError> {
        let Era::Legacy { version: wanted, .. } = self.era.clone() else { return Ok(()) };
        let params = json!({
            "protocolVersion": wanted,
            "capabilities": self.capabilities(),
            "clientInfo": self.client_info(),
        });
        let id = self.number();
        let body = wire::request(&id, "initialize", params);
        let (mut exchange, session) = self.open(&id, "initialize", &body, Vec::new()).await?;
        let said = self.answer_of(&id, &mut exchange).await?;
        let version = said.get("protocolVersion").and_then(Value::as_str).unwrap_or_default();
        if !KNOWN.contains(&version) {
            let version = clean_line(version);
            return Err(ClientError::Garbled(format!("it speaks {version:?}, which we do not")));
        }
        self.era = Era::Legacy { version: version.to_owned(), session };
        self.about = about(&said["serverInfo"], &said);
        self.notify("notifications/initialized", json!({})).await
    }

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

    /// Whether it knows a call that it has seen before, so that sending it again is no second call.
    pub fn knows_calls(&self) -> bool {
        self.about.capabilities["experimental"].get("shikiri/call").is_some()
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
                link.send(body).await?;
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

/// Whether asking in another way would end the same.
fn is_final(error: &ClientError) -> bool {
    matches!(error, ClientError::Unauthorized(_))
        || matches!(error, ClientError::Unreachable(why) if why.contains("could not be started"))
}

fn about(info: &Value, said: &Value) -> About {
    let text = |value: &Value| clean_line(value.as_str().unwrap_or("?"));
    About {
        name: text(&info["name"]),
        version: text(&info["version"]),
        instructions: said.get("instructions").and_then(Value::as_str).map(str::to_owned),
        capabilities: said.get("capabilities").cloned().unwrap_or(Value::Null),
    }
}
