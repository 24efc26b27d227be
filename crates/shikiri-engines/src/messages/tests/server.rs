//! A model API on a loopback port: keeps what arrives and answers what the test says, byte for
//! byte.

use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(super) struct Arrived {
    /// Method and target.
    pub(super) line: String,
    headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Arrived {
    #[track_caller]
    pub(super) fn header(&self, name: &str) -> &str {
        self.maybe(name).unwrap_or_else(|| panic!("no {name} in {:?}", self.headers))
    }

    pub(super) fn maybe(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// What to do with a request.
#[derive(Clone)]
pub(super) enum Reply {
    /// Status line and headers without the length, and the body.
    Whole(&'static str, String),
    /// These bytes, and then nothing for ever.
    Stuck(&'static str),
}

pub(super) struct Server {
    pub(super) base: String,
    arrived: Arc<Mutex<Vec<Arrived>>>,
    task: JoinHandle<()>,
}

impl Server {
    /// Answers the first request with the first reply, and so on; the last one again and again.
    pub(super) async fn start(replies: Vec<Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let arrived = Arc::<Mutex<Vec<Arrived>>>::default();
        let kept = Arc::clone(&arrived);
        let task = tokio::spawn(async move {
            // Held, so that a stuck answer stays open.
            let mut stuck = Vec::new();
            for number in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                let mut stream = BufReader::new(stream);
                let request = read(&mut stream).await;
                kept.lock().unwrap().push(request);
                match replies[number.min(replies.len() - 1)].clone() {
                    Reply::Whole(head, body) => {
                        let length = body.len();
                        let text = format!(
                            "HTTP/1.1 {head}\r\nContent-Length: {length}\r\n\
                             Connection: close\r\n\r\n{body}"
                        );
                        // The client may have closed the connection.
                        let _ = stream.write_all(text.as_bytes()).await;
                    }
                    Reply::Stuck(start) => {
                        stream.write_all(start.as_bytes()).await.unwrap();
                        stuck.push(stream);
                    }
                }
            }
        });
        Self { base, arrived, task }
    }

    pub(super) fn arrived(&self) -> Vec<Arrived> {
        self.arrived.lock().unwrap().clone()
    }

    /// The only request that came.
    #[track_caller]
    pub(super) fn one(&self) -> Arrived {
        let all = self.arrived();
        assert_eq!(all.len(), 1, "{all:?}");
        all[0].clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn read(stream: &mut BufReader<TcpStream>) -> Arrived {
    let mut line = String::new();
    stream.read_line(&mut line).await.unwrap();
    let mut headers = Vec::new();
    loop {
        let mut header = String::new();
        stream.read_line(&mut header).await.unwrap();
        let Some((name, value)) = header.trim_end().split_once(": ") else { break };
        headers.push((name.to_lowercase(), value.to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let mut body = vec![0; length.map_or(0, |(_, value)| value.parse().unwrap())];
    stream.read_exact(&mut body).await.unwrap();
    let line = line.trim_end().trim_end_matches(" HTTP/1.1").to_owned();
    Arrived { line, headers, body }
}
