//! An MCP server that plays a written part, over HTTP and of the older era.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// What a tool does with a call.
pub(super) enum Does {
    /// Its result.
    Answers(Value),
    /// The connection is closed without a word.
    Dies,
    Hangs,
}

/// The arguments, and which call it is, from 1 on.
type Tool = Arc<dyn Fn(Value, usize) -> BoxFuture<'static, Does> + Send + Sync>;

pub(super) struct Stub {
    address: SocketAddr,
    part: Arc<Part>,
    serving: JoinHandle<()>,
}

struct Part {
    tools: Vec<(String, Tool)>,
    calls: Mutex<Vec<Call>>,
}

#[derive(Clone)]
pub(super) struct Call {
    pub(super) tool: String,
    pub(super) arguments: Value,
    pub(super) at: Instant,
}

/// A tool that needs no time.
pub(super) fn tool(does: impl Fn(Value, usize) -> Does + Send + Sync + 'static) -> Tool {
    Arc::new(move |arguments, number| {
        let does = does(arguments, number);
        Box::pin(async move { does })
    })
}

pub(super) fn says(text: &str) -> Does {
    Does::Answers(json!({ "content": [{ "type": "text", "text": text }] }))
}

pub(super) fn gives(value: Value) -> Does {
    let content = json!([{ "type": "text", "text": value.to_string() }]);
    Does::Answers(json!({ "content": content, "structuredContent": value }))
}

pub(super) fn fails(text: &str) -> Does {
    let content = json!([{ "type": "text", "text": text }]);
    Does::Answers(json!({ "content": content, "isError": true }))
}

impl Stub {
    pub(super) async fn start(tools: Vec<(&str, Tool)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let tools = tools.into_iter().map(|(name, tool)| (name.to_owned(), tool)).collect();
        let part = Arc::new(Part { tools, calls: Mutex::default() });
        let playing = Arc::clone(&part);
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&playing)));
            }
        });
        Self { address, part, serving }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// The calls of a tool so far.
    pub(super) fn calls(&self, tool: &str) -> Vec<Call> {
        let calls = self.part.calls.lock().unwrap();
        calls.iter().filter(|call| call.tool == tool).cloned().collect()
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// One request on one connection.
async fn serve(mut stream: TcpStream, part: Arc<Part>) {
    let Some((method, message)) = read(&mut stream).await else { return };
    if method != "POST" {
        return reply(&mut stream, "405 Method Not Allowed", None).await;
    }
    let Some(id) = message.get("id") else {
        return reply(&mut stream, "202 Accepted", None).await;
    };
    let outcome = match message["method"].as_str().unwrap_or_default() {
        "initialize" => Ok(json!({
            "protocolVersion": "2025-11-25",
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "stub", "version": "1" },
        })),
        "tools/list" => {
            let tools = part.tools.iter().map(|(name, _)| {
                json!({ "name": name, "description": format!("does {name}"),
                        "inputSchema": { "type": "object", "properties": { "x": {} } } })
            });
            Ok(json!({ "tools": tools.collect::<Vec<_>>() }))
        }
        "tools/call" => match call(&part, &message["params"]).await {
            Does::Answers(result) => Ok(result),
            Does::Dies => return,
            Does::Hangs => return std::future::pending().await,
        },
        other => Err(json!({ "code": -32601, "message": format!("no {other}") })),
    };
    let answer = match outcome {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(error) => json!({ "jsonrpc": "2.0", "id": id, "error": error }),
    };
    reply(&mut stream, "200 OK", Some(answer)).await;
}

async fn call(part: &Part, params: &Value) -> Does {
    let name = params["name"].as_str().unwrap_or_default();
    let (_, tool) = part.tools.iter().find(|(known, _)| known == name).expect("a tool it has");
    let number = {
        let mut calls = part.calls.lock().unwrap();
        let arguments = params["arguments"].clone();
        calls.push(Call { tool: name.to_owned(), arguments, at: Instant::now() });
        calls.iter().filter(|call| call.tool == name).count()
    };
    tool(params["arguments"].clone(), number).await
}

async fn read(stream: &mut TcpStream) -> Option<(String, Value)> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
            let length: usize = length.map_or(0, |text| text.trim().parse().unwrap());
            if bytes.len() >= end + 4 + length {
                let body = serde_json::from_slice(&bytes[end + 4..]).unwrap_or_default();
                let method = head.split(' ').next().unwrap_or_default().to_uppercase();
                return Some((method, body));
            }
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}

async fn reply(stream: &mut TcpStream, status: &str, body: Option<Value>) {
    let body = body.map(|body| body.to_string()).unwrap_or_default();
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n"
    );
    // A client that has gone needs no answer.
    let _ = stream.write_all((head + &body).as_bytes()).await;
}
