//! An MCP server of the unpleasant sort.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// A server that repeats what it is sent, headers and all, in its refusals.
pub(super) struct Echo {
    pub(super) url: String,
    pub(super) heard: Arc<Mutex<String>>,
    task: tokio::task::JoinHandle<()>,
}

impl Echo {
    pub(super) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let heard = Arc::<Mutex<String>>::default();
        let ear = Arc::clone(&heard);
        let task = tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let mut request = vec![0; 64 * 1024];
                let mut length = 0;
                let id = loop {
                    if let Some(id) = message_id(&request[..length]) {
                        break id;
                    }
                    match socket.read(&mut request[length..]).await {
                        Ok(0) | Err(_) => break Value::Null,
                        Ok(read) => length += read,
                    }
                };
                let said = String::from_utf8_lossy(&request[..length]).into_owned();
                let message = format!("go away, you who sent {}", said.replace("\r\n", " "));
                let error = json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -1, "message": message } });
                let body = error.to_string();
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
                     Connection: close\r\n\r\n{body}",
                    body.len()
                );
                let _ = socket.write_all(answer.as_bytes()).await;
                ear.lock().unwrap().push_str(&said);
            }
        });
        Self { url, heard, task }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The id of the message in a request, once that is whole.
fn message_id(request: &[u8]) -> Option<Value> {
    let (_, body) = std::str::from_utf8(request).ok()?.split_once("\r\n\r\n")?;
    Some(serde_json::from_str::<Value>(body).ok()?["id"].clone())
}
