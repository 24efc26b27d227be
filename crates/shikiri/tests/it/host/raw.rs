//! A server that answers each request as a test says, byte for byte if need be. What the test says
//! nothing about, it does as a decent server of the older era would.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use shikiri_testkit::until;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A request as it came.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// Method and headers, in small letters.
    pub(super) head: String,
    pub(super) body: Value,
}

impl Seen {
    /// The method of the message; that of HTTP, if it brought none.
    pub(super) fn method(&self) -> &str {
        let http = self.head.split(' ').next().unwrap_or_default();
        self.body["method"].as_str().unwrap_or(http)
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let line = self.head.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
        line.map(str::trim)
    }

    /// A message that tells how far the call is.
    pub(super) fn progress(&self, progress: u32) -> Value {
        let params = json!({ "progressToken": self.body["id"], "progress": progress });
        json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params })
    }

    /// The answer to it, with this text.
    pub(super) fn answer(&self, text: &str) -> Value {
        answer(&self.body["id"], text)
    }
}

pub(super) fn answer(id: &Value, text: &str) -> Value {
    let content = json!([{ "type": "text", "text": text }]);
    json!({ "jsonrpc": "2.0", "id": id, "result": { "content": content } })
}

/// A message as an event, with an id by which the stream can be read on.
pub(super) fn event(id: u32, message: &Value) -> String {
    format!("id: {id}\ndata: {message}\n\n")
}

pub(super) enum Says {
    /// As a decent server would.
    Usual,
    Result(Value),
    Document(Value),
    /// A status line, headers and a body.
    Status(&'static str, &'static str, String),
    /// Events, and the end of their stream.
    Events(String),
    /// Events, and then silence.
    Open(String),
    /// The second again and again after the first.
    Endless(String, String),
    Bytes(Vec<u8>),
    Silence,
    HangUp,
}

type Part = Arc<dyn Fn(&Seen) -> Says + Send + Sync>;

pub(super) struct Raw {
    pub(super) url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    serving: JoinHandle<()>,
}

impl Raw {
    pub(super) async fn start(part: impl Fn(&Seen) -> Says + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let (part, seen): (Part, _) = (Arc::new(part), Arc::<Mutex<Vec<Seen>>>::default());
        let book = Arc::clone(&seen);
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A client that goes away in the middle needs no answer.
                let (part, book) = (Arc::clone(&part), Arc::clone(&book));
                tokio::spawn(async move { drop(serve(stream, part, book).await) });
            }
        });
        Self { url, seen, serving }
    }

    /// Every request with this method so far.
    pub(super) fn seen(&self, method: &str) -> Vec<Seen> {
        let seen = self.seen.lock().unwrap();
        seen.iter().filter(|seen| seen.method() == method).cloned().collect()
    }

    /// Waits for a request.
    pub(super) async fn until(&self, method: &str) -> Seen {
        until(method, async || !self.seen(method).is_empty()).await;
        self.seen(method).remove(0)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(
    mut stream: TcpStream,
    part: Part,
    book: Arc<Mutex<Vec<Seen>>>,
) -> std::io::Result<()> {
    let seen = read(&mut stream).await?;
    book.lock().unwrap().push(seen.clone());
    let says = match part(&seen) {
        Says::Usual => usual(&seen),
        other => other,
    };
    match says {
        Says::Usual | Says::HangUp => Ok(()),
        Says::Silence => silence(stream).await,
        Says::Result(result) => {
            let document = json!({ "jsonrpc": "2.0", "id": seen.body["id"], "result": result });
            write(&mut stream, "200 OK", JSON, document.to_string().as_bytes()).await
        }
        Says::Document(document) => {
            write(&mut stream, "200 OK", JSON, document.to_string().as_bytes()).await
        }
        Says::Status(status, headers, body) => {
            write(&mut stream, status, headers, body.as_bytes()).await
        }
        Says::Bytes(bytes) => write(&mut stream, "200 OK", JSON, &bytes).await,
        Says::Events(events) => stream.write_all((STREAM.to_owned() + &events).as_bytes()).await,
        Says::Open(events) => {
            stream.write_all((STREAM.to_owned() + &events).as_bytes()).await?;
            silence(stream).await
        }
        Says::Endless(first, again) => {
            stream.write_all((STREAM.to_owned() + &first).as_bytes()).await?;
            loop {
                stream.write_all(again.as_bytes()).await?;
            }
        }
    }
}

/// Says nothing for as long as a client listens.
async fn silence(mut stream: TcpStream) -> std::io::Result<()> {
    while stream.read(&mut [0; 64]).await? > 0 {}
    Ok(())
}

const JSON: &str = "content-type: application/json\r\n";
const STREAM: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";

fn usual(seen: &Seen) -> Says {
    let tool = json!({ "name": "t", "description": "works", "inputSchema": { "type": "object" } });
    match seen.method() {
        "get" => Says::Status("405 Method Not Allowed", "", String::new()),
        "delete" => Says::Status("200 OK", "", String::new()),
        "initialize" => Says::Result(json!({
            "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
            "serverInfo": { "name": "raw", "version": "1" },
        })),
        "tools/list" => Says::Result(json!({ "tools": [tool] })),
        "tools/call" => Says::Document(seen.answer("done")),
        _ if seen.body["id"].is_null() => Says::Status("202 Accepted", "", String::new()),
        _ => {
            let error = json!({ "code": -32601, "message": "no such method" });
            Says::Document(json!({ "jsonrpc": "2.0", "id": seen.body["id"], "error": error }))
        }
    }
}

async fn read(stream: &mut TcpStream) -> std::io::Result<Seen> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
            let length = length.and_then(|text| text.trim().parse().ok()).unwrap_or(0_usize);
            if bytes.len() >= end + 4 + length {
                let body = serde_json::from_slice(&bytes[end + 4..]).unwrap_or_default();
                return Ok(Seen { head, body });
            }
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
}

async fn write(
    stream: &mut TcpStream,
    status: &str,
    headers: &str,
    body: &[u8],
) -> std::io::Result<()> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body).await
}
