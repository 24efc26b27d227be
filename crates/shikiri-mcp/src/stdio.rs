//! MCP over stdin and stdout: one client, whose process started ours, in either era.

use std::sync::Arc;

use rmcp::model::JsonObject;
use serde_json::Value;
use shikiri_model::connection::McpConnection;
use shikiri_model::ids::TenantId;
use shikiri_model::lane::CallerIdentity;
use shikiri_runtime::AppError;
use shikiri_tenancy::connections::NewConnection;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Mutex, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::mcp_caller::{self, McpCaller, ProtocolEra};
use crate::message::{self, ClientMessage, RpcRequest};
use crate::notification_stream::NotificationStream;
use crate::request_meta::{self, protocol_version};
use crate::request_receipts::RequestReceipts;
use crate::rpc_error::RpcError;
use crate::run_follower::RunFollower;
use crate::server::{McpService, RequestAnswer, initialized};
use crate::subscriptions_listen::ListenSubscription;

const MAX_LINE: usize = 4 * 1024 * 1024;
/// A client that can start this process may do what the process may.
const PRINCIPAL: &str = "stdio";

/// Serves until the input ends.
pub async fn serve_stdio(
    mcp: Arc<McpService>,
    identity: impl Fn(&str) -> CallerIdentity + Send + Sync + 'static,
    input: impl AsyncBufRead + Unpin + Send,
    output: impl AsyncWrite + Unpin + Send + 'static,
) -> Result<(), AppError> {
    let (out, lines) = mpsc::channel(64);
    let writer = tokio::spawn(write(lines, output));
    let peer = Arc::new(StdioPeer {
        mcp,
        identity: Box::new(identity),
        out,
        connection: Mutex::default(),
        open: std::sync::Mutex::default(),
        input_ended: CancellationToken::new(),
    });
    let tasks = TaskTracker::new();
    let mut input = input;
    loop {
        let mut line = Vec::new();
        let mut bounded = tokio::io::AsyncReadExt::take(&mut input, MAX_LINE as u64 + 1);
        match bounded.read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => break,
            Ok(_) if line.len() > MAX_LINE => {
                let fault = RpcError::request("a message is over 4 MiB");
                peer.send(message::reply(&Value::Null, &Err(fault))).await;
                break;
            }
            Ok(_) => {}
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        match message::parse(&line) {
            Ok(ClientMessage::Request(request)) => {
                let cancel_token = peer.register(&request);
                let is_handshake = request.method == "initialize";
                let taker = Arc::clone(&peer);
                let take = async move { taker.take_request(&request, &cancel_token).await };
                // The connection is opened before the next line is read.
                if is_handshake { take.await } else { drop(tasks.spawn(take)) }
            }
            Ok(ClientMessage::Notification { method, params }) => {
                let peer = Arc::clone(&peer);
                tasks.spawn(async move { peer.take_notification(&method, &params).await });
            }
            Ok(ClientMessage::Response { id, outcome }) => {
                let peer = Arc::clone(&peer);
                tasks.spawn(async move { peer.take_answer(&id, &outcome).await });
            }
            Err(bad) => peer.send(message::reply(&bad.id, &Err(bad.fault))).await,
        }
    }
    peer.input_ended.cancel();
    tasks.close();
    tasks.wait().await;
    if let Some(connection) = peer.connection.lock().await.take() {
        peer.mcp.app.tenancy.close_connection(&connection).await?;
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
            // The client has closed its end.
            return;
        }
    }
}

/// Runs until the connection or its client ends.
async fn forward_notifications(mut notices: NotificationStream, out: mpsc::WeakSender<String>) {
    while let Some(batch) = notices.next().await {
        for notice in batch {
            let Some(out) = out.upgrade() else { return };
            let _ = out.send(notice.text).await;
        }
    }
}

struct StdioPeer {
    mcp: Arc<McpService>,
    /// The caller that this process serves, by the client's name.
    identity: Box<dyn Fn(&str) -> CallerIdentity + Send + Sync>,
    out: mpsc::Sender<String>,
    /// The connection of the older era, once `initialize` opened it.
    connection: Mutex<Option<Arc<McpConnection>>>,
    /// Requests that are being answered, by id, with what cancels them.
    open: std::sync::Mutex<Vec<(Value, CancellationToken)>>,
    /// Cancelled when the input has ended.
    input_ended: CancellationToken,
}

impl StdioPeer {
    async fn send(&self, line: String) {
        let _ = self.out.send(line).await;
    }

    /// Called before the next line is read: that line may cancel this request.
    fn register(&self, request: &RpcRequest) -> CancellationToken {
        let cancel_token = self.input_ended.child_token();
        self.open().push((request.id.clone(), cancel_token.clone()));
        cancel_token
    }

    async fn take_request(&self, request: &RpcRequest, cancel_token: &CancellationToken) {
        if let Err(fault) = self.answer(request, cancel_token).await {
            self.send(message::reply(&request.id, &Err(fault))).await;
        }
        self.open().retain(|(id, _)| *id != request.id);
        // It may have been cancelled before there was a run to stop.
        if cancel_token.is_cancelled() && !self.input_ended.is_cancelled() {
            self.stop_run_of(&request.id).await;
        }
    }

