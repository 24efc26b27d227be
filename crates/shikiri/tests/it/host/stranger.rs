//! A server that no host should trust: it says whatever a test has it say, when the test says so.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

/// For what must come; a machine that builds at the same time is slow.
const PATIENCE: Duration = Duration::from_secs(120);

/// It ends when dropped.
pub(super) struct Stranger {
    pub(super) url: String,
    calls: mpsc::Receiver<Call>,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

struct Shared {
    tools: Value,
    calls: mpsc::Sender<Call>,
    answers: Mutex<HashMap<u64, oneshot::Sender<Value>>>,
    numbers: AtomicU64,
    cancelled: watch::Sender<u32>,
    /// Whether it lets a client wait that takes its call back.
    is_deaf: bool,
}

/// A call of a tool, which goes on until the test ends it.
pub(super) struct Call {
    pub(super) tool: String,
    pub(super) arguments: Value,
    id: Value,
    token: Value,
    out: mpsc::Sender<Value>,
    shared: Arc<Shared>,
}

impl Stranger {
    pub(super) async fn start(tools: Value) -> Self {
        Self::new(tools, false).await
    }

    /// One that does not react when a call is taken back.
    pub(super) async fn deaf(tools: Value) -> Self {
        Self::new(tools, true).await
    }

    async fn new(tools: Value, is_deaf: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let (tell, calls) = mpsc::channel(16);
        let shared = Arc::new(Shared {
            tools,
            calls: tell,
            answers: Mutex::default(),
            numbers: AtomicU64::new(1),
            cancelled: watch::Sender::new(0),
            is_deaf,
        });
        let serving = Arc::clone(&shared);
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = Arc::clone(&serving);
                // A client that goes away in the middle is no fault of the server.
                tokio::spawn(async move { drop(serve(stream, shared).await) });
            }
        });
        Self { url, calls, shared, server }
    }

    /// The next call that is made.
    pub(super) async fn called(&mut self) -> Call {
        let called = tokio::time::timeout(PATIENCE, self.calls.recv()).await;
        called.expect("no call came").unwrap()
    }

    /// Waits until so many calls were taken back.
    pub(super) async fn cancelled(&self, count: u32) {
        let mut cancelled = self.shared.cancelled.subscribe();
        let cancelled = tokio::time::timeout(PATIENCE, cancelled.wait_for(|known| *known >= count));
        let _ = cancelled.await.expect("no call was taken back").unwrap();
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Call {
    async fn tell(&self, message: Value) {
        // A client that does not listen any more is told nothing.
        let _ = self.out.send(message).await;
    }

    async fn notify(&self, method: &str, params: Value) {
        self.tell(json!({ "jsonrpc": "2.0", "method": method, "params": params })).await;
    }

    pub(super) async fn progress(&self, progress: f64, total: Option<f64>, message: &str) {
        let params = json!({
            "progressToken": self.token, "progress": progress, "total": total, "message": message,
        });
        self.notify("notifications/progress", params).await;
    }

    pub(super) async fn log(&self, level: &str, data: Value) {
        self.notify("notifications/message", json!({ "level": level, "data": data })).await;
    }

    /// Asks the client something, and waits for its whole answer.
    pub(super) async fn ask(&self, method: &str, params: Value) -> Value {
        let id = self.shared.numbers.fetch_add(1, Ordering::Relaxed);
        let (tell, answer) = oneshot::channel();
        self.shared.answers.lock().unwrap().insert(id, tell);
        self.tell(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
        answer.await.unwrap()
    }

    pub(super) async fn elicit(&self, message: &str, properties: Value) -> Value {
        let schema = json!({ "type": "object", "properties": properties });
        let params = json!({ "message": message, "requestedSchema": schema });
        self.ask("elicitation/create", params).await["result"].clone()
    }

    pub(super) async fn end(self, text: &str) {
        let result = json!({ "content": [{ "type": "text", "text": text }] });
        self.tell(json!({ "jsonrpc": "2.0", "id": self.id, "result": result })).await;
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let (method, body) = read(&mut stream).await?;
    if method != "POST" {
        return respond(&mut stream, "405 Method Not Allowed", None).await;
    }
    let id = body["id"].clone();
    let result = |result: Value| json!({ "jsonrpc": "2.0", "id": id, "result": result });
    let answer = match body["method"].as_str() {
        Some("initialize") => result(json!({
            "protocolVersion": "2025-11-25", "capabilities": { "tools": {}, "logging": {} },
            "serverInfo": { "name": "stranger", "version": "1" },
        })),
        Some("tools/list") => result(json!({ "tools": shared.tools })),
        Some("tools/call") => return stream_call(stream, body, shared).await,
        Some("notifications/cancelled") => {
            shared.cancelled.send_modify(|count| *count += 1);
            if shared.is_deaf {
                // Until the client hangs up.
                stream.read_u8().await?;
            }
            return respond(&mut stream, "202 Accepted", None).await;
        }
        Some(_) if id.is_null() => return respond(&mut stream, "202 Accepted", None).await,
        Some(_) => {
            json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32601, "message": "no" } })
        }
        None => {
            let asked = id.as_u64().and_then(|id| shared.answers.lock().unwrap().remove(&id));
            asked.map(|asked| asked.send(body));
            return respond(&mut stream, "202 Accepted", None).await;
        }
    };
    respond(&mut stream, "200 OK", Some(&answer)).await
}

async fn stream_call(
    mut stream: BufReader<TcpStream>,
    body: Value,
    shared: Arc<Shared>,
) -> std::io::Result<()> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).await?;
    stream.flush().await?;
    let (out, mut messages) = mpsc::channel(16);
    let params = &body["params"];
    let call = Call {
        tool: params["name"].as_str().unwrap_or_default().to_owned(),
        arguments: params["arguments"].clone(),
        id: body["id"].clone(),
        token: params["_meta"]["progressToken"].clone(),
        out,
        shared: Arc::clone(&shared),
    };
    let _ = shared.calls.send(call).await;
    while let Some(message) = messages.recv().await {
        stream.write_all(format!("data: {message}\n\n").as_bytes()).await?;
        stream.flush().await?;
    }
    Ok(())
}

async fn read(stream: &mut BufReader<TcpStream>) -> std::io::Result<(String, Value)> {
    let mut first = String::new();
    stream.read_line(&mut first).await?;
    let mut length = 0;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        if line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    let method = first.split(' ').next().unwrap_or_default().to_owned();
    Ok((method, serde_json::from_slice(&body).unwrap_or_default()))
}

async fn respond(
    stream: &mut BufReader<TcpStream>,
    status: &str,
    body: Option<&Value>,
) -> std::io::Result<()> {
    let body = body.map(Value::to_string).unwrap_or_default();
    let kind = if body.is_empty() { "" } else { "content-type: application/json\r\n" };
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\n{kind}content-length: {length}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.flush().await
}
