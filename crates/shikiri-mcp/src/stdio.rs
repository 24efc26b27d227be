//! MCP over stdin and stdout: one client, whose process started ours, in either era.

use std::sync::Arc;

use serde_json::Value;
use shikiri_app::AppError;
use shikiri_app::connections::NewConnection;
use shikiri_model::connection::{ClientInfo, Connection, LogLevel};
use shikiri_model::ids::TenantId;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Mutex, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::call::Call;
use crate::client::{self, Caller, Era, MODERN};
use crate::fault::Fault;
use crate::listen::Listen;
use crate::message::{self, Incoming, Request};
use crate::server::{Answered, Mcp, initialized};

const MAX_LINE: usize = 4 * 1024 * 1024;
const META: &str = "io.modelcontextprotocol/";

/// Serves until the input ends.
pub async fn serve_stdio(
    mcp: Arc<Mcp>,
    instance: impl Fn(&str) -> String + Send + Sync + 'static,
    input: impl AsyncBufRead + Unpin + Send,
    output: impl AsyncWrite + Unpin + Send + 'static,
) -> Result<(), AppError> {
    let (out, lines) = mpsc::channel(64);
    let writer = tokio::spawn(write(lines, output));
    let peer = Arc::new(Peer {
        mcp,
        instance: Box::new(instance),
        out,
        connection: Mutex::default(),
        daily: Mutex::default(),
        open: std::sync::Mutex::default(),
    });
    let tasks = TaskTracker::new();
    let over = CancellationToken::new();
    let mut input = input;
    loop {
        let mut line = Vec::new();
        let mut bounded = tokio::io::AsyncReadExt::take(&mut input, MAX_LINE as u64 + 1);
        match bounded.read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => break,
            Ok(_) if line.len() > MAX_LINE => {
                let fault = Fault::request("a message is over 4 MiB");
                peer.send(message::reply(&Value::Null, &Err(fault))).await;
                break;
            }
            Ok(_) => {}
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        match message::parse(&line) {
            Ok(incoming) => {
                let peer = Arc::clone(&peer);
                let over = over.clone();
                // Opening the connection comes before whatever follows it.
                if is_handshake(&incoming) {
                    peer.take(incoming, over).await;
                } else {
                    tasks.spawn(async move { peer.take(incoming, over).await });
                }
            }
            Err(bad) => peer.send(message::reply(&bad.id, &Err(bad.fault))).await,
        }
    }
    over.cancel();
    tasks.close();
    tasks.wait().await;
    if let Some(connection) = peer.connection.lock().await.take() {
        peer.mcp.app.close_connection(&connection).await?;
    }
    drop(peer);
    // It ends with the last sender.
    let _ = writer.await;
    Ok(())
}

async fn write(mut lines: mpsc::Receiver<String>, mut output: impl AsyncWrite + Unpin) {
    while let Some(mut line) = lines.recv().await {
        line.push('\n');
        if output.write_all(line.as_bytes()).await.is_err() || output.flush().await.is_err() {
            // Nobody reads any more.
            return;
        }
    }
}

fn is_handshake(incoming: &Incoming) -> bool {
    matches!(incoming, Incoming::Request(request) if request.method == "initialize")
}

struct Peer {
    mcp: Arc<Mcp>,
    /// The client's name to the instance's.
    instance: Box<dyn Fn(&str) -> String + Send + Sync>,
    out: mpsc::Sender<String>,
    /// Of the older era, once it was opened.
    connection: Mutex<Option<Arc<Connection>>>,
    /// Of the newer.
    daily: Mutex<Option<Arc<Connection>>>,
    /// Requests that are being answered, to be given up by name.
    open: std::sync::Mutex<Vec<(Value, CancellationToken)>>,
}

impl Peer {
    async fn send(&self, line: String) {
        let _ = self.out.send(line).await;
    }

    async fn take(&self, incoming: Incoming, over: CancellationToken) {
        match incoming {
            Incoming::Request(request) => {
                let given_up = over.child_token();
                self.open().push((request.id.clone(), given_up.clone()));
                if let Err(fault) = self.answer(&request, &given_up).await {
                    self.send(message::reply(&request.id, &Err(fault))).await;
                }
                self.open().retain(|(id, _)| *id != request.id);
            }
            Incoming::Notification { method, params } => {
                if method == "notifications/cancelled"
                    && let Some(id) = params.get("requestId")
                {
                    self.give_up(id).await;
                }
            }
            Incoming::Response { id, outcome } => {
                let connection = self.connection.lock().await.clone();
                if let Some(connection) = connection
                    && let Err(fault) = self.mcp.take_answer(&connection, &id, &outcome).await
                {
                    tracing::debug!(fault.message, "an answer was not taken");
                }
            }
        }
    }