    async fn take_notification(&self, method: &str, params: &JsonObject) {
        if method == "notifications/cancelled"
            && let Some(id) = params.get("requestId")
        {
            self.cancel_request(id).await;
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

    /// The request gets no answer any more, and its run is stopped. In the newer era its follower
    /// does that.
    async fn cancel_request(&self, id: &Value) {
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

    async fn answer(
        &self,
        request: &RpcRequest,
        cancel_token: &CancellationToken,
    ) -> Result<(), RpcError> {
        if request.method == "initialize" {
            let wanted = request.text("protocolVersion")?;
            let protocol = self.connect(request, wanted).await?;
            self.send(message::reply(&request.id, &Ok(initialized(&protocol)))).await;
            return Ok(());
        }
        let caller = self.caller(request, cancel_token).await?;
        match self.mcp.answer(&caller, request).await {
            RequestAnswer::Now(outcome) => {
                self.give(&caller, message::reply(&request.id, &outcome)).await;
            }
            RequestAnswer::Logged { text, .. } => self.give(&caller, text).await,
            RequestAnswer::Follow(call) => self.follow(*call, cancel_token).await,
            RequestAnswer::Listen(listen) => self.listen(*listen, cancel_token).await,
        }
        Ok(())
    }

    /// Confirms what an answer shows, unless its request was cancelled meanwhile. The end of the
    /// input cancels nothing: answers to earlier requests are still read.
    async fn give(&self, caller: &McpCaller, line: String) {
        let is_cancelled = caller.cancel_token.is_cancelled() && !self.input_ended.is_cancelled();
        if self.out.send(line).await.is_ok() && !is_cancelled {
            caller.receipts.confirm().await;
        }
    }

    async fn follow(&self, mut call: RunFollower, cancel_token: &CancellationToken) {
        while let Some(Some(messages)) = cancel_token.run_until_cancelled(call.next()).await {
            for message in messages {
                self.send(message.text).await;
            }
        }
        call.caller_left().await;
    }

    async fn listen(&self, mut listen: ListenSubscription, cancel_token: &CancellationToken) {
        while let Some(notice) = cancel_token.run_until_cancelled(listen.next()).await {
            self.send(notice).await;
        }
        self.send(listen.end()).await;
    }

    async fn connect(&self, request: &RpcRequest, wanted: &str) -> Result<String, RpcError> {
        let (protocol, client, capabilities) = mcp_caller::parse_initialize(request, wanted)?;
        let new = NewConnection {
            tenant: TenantId::local(),
            principal: PRINCIPAL.to_owned(),
            protocol: protocol.clone(),
            client,
            capabilities,
        };
        let opened = Arc::new(self.mcp.app.tenancy.open_connection(new).await?);
        let before = self.connection.lock().await.replace(Arc::clone(&opened));
        let notices = NotificationStream::open(&self.mcp, opened, None).await?;
        tokio::spawn(forward_notifications(notices, self.out.downgrade()));
        if let Some(before) = before {
            self.mcp.app.tenancy.close_connection(&before).await?;
        }
        Ok(protocol)
    }

    async fn caller(
        &self,
        request: &RpcRequest,
        cancel_token: &CancellationToken,
    ) -> Result<McpCaller, RpcError> {
        let is_modern = protocol_version(request).is_some() || request.method == "server/discover";
        if !is_modern {
            return self.connected(cancel_token).await;
        }
        let request_meta = request_meta::parse_request_meta(request)?;
        let McpService { app, modern_connections, .. } = &*self.mcp;
        Ok(McpCaller {
            connection: modern_connections.get(app, &TenantId::local(), PRINCIPAL).await?,
            era: ProtocolEra::Modern,
            capabilities: request_meta.capabilities,
            log_level: request_meta.log_level,
            identity: self.identity(&request_meta.client.name),
            session: None,
            tools: self.mcp.options.tools,
            cancel_token: cancel_token.clone(),
            receipts: RequestReceipts::default(),
        })
    }

    /// In the older era; its level and subscriptions may have changed since.
    async fn connected(&self, cancel_token: &CancellationToken) -> Result<McpCaller, RpcError> {
        let known = self.connection.lock().await.clone();
        let known = known.ok_or_else(|| RpcError::request("send initialize first"))?;
        let app = &self.mcp.app;
        let found = app.tenancy.connection(&known.tenant, &known.id, &known.principal).await?;
        let connection = found.ok_or_else(|| RpcError::request("send initialize again"))?;
        let identity = self.identity(&connection.client.name);
        let (tools, token) = (self.mcp.options.tools, cancel_token.clone());
        Ok(McpCaller::on_connection(Arc::new(connection), identity, None, tools, token))
    }

    fn identity(&self, client: &str) -> CallerIdentity {
        CallerIdentity { node: self.mcp.app.runtime.own_node(), ..(self.identity)(client) }
    }
}
