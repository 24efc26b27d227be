//! Connecting to a server, and detecting the era that it speaks. The newer era is tried first,
//! since that request changes nothing in a server that does not know it.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use serde_json::{Value, json};
use shikiri_model::host::{HostTransport, ServerSpec, sanitize_line, sanitize_text};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::{
    ClientOptions, LEGACY, MODERN, ServerConnection, ServerEra, ServerInfo, ServerTransport,
};
use crate::error::ClientError;
use crate::message_router::MessageRouter;
use crate::transport::http::HttpTransport;
use crate::transport::older_sse::OlderSseTransport;
use crate::transport::stdio::{ServerProgram, StdioTransport};
use crate::{background_reader, rpc_messages};

/// Older revisions that are still supported.
const KNOWN: [&str; 4] = [LEGACY, "2025-06-18", "2025-03-26", OLDEST];
/// The last revision with the older SSE transport.
const OLDEST: &str = "2024-11-05";
/// How long a server may take to identify itself.
const HELLO: Duration = Duration::from_secs(10);
/// The same for a local program, which has to start first.
const STARTING: Duration = Duration::from_secs(30);
/// A program that is silent for this long gets a ping.
const SILENCE: Duration = Duration::from_millis(500);
/// A program that answers the ping, but not the first request within this time, will not answer it.
const GRACE: Duration = Duration::from_secs(1);

impl ServerConnection {
    /// Connects to the server, and detects the era that it speaks.
    pub async fn connect(
        spec: &ServerSpec,
        introduction: &ClientOptions,
        prefix: &str,
    ) -> Result<Self, ClientError> {
        let mut server = Self::reach(spec, introduction, prefix)?;
        if let ServerTransport::OlderSse(link) = &server.link {
            let link = Arc::clone(link);
            return server.connect_older_sse(link).await;
        }
        let wanted = introduction.protocol.as_deref();
        if wanted.is_none_or(|wanted| wanted == MODERN) {
            match server.discover().await {
                Ok(about) => {
                    server.about = about;
                    return Ok(server);
                }
                Err(error) if wanted.is_some() || server.is_final(&error) => return Err(error),
                // Any other error means that it does not know the newer era. The text may repeat
                // secrets that were sent, so it is not logged.
                Err(_) => tracing::debug!("no answer to server/discover"),
            }
            if server.router.closed_reason().is_some() {
                // The program ended because of the unknown request.
                server = Self::reach(spec, introduction, prefix)?;
            }
        }
        let version = wanted.unwrap_or(LEGACY).to_owned();
        server.era = ServerEra::Legacy { version, session: None };
        server.initialize().await?;
        server.listen();
        Ok(server)
    }

    /// Connects over the older SSE transport, which only the older era uses.
    async fn connect_older_sse(
        mut self,
        link: Arc<OlderSseTransport>,
    ) -> Result<Self, ClientError> {
        let version = OLDEST.to_owned();
        self.era = ServerEra::Legacy { version, session: None };
        let events =
            self.within(HELLO, link.open()).await.map_err(|error| self.explain_not_found(error))?;
        let router = Arc::clone(&self.router);
        let reading = background_reader::read_older_stream(link, events, router);
        self._listener = Some(AbortOnDropHandle::new(tokio::spawn(reading)));
        self.initialize().await?;
        Ok(self)
    }

    /// Resumes a session that another process opened. Nothing is sent yet.
    pub fn resume_session(
        spec: &ServerSpec,
        introduction: &ClientOptions,
        prefix: &str,
        protocol: &str,
        session: Option<String>,
    ) -> Result<Self, ClientError> {
        let mut server = Self::reach(spec, introduction, prefix)?;
        server.era = match protocol {
            MODERN => ServerEra::Modern,
            version => ServerEra::Legacy { version: version.to_owned(), session },
        };
        server.listen();
        Ok(server)
    }

    fn reach(
        spec: &ServerSpec,
        introduction: &ClientOptions,
        prefix: &str,
    ) -> Result<Self, ClientError> {
        let router = Arc::new(MessageRouter::default());
        let mut listener = None;
        let link = match &spec.reach {
            HostTransport::Http { url, headers } => {
                let authority = introduction.authority.clone();
                let addresses = &introduction.addresses;
                ServerTransport::Http(Arc::new(HttpTransport::new(
                    url, headers, authority, addresses,
                )?))
            }
            HostTransport::Sse { url, headers } => {
                let authority = introduction.authority.clone();
                let addresses = &introduction.addresses;
                ServerTransport::OlderSse(Arc::new(OlderSseTransport::new(
                    url, headers, authority, addresses,
                )?))
            }
            HostTransport::Stdio { command, args, env, cwd, .. } => {
                let program = ServerProgram { command, args, env, cwd: cwd.as_deref() };
                let (link, lines) = StdioTransport::start(&program)?;
                let link = Arc::new(link);
                let reading = background_reader::read_program_output(
                    Arc::clone(&link),
                    lines,
                    Arc::clone(&router),
                );
                listener = Some(AbortOnDropHandle::new(tokio::spawn(reading)));
                ServerTransport::Stdio(link)
            }
        };
        Ok(Self {
            spec: spec.clone(),
            link,
            era: ServerEra::Modern,
            about: ServerInfo::default(),
            router,
            introduction: introduction.clone(),
            numbers: AtomicU64::new(1),
            prefix: prefix.to_owned(),
            listening: None,
            _listener: listener,
        })
    }

