//! Reaching a server, and finding out which era it speaks: the newer one is tried first, since
//! asking for it changes nothing in a server that does not know it.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use serde_json::{Value, json};
use shikiri_model::host::{Reach, ServerSpec, clean, clean_line};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::{About, Era, Introduction, LEGACY, Link, MODERN, Server};
use crate::error::ClientError;
use crate::link::http::HttpLink;
use crate::link::stdio::{Program, StdioLink};
use crate::listener;
use crate::router::Router;
use crate::wire;

/// Older revisions that we still speak.
const KNOWN: [&str; 4] = [LEGACY, "2025-06-18", "2025-03-26", "2024-11-05"];
/// How long a server may take to say who it is.
const HELLO: Duration = Duration::from_secs(10);
/// The same for a program of ours, which has to start first.
const STARTING: Duration = Duration::from_secs(30);
/// A program that says nothing for so long is asked whether it lives.
const SILENCE: Duration = Duration::from_millis(500);
/// One that lives and does not answer the first question after so long will not.
const GRACE: Duration = Duration::from_secs(1);

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
            match server.discover().await {
                Ok(about) => {
                    server.about = about;
                    return Ok(server);
                }
                Err(error) if wanted.is_some() || server.is_final(&error) => return Err(error),
                // It does not know the newer era, in whichever way it says so.
                Err(error) => tracing::debug!(%error, "no answer to server/discover"),
            }
            if server.router.gone().is_some() {
                // The question itself was too much for its program.
                server = Self::reach(spec, introduction, prefix)?;
            }
        }
        let version = wanted.unwrap_or(LEGACY).to_owned();
        server.era = Era::Legacy { version, session: None };
        server.initialize().await?;
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
                let addresses = &introduction.addresses;
                Link::Http(Arc::new(HttpLink::new(url, headers, authority, addresses)?))
            }
            Reach::Stdio { command, args, env, cwd, .. } => {
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
            listening: None,
            _listener: listener,
        })
    }

    /// In the older era over HTTP, a server speaks outside of requests on a stream of its own.
    fn listen(&mut self) {
        if let (Link::Http(link), Era::Legacy { .. }) = (&self.link, &self.era) {
            let extra = self.extra("", &Value::Null, None);
            let (tell, listening) = watch::channel(false);
            let reading = listener::stream(Arc::clone(link), extra, Arc::clone(&self.router), tell);
            self.listening = Some(listening);
            self._listener = Some(AbortOnDropHandle::new(tokio::spawn(reading)));
        }
    }

    /// Who it is, in the newer era.
    async fn discover(&self) -> Result<About, ClientError> {
        let mut said = self.probe().await;
        if matches!(&said, Err(error) if offers_modern(error)) {
            // It refused the revision and names that very one: it changed its mind.
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

    /// Asks who it is. A program that is silent may be about to start, or leave unknown questions
    /// unanswered: it is asked one that all know.
    async fn probe(&self) -> Result<Value, ClientError> {
        let asking = self.ask("server/discover", json!({}));
        let Link::Stdio(_) = self.link else { return self.within(HELLO, asking).await };
        let is_deaf = async {
            tokio::time::sleep(SILENCE).await;
            let _ = self.ask("ping", json!({})).await;
            tokio::time::sleep(GRACE).await;
        };
        tokio::select! {
            biased;
            said = self.within(STARTING, asking) => said,
            () = is_deaf => Err(ClientError::Slow(GRACE.as_secs())),
        }
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
        let limit = if matches!(self.link, Link::Http(_)) { HELLO } else { STARTING };
        let asking = async {
            let (mut exchange, session) = self.open(&id, "initialize", &body, Vec::new()).await?;
            Ok((self.answer_of(&id, &mut exchange).await?, session))
        };
        let (said, session) = self.within(limit, asking).await?;
        let version = said.get("protocolVersion").and_then(Value::as_str).unwrap_or_default();
        if !KNOWN.contains(&version) {
            let version = clean_line(version);
            return Err(ClientError::Garbled(format!("it speaks {version:?}, which we do not")));
        }
        self.era = Era::Legacy { version: version.to_owned(), session };
        self.about = about(&said["serverInfo"], &said);
        self.within(HELLO, self.notify("notifications/initialized", json!({}))).await
    }

    /// Gives it so long, beyond the time in which a person is asked who we are.
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
            if !authority.is_some_and(|authority| authority.is_with_person()) {
                return Err(ClientError::Slow(limit.as_secs()));
            }
        }
    }

    /// Whether asking in another way would end the same.
    fn is_final(&self, error: &ClientError) -> bool {
        match error {
            ClientError::Unauthorized(_) => true,
            // A program that ended may have done so because of the question.
            ClientError::Unreachable(_) => matches!(self.link, Link::Http(_)),
            _ => false,
        }
    }
}

/// Whether an error says that the server speaks the newer era after all.
fn offers_modern(error: &ClientError) -> bool {
    let ClientError::Rpc(error) = error else { return false };
    let supported = error.data["supported"].as_array();
    error.code == wire::UNSUPPORTED_VERSION
        && supported.is_some_and(|versions| versions.iter().any(|version| version == MODERN))
}

fn about(info: &Value, said: &Value) -> About {
    let text = |value: &Value| clean_line(value.as_str().unwrap_or("?"));
    About {
        name: text(&info["name"]),
        version: text(&info["version"]),
        instructions: said.get("instructions").and_then(Value::as_str).map(clean),
        capabilities: said.get("capabilities").cloned().unwrap_or(Value::Null),
    }
}
