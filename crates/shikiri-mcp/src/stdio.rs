//! MCP over stdin and stdout: one client, whose process started ours, in either era.

use std::sync::Arc;

use rmcp::model::JsonObject;
use serde_json::Value;
use shikiri_app::AppError;
use shikiri_app::connections::NewConnection;
use shikiri_model::connection::Connection;
use shikiri_model::ids::TenantId;
use shikiri_model::lane::Identity;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Mutex, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::call::Call;
use crate::client::{self, Caller, Era};
use crate::fault::Fault;
use crate::listen::Listen;
use crate::message::{self, Incoming, Request};
use crate::notices::Notices;
use crate::receipts::Receipts;
use crate::server::{Answered, Mcp, initialized};
use crate::stated::{self, protocol_version};

const MAX_LINE: usize = 4 * 1024 * 1024;
/// Whoever can start our process may do what it does.
const PRINCIPAL: &str = "stdio";

/// Serves until the input ends.
pub async fn serve_stdio(
    mcp: Arc<Mcp>,
    identity: impl Fn(&str) -> Identity + Send + Sync + 'static,
    input: impl AsyncBufRead + Unpin + Send,
    output: impl AsyncWrite + Unpin + Send + 'static,
) -> Result<(), AppError> {
    let (out, lines) = mpsc::channel(64);
    let writer = tokio::spawn(write(lines, output));
    let peer = Arc::new(Peer {
        mcp,
        identity: Box::new(identity),
        out,
        connection: Mutex::default(),
        open: std::sync::Mutex::default(),
        over: CancellationToken::new(),
    });
    let tasks = TaskTracker::new();
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
            Ok(Incoming::Request(request)) => {
                let given_up = peer.expect(&request);
                let is_handshake = request.method == "initialize";
                let taker = Arc::clone(&peer);
                let take = async move { taker.take_request(&request, &given_up).await };
                // Opening the connection comes before whatever follows it.
                if is_handshake { take.await } else { drop(tasks.spawn(take)) }
            }
            Ok(Incoming::Notification { method, params }) => {
                let peer = Arc::clone(&peer);
                tasks.spawn(async move { peer.take_notification(&method, &params).await });
            }
            Ok(Incoming::Response { id, outcome }) => {
                let peer = Arc::clone(&peer);
                tasks.spawn(async move { peer.take_answer(&id, &outcome).await });
            }
            Err(bad) => peer.send(message::reply(&bad.id, &Err(bad.fault))).await,
        }
    }
    peer.over.cancel();
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

/// Until the connection ends, or nobody is left to tell.
async fn tell(mut notices: Notices, out: mpsc::WeakSender<String>) {
    while let Some(told) = notices.next().await {
        for notice in told {
            let Some(out) = out.upgrade() else { return };
            let _ = out.send(notice.text).await;
        }
    }
}

struct Peer {
    mcp: Arc<Mcp>,
    /// Who this process serves, by the client's name.
    identity: Box<dyn Fn(&str) -> Identity + Send + Sync>,
    out: mpsc::Sender<String>,
    /// Of the older era, once it was opened.
    connection: Mutex<Option<Arc<Connection>>>,
    /// Requests that are being answered, to be given up by name.
    open: std::sync::Mutex<Vec<(Value, CancellationToken)>>,
    /// Cancelled when the input has ended.
    over: CancellationToken,
}

impl Peer {
    async fn send(&self, line: String) {
        let _ = self.out.send(line).await;
    }

    /// Before the next line is read, which may give this request up.
    fn expect(&self, request: &Request) -> CancellationToken {
        let given_up = self.over.child_token();
        self.open().push((request.id.clone(), given_up.clone()));
        given_up
    }

    async fn take_request(&self, request: &Request, given_up: &CancellationToken) {
        if let Err(fault) = self.answer(request, given_up).await {
            self.send(message::reply(&request.id, &Err(fault))).await;
        }
        self.open().retain(|(id, _)| *id != request.id);
        // It may have been given up before there was a run to stop.
        if given_up.is_cancelled() && !self.over.is_cancelled() {
            self.stop_run_of(&request.id).await;
        }
    }

    async fn take_notification(&self, method: &str, params: &JsonObject) {
        if method == "notifications/cancelled"
            && let Some(id) = params.get("requestId")
        {
            self.give_up(id).await;
        }
    }

    async fn take_answer(&self, id: &Value, outcome: &Result<Value, Value>) {
        let connection = self.connection.lock().await.clone();
        if let Some(connection) = connection
            && let Err(fault) = self.mcp.take_answer(&connection, id, outcome).await
        {
            tracing::debug!(fault.message, "an answer was not taken");
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
        self.stop_run_of(id).await;
    }

    async fn stop_run_of(&self, id: &Value) {
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
        let caller = self.caller(request, given_up).await?;
        match self.mcp.answer(&caller, request).await {
            Answered::Now(outcome) => {
                self.give(&caller, message::reply(&request.id, &outcome)).await;
            }
            Answered::Logged { text, .. } => self.give(&caller, text).await,
            Answered::Follow(call) => self.follow(*call, given_up).await,
            Answered::Listen(listen) => self.listen(*listen, given_up).await,
        }
        Ok(())
    }

    /// What an answer shows has come, unless its request was given up meanwhile. The end of the
    /// input gives nothing up: what was asked before is still read.
    async fn give(&self, caller: &Caller, line: String) {
        let is_given_up = caller.given_up.is_cancelled() && !self.over.is_cancelled();
        if self.out.send(line).await.is_ok() && !is_given_up {
            caller.receipts.confirm().await;
        }
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
        let new = NewConnection {
            tenant: TenantId::local(),
            principal: PRINCIPAL.to_owned(),
            protocol: protocol.clone(),
            client,
            capabilities,
        };
        let opened = Arc::new(self.mcp.app.open_connection(new).await?);
        let before = self.connection.lock().await.replace(Arc::clone(&opened));
        let notices = Notices::open(&self.mcp, opened, None).await?;
        tokio::spawn(tell(notices, self.out.downgrade()));
        if let Some(before) = before {
            self.mcp.app.close_connection(&before).await?;
        }
        Ok(protocol)
    }

    async fn caller(
        &self,
        request: &Request,
        given_up: &CancellationToken,
    ) -> Result<Caller, Fault> {
        let is_modern = protocol_version(request).is_some() || request.method == "server/discover";
        if !is_modern {
            return self.connected(given_up).await;
        }
        let stated = stated::stated(request)?;
        let Mcp { app, daily, .. } = &*self.mcp;
        Ok(Caller {
            connection: daily.get(app, &TenantId::local(), PRINCIPAL).await?,
            era: Era::Modern,
            capabilities: stated.capabilities,
            log_level: stated.log_level,
            identity: self.identity(&stated.client.name),
            session: None,
            given_up: given_up.clone(),
            receipts: Receipts::default(),
        })
    }

    /// In the older era; its level and subscriptions may have changed since.
    async fn connected(&self, given_up: &CancellationToken) -> Result<Caller, Fault> {
        let known = self.connection.lock().await.clone();
        let known = known.ok_or_else(|| Fault::request("send initialize first"))?;
        let app = &self.mcp.app;
        let found = app.connection(&known.tenant, &known.id, &known.principal).await?;
        let connection = found.ok_or_else(|| Fault::request("send initialize again"))?;
        let identity = self.identity(&connection.client.name);
        Ok(Caller::connected(Arc::new(connection), identity, None, given_up.clone()))
    }

    fn identity(&self, client: &str) -> Identity {
        Identity { node: self.mcp.app.own_node(), ..(self.identity)(client) }
    }
}