    fn open(&self) -> std::sync::MutexGuard<'_, Vec<(Value, CancellationToken)>> {
        self.open.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The request gets no answer any more. In the older era its run is stopped too; in the newer
    /// that needs to be asked for.
    async fn give_up(&self, id: &Value) {
        let found = self.open().iter().find(|(open, _)| open == id).map(|(_, t)| t.clone());
        if let Some(token) = found {
            token.cancel();
        }
        let connection = self.connection.lock().await.clone();
        if let Some(connection) = connection
            && let Err(error) = self.mcp.cancel_call(&connection, id).await
        {
            tracing::warn!(%error, "a call was not cancelled");
        }
    }

    async fn answer(&self, request: &Request, given_up: &CancellationToken) -> Result<(), Fault> {
        if request.method == "initialize" {
            let wanted = request.text("protocolVersion")?;
            let protocol = self.connect(request, wanted).await?;
            self.send(message::reply(&request.id, &Ok(initialized(&protocol)))).await;
            return Ok(());
        }
        let caller = self.caller(request).await?;
        match self.mcp.answer(&caller, request).await {
            Answered::Now(outcome) => self.send(message::reply(&request.id, &outcome)).await,
            Answered::Logged { text, .. } => self.send(text).await,
            Answered::Follow(call) => self.follow(*call, given_up).await,
            Answered::Listen(listen) => self.listen(*listen, given_up).await,
        }
        Ok(())
    }

    async fn follow(&self, mut call: Call, given_up: &CancellationToken) {
        while let Some(Some(messages)) = given_up.run_until_cancelled(call.next()).await {
            for message in messages {
                self.send(message.text).await;
            }
        }
    }

    async fn listen(&self, mut listen: Listen, given_up: &CancellationToken) {
        while let Some(told) = given_up.run_until_cancelled(listen.next()).await {
            self.send(told).await;
        }
        self.send(listen.end()).await;
    }

    async fn connect(&self, request: &Request, wanted: &str) -> Result<String, Fault> {
        let (protocol, client, capabilities) = client::introduced(request, wanted)?;
        let new = self.new_connection(protocol.clone(), client, capabilities);
        let opened = self.mcp.app.open_connection(new).await?;
        let before = self.connection.lock().await.replace(Arc::new(opened));
        if let Some(before) = before {
            self.mcp.app.close_connection(&before).await?;
        }
        Ok(protocol)
    }

    fn new_connection(
        &self,
        protocol: String,
        client: ClientInfo,
        capabilities: Value,
    ) -> NewConnection {
        NewConnection {
            tenant: TenantId::local(),
            principal: "stdio".to_owned(),
            protocol,
            client,
            capabilities,
        }
    }

    async fn caller(&self, request: &Request) -> Result<Caller, Fault> {
        let meta = |name: &str| request.meta_value(&format!("{META}{name}"));
        let version = meta("protocolVersion").and_then(Value::as_str);
        if version.is_none() && request.method != "server/discover" {
            return self.connected().await;
        }
        let missing = |name: &str| Fault::params(format!("_meta.{META}{name}: is missing"));
        let version = version.ok_or_else(|| missing("protocolVersion"))?;
        if version != MODERN {
            let mut supported = vec![MODERN];
            supported.extend(client::LEGACY);
            return Err(Fault::version(version, &supported));
        }
        let capabilities = meta("clientCapabilities").filter(|value| value.is_object());
        let capabilities = capabilities.ok_or_else(|| missing("clientCapabilities"))?;
        let client = client::client_info(meta("clientInfo")).unwrap_or_default();
        let log_level: Option<LogLevel> =
            meta("logLevel").and_then(|level| serde_json::from_value(level.clone()).ok());
        Ok(Caller {
            connection: self.daily().await?,
            era: Era::Modern,
            capabilities: Arc::new(capabilities.clone()),
            log_level,
            instance: (self.instance)(&client.name),
        })
    }

    /// In the older era; its level and subscriptions may have changed since.
    async fn connected(&self) -> Result<Caller, Fault> {
        let known = self.connection.lock().await.clone();
        let known = known.ok_or_else(|| Fault::request("send initialize first"))?;
        let app = &self.mcp.app;
        let found = app.connection(&known.tenant, &known.id, &known.principal).await?;
        let connection = found.ok_or_else(|| Fault::request("send initialize again"))?;
        let instance = (self.instance)(&connection.client.name);
        Ok(Caller::connected(Arc::new(connection), instance))
    }

    async fn daily(&self) -> Result<Arc<Connection>, Fault> {
        let mut daily = self.daily.lock().await;
        if let Some(known) = &*daily {
            return Ok(Arc::clone(known));
        }
        let new = self.new_connection(MODERN.to_owned(), ClientInfo::default(), Value::Null);
        let made = Arc::new(self.mcp.app.daily_connection(new).await?);
        *daily = Some(Arc::clone(&made));
        Ok(made)
    }
}