    /// Starts reading the server's own stream, for messages outside of requests in the older era
    /// over HTTP.
    fn listen(&mut self) {
        if let (ServerTransport::Http(link), ServerEra::Legacy { .. }) = (&self.link, &self.era) {
            let extra = self.extra("", &Value::Null, None);
            let (opened, listening) = watch::channel(false);
            let reading = background_reader::read_server_stream(
                Arc::clone(link),
                extra,
                Arc::clone(&self.router),
                opened,
            );
            self.listening = Some(listening);
            self._listener = Some(AbortOnDropHandle::new(tokio::spawn(reading)));
        }
    }

    /// The server's identity, in the newer era.
    async fn discover(&self) -> Result<ServerInfo, ClientError> {
        let mut said = self.probe().await;
        if matches!(&said, Err(error) if offers_modern(error)) {
            // It refused the revision but lists it as supported: try once more.
            said = self.probe().await;
        }
        let said = said?;
        let versions = said.get("supportedVersions").and_then(Value::as_array);
        let knows = |versions: &Vec<Value>| versions.iter().any(|version| version == MODERN);
        if !versions.is_some_and(knows) {
            return Err(ClientError::Garbled(format!("it does not speak {MODERN}")));
        }
        Ok(about(&said["_meta"]["io.modelcontextprotocol/serverInfo"], &said))
    }

    /// Sends `server/discover`. A silent program may be starting, or may not answer unknown
    /// requests: a ping, which every server knows, tells which.
    async fn probe(&self) -> Result<Value, ClientError> {
        let asking = self.send_request("server/discover", json!({}));
        let ServerTransport::Stdio(_) = self.link else { return self.within(HELLO, asking).await };
        let unresponsive = async {
            tokio::time::sleep(SILENCE).await;
            let _ = self.send_request("ping", json!({})).await;
            tokio::time::sleep(GRACE).await;
        };
        tokio::select! {
            biased;
            said = self.within(STARTING, asking) => said,
            () = unresponsive => Err(ClientError::Slow(GRACE.as_secs())),
        }
    }

    async fn initialize(&mut self) -> Result<(), ClientError> {
        let ServerEra::Legacy { version: wanted, .. } = self.era.clone() else { return Ok(()) };
        let params = json!({
            "protocolVersion": wanted,
            "capabilities": self.capabilities(),
            "clientInfo": self.client_info(),
        });
        let id = self.next_request_id();
        let body = rpc_messages::request(&id, "initialize", params);
        let is_program = matches!(self.link, ServerTransport::Stdio(_));
        let limit = if is_program { STARTING } else { HELLO };
        let asking = async {
            let (mut exchange, session) = self.open(&id, "initialize", &body, Vec::new()).await?;
            Ok((self.answer_of(&id, &mut exchange).await?, session))
        };
        let (said, session) = self.within(limit, asking).await?;
        let version = said.get("protocolVersion").and_then(Value::as_str).unwrap_or_default();
        if !KNOWN.contains(&version) {
            let version = sanitize_line(version);
            return Err(ClientError::Garbled(format!("it speaks {version:?}, which we do not")));
        }
        self.era = ServerEra::Legacy { version: version.to_owned(), session };
        self.about = about(&said["serverInfo"], &said);
        self.within(HELLO, self.notify("notifications/initialized", json!({}))).await
    }

    /// Applies a time limit, which does not count the time of a login by the user.
    async fn within<T>(
        &self,
        limit: Duration,
        work: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        let mut work = std::pin::pin!(work);
        loop {
            if let Ok(done) = tokio::time::timeout(limit, &mut work).await {
                return done;
            }
            let authority = self.introduction.authority.as_ref();
            if !authority.is_some_and(|authority| authority.is_awaiting_login()) {
                return Err(ClientError::Slow(limit.as_secs()));
            }
        }
    }

    /// Whether a connection in the older era would fail with the same error.
    fn is_final(&self, error: &ClientError) -> bool {
        match error {
            ClientError::Unauthorized(_) => true,
            // A program may have ended because of the request.
            ClientError::Unreachable(_) => matches!(self.link, ServerTransport::Http(_)),
            _ => false,
        }
    }
}

/// Whether an error lists the newer era as supported.
fn offers_modern(error: &ClientError) -> bool {
    let ClientError::Rpc(error) = error else { return false };
    let supported = error.data["supported"].as_array();
    error.code == rpc_messages::UNSUPPORTED_VERSION
        && supported.is_some_and(|versions| versions.iter().any(|version| version == MODERN))
}

fn about(info: &Value, said: &Value) -> ServerInfo {
    let text = |value: &Value| sanitize_line(value.as_str().unwrap_or("?"));
    ServerInfo {
        name: text(&info["name"]),
        version: text(&info["version"]),
        instructions: said.get("instructions").and_then(Value::as_str).map(sanitize_text),
        capabilities: said.get("capabilities").cloned().unwrap_or(Value::Null),
    }
}
