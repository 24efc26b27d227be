//! The smallest MCP servers that Claude Code can use, for the tests of its runner.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Json, Router};
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};

use crate::kept::Kept;

const PATIENCE: Duration = Duration::from_secs(60);

/// Over stdio, as a shell script: one tool, `ping`, that answers `pong`.
pub(super) const STDIO: &str = r#"
while read -r line; do
  id=$(printf %s "$line" | sed -n 's/.*"id":\("[^"]*"\|[0-9]*\).*/\1/p')
  case $line in
    *'"method":"initialize"'*) reply='"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"sh","version":"0"}}' ;;
    *'"method":"tools/list"'*) reply='"result":{"tools":[{"name":"ping","inputSchema":{"type":"object"}}]}' ;;
    *'"method":"tools/call"'*) reply='"result":{"content":[{"type":"text","text":"pong"}]}' ;;
    *) reply='"error":{"code":-32601,"message":"no such method"}' ;;
  esac
  [ -z "$id" ] || printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$reply"
done
"#;

/// Over HTTP: `echo` returns its text, `ask` asks the user for a colour.
pub(super) struct McpServer {
    pub(super) url: String,
    seen: Arc<Kept<(HeaderMap, Value)>>,
}

impl McpServer {
    pub(super) async fn start() -> Self {
        let seen = Arc::new(Kept::new());
        let router = Router::new().route("/mcp", post(serve)).with_state(Arc::clone(&seen));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        // It ends with the test's runtime.
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, seen }
    }

    /// The first message of this method, and the headers with which it came.
    pub(super) fn message(&self, method: &str) -> (HeaderMap, Value) {
        let seen = self.seen.all();
        let found = seen.iter().find(|(_, message)| message["method"] == method).cloned();
        found.unwrap_or_else(|| panic!("no {method} in {seen:#?}"))
    }
}

async fn serve(
    State(seen): State<Arc<Kept<(HeaderMap, Value)>>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let message: Value = serde_json::from_slice(&body).unwrap();
    seen.push((headers, message.clone()));
    if message.get("id").is_none() || message.get("method").is_none() {
        return StatusCode::ACCEPTED.into_response();
    }
    let done = |result: Value| json!({ "jsonrpc": "2.0", "id": message["id"], "result": result });
    match message["method"].as_str().unwrap() {
        "initialize" => Json(done(json!({
            "protocolVersion": "2025-11-25",
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "test", "version": "0" },
        })))
        .into_response(),
        "tools/list" => {
            let tool = |name: &str| json!({ "name": name, "inputSchema": { "type": "object" } });
            Json(done(json!({ "tools": [tool("echo"), tool("ask")] }))).into_response()
        }
        "tools/call" if message["params"]["name"] == "ask" => ask(seen, message["id"].clone()),
        "tools/call" => {
            let text = message["params"]["arguments"]["text"].as_str().unwrap_or_default();
            Json(done(text_result(&format!("echo: {text}")))).into_response()
        }
        _ => {
            let error = json!({ "code": -32601, "message": "no such method" });
            Json(json!({ "jsonrpc": "2.0", "id": message["id"], "error": error })).into_response()
        }
    }
}

fn text_result(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}

/// A stream: first the question, then, once the answer was posted, the result with that answer.
fn ask(seen: Arc<Kept<(HeaderMap, Value)>>, call: Value) -> Response {
    let colour = json!({ "type": "object", "properties": { "colour": { "type": "string" } } });
    let question = json!({
        "jsonrpc": "2.0",
        "id": "q1",
        "method": "elicitation/create",
        "params": { "message": "Which colour?", "requestedSchema": colour },
    });
    let result = stream::once(async move {
        let answered = seen.find(PATIENCE, |messages| {
            let answer = messages.iter().find(|(_, message)| message["id"] == "q1")?;
            Some(answer.1["result"].to_string())
        });
        let text = answered.await.unwrap_or_else(|| "no answer".to_owned());
        json!({ "jsonrpc": "2.0", "id": call, "result": text_result(&text) })
    });
    let messages = stream::iter([question]).chain(result);
    let frames = messages.map(|message| Ok::<_, Infallible>(format!("data: {message}\n\n")));
    let kind = [(header::CONTENT_TYPE, "text/event-stream")];
    (kind, Body::from_stream(frames)).into_response()
}
