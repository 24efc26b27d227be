//! The player's way to its tools: a small MCP client over HTTP.

use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::{Method, Response, StatusCode, body::Incoming};
use serde_json::{Value, json};

use crate::client::{Client, EventStream};

pub(super) struct Door {
    client: Client,
    connection: String,
    last_id: u64,
}

/// Why a tool gave nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    /// The tool said no.
    #[error("{code}: {message}")]
    Refused { code: String, message: String },
    /// The server did not answer as it should.
    #[error("{0}")]
    Broken(String),
}

/// A server that is busy or just coming up may refuse a connection.
const MAX_TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(200);

impl Door {
    pub(super) async fn open(url: &str, token: String) -> Result<Self, Trouble> {
        let place = url.strip_prefix("http://").and_then(|rest| rest.strip_suffix("/mcp"));
        let address = place.and_then(|place| place.parse().ok());
        let address = address.ok_or_else(|| Trouble::Broken(format!("{url:?} is no door")))?;
        let mut door =
            Self { client: Client::new(address, token), connection: String::new(), last_id: 0 };
        let hello = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": { "name": "shikiri-player", "version": env!("CARGO_PKG_VERSION") },
        });
        let hello = door.message("initialize", &hello);
        let answer = door.post(&hello).await?;
        let connection = answer.headers().get("mcp-session-id").and_then(|id| id.to_str().ok());
        let Some(connection) = connection.map(str::to_owned) else {
            return Err(Trouble::Broken(format!("the door is shut: {}", answer.status())));
        };
        result(answer).await?;
        door.connection = connection;
        door.post(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await?;
        Ok(door)
    }

    /// Nobody comes back to this connection.
    pub(super) async fn close(&self) {
        let connection = [("mcp-session-id", self.connection.as_str())];
        // It would end by itself, only later.
        let _ = self.client.exchange(Method::DELETE, "/mcp", &connection, None).await;
    }

    pub(super) async fn has_tool(&mut self, name: &str) -> Result<bool, Trouble> {
        let list = self.message("tools/list", &json!({}));
        let list = result(self.post(&list).await?).await?;
        let tools = list["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
        Ok(tools.iter().any(|tool| tool["name"] == name))
    }

    /// Calls a tool; its structured answer.
    pub(super) async fn call(&mut self, tool: &str, arguments: &Value) -> Result<Value, Trouble> {
        let call = self.message("tools/call", &json!({ "name": tool, "arguments": arguments }));
        let answer = result(self.post(&call).await?).await?;
        let content = &answer["structuredContent"];
        if answer["isError"] != json!(true) {
            return Ok(content.clone());
        }
        let text = |field: &str| content["error"][field].as_str().unwrap_or_default().to_owned();
        match text("code") {
            code if code.is_empty() => Err(Trouble::Broken(answer["content"].to_string())),
            code => Err(Trouble::Refused { code, message: text("message") }),
        }
    }

    fn message(&mut self, method: &str, params: &Value) -> Value {
        self.last_id += 1;
        json!({ "jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params })
    }

    /// A message is sent again only if it has not reached anybody.
    async fn post(&self, message: &Value) -> Result<Response<Incoming>, Trouble> {
        let accept = ("accept", "application/json, text/event-stream");
        let connection = ("mcp-session-id", self.connection.as_str());
        let headers =
            if self.connection.is_empty() { vec![accept] } else { vec![accept, connection] };
        let mut tries = 1;
        loop {
            match self.client.exchange(Method::POST, "/mcp", &headers, Some(message)).await {
                Ok(answer) => return Ok(answer),
                Err(error)
                    if error.kind() == std::io::ErrorKind::ConnectionRefused
                        && tries < MAX_TRIES =>
                {
                    tries += 1;
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => return Err(Trouble::Broken(error.to_string())),
            }
        }
    }
}

/// The result of a request, whether it comes alone or at the end of a stream.
async fn result(answer: Response<Incoming>) -> Result<Value, Trouble> {
    let broken = |what: String| Trouble::Broken(what);
    let status = answer.status();
    let kind = answer.headers().get("content-type").and_then(|kind| kind.to_str().ok());
    let message = if kind.is_some_and(|kind| kind.starts_with("text/event-stream")) {
        last_of(EventStream::new(answer.into_body())).await?
    } else {
        let body = answer.into_body().collect().await.map_err(|e| broken(e.to_string()))?;
        serde_json::from_slice(&body.to_bytes()).unwrap_or_default()
    };
    match message.get("result") {
        Some(result) if status == StatusCode::OK => Ok(result.clone()),
        _ => Err(broken(format!("{status}: {}", message["error"]["message"]))),
    }
}

async fn last_of(mut stream: EventStream) -> Result<Value, Trouble> {
    loop {
        let frame = stream.next().await.map_err(|error| Trouble::Broken(error.to_string()))?;
        let Some(frame) = frame else {
            return Err(Trouble::Broken("the stream ended without an answer".to_owned()));
        };
        let message: Value = serde_json::from_str(&frame.data).unwrap_or_default();
        if message.get("result").is_some() || message.get("error").is_some() {
            return Ok(message);
        }
    }
}
