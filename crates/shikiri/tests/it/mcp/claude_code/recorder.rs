//! A plain TCP proxy between a client and the server that keeps what each of them sent.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// How long a server may take to start again.
const RESTART: Duration = Duration::from_secs(30);

/// It ends when dropped, and the connections through it with it.
pub(super) struct Recorder {
    port: u16,
    conversations: Arc<Mutex<Vec<Conversation>>>,
    proxy: JoinHandle<()>,
}

/// What went over one connection.
#[derive(Clone, Default)]
struct Conversation {
    asked: Arc<Mutex<Vec<u8>>>,
    answered: Arc<Mutex<Vec<u8>>>,
}

/// A request of the client.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    head: String,
    /// Null if it had no body.
    pub(super) body: Value,
}

impl Recorder {
    /// In front of the server on this port of loopback, which may be down at times.
    pub(super) async fn start(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let conversations = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&conversations);
        let proxy = tokio::spawn(async move {
            let mut open = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let conversation = Conversation::default();
                lock(&kept).push(conversation.clone());
                open.spawn(pass(client, server, conversation));
            }
        });
        Self { port, conversations, proxy }
    }

    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }

    /// The client's requests, connection by connection.
    pub(super) fn asked(&self) -> Vec<Asked> {
        let conversations = lock(&self.conversations).clone();
        conversations.iter().flat_map(|c| requests(&lock(&c.asked))).collect()
    }

    /// The server's messages, connection by connection.
    pub(super) fn told(&self) -> Vec<Value> {
        let conversations = lock(&self.conversations).clone();
        conversations.iter().flat_map(|c| messages(&lock(&c.answered))).collect()
    }

    /// Everything, to be shown when a test fails.
    pub(super) fn transcript(&self) -> String {
        let conversations = lock(&self.conversations).clone();
        let shown = conversations.iter().enumerate().map(|(n, c)| {
            let text = |bytes: &Mutex<Vec<u8>>| String::from_utf8_lossy(&lock(bytes)).into_owned();
            format!(
                "--- {n} asked:\n{}\n--- {n} answered:\n{}\n",
                text(&c.asked),
                text(&c.answered)
            )
        });
        shown.collect()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.proxy.abort();
        if std::thread::panicking() {
            eprintln!("{}", self.transcript());
        }
    }
}

impl Asked {
    pub(super) fn method(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let fields = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        let found = fields.into_iter().find(|(field, _)| field.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value)
    }
}

/// A server that does not listen is waited for: clients try twice, and a busy machine may take
/// longer than that to start it again.
async fn pass(client: TcpStream, server: u16, conversation: Conversation) {
    let begun = Instant::now();
    let server = loop {
        match TcpStream::connect(("127.0.0.1", server)).await {
            Ok(server) => break server,
            Err(_) if begun.elapsed() > RESTART => return,
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    let ((from_client, to_client), (from_server, to_server)) =
        (client.into_split(), server.into_split());
    tokio::join!(
        copy(from_client, to_server, &conversation.asked),
        copy(from_server, to_client, &conversation.answered),
    );
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    kept: &Mutex<Vec<u8>>,
) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        lock(kept).extend(&buffer[..length]);
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
    let _ = to.shutdown().await;
}

fn requests(mut bytes: &[u8]) -> Vec<Asked> {
    let mut found = Vec::new();
    while let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let mut asked = Asked { head, body: Value::Null };
        let length = asked.header("content-length").map_or(0, |length| length.parse().unwrap());
        let Some(body) = bytes.get(end + 4..end + 4 + length) else { break };
        if !body.is_empty() {
            asked.body = serde_json::from_slice(body).unwrap();
        }
        found.push(asked);
        bytes = &bytes[end + 4 + length..];
    }
    found
}

/// JSON stands at the beginning of a line, alone or as an event's data, and has no line ends.
fn messages(bytes: &[u8]) -> Vec<Value> {
    let lines = bytes.split(|byte| *byte == b'\n');
    let lines = lines.map(|line| line.strip_prefix(b"data: ").unwrap_or(line));
    let values = lines.filter(|line| line.starts_with(b"{"));
    values
        .filter_map(|line| serde_json::Deserializer::from_slice(line).into_iter().next()?.ok())
        .collect()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
