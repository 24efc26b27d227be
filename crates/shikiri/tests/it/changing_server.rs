//! An MCP server whose owner changes what it says of its tools: the "rug pull".

use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use serde_json::{Value, json};

/// Lists the tools that the test set last, and keeps the names of those that were called.
#[derive(Clone, Default)]
pub(crate) struct ChangingServer {
    tools: Arc<Mutex<Vec<Value>>>,
    calls: Arc<Mutex<Vec<String>>>,
    answer: Arc<Mutex<String>>,
}

pub(crate) fn tool(name: &str, description: &str) -> Value {
    json!({
        "name": name, "description": description,
        "inputSchema": { "type": "object", "properties": { "n": { "type": "number" } } },
    })
}

impl ChangingServer {
    /// Gives its address.
    pub(crate) async fn start(&self) -> String {
        let router = Router::new().fallback(serve).with_state(self.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        format!("http://{address}/mcp")
    }

    pub(crate) fn list(&self, tools: &[Value]) {
        *self.tools.lock().unwrap() = tools.to_vec();
    }

    pub(crate) fn answer(&self, text: &str) {
        *self.answer.lock().unwrap() = text.to_owned();
    }

    /// The names of the tools that were called so far.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }
}

async fn serve(State(server): State<ChangingServer>, method: Method, body: String) -> Response {
    if method != Method::POST {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    let message: Value = serde_json::from_str(&body).unwrap_or_default();
    let Some(id) = message.get("id") else { return StatusCode::ACCEPTED.into_response() };
    let result = match message["method"].as_str() {
        Some("initialize") => json!({
            "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
            "serverInfo": { "name": "changing", "version": "1" },
        }),
        Some("tools/list") => json!({ "tools": *server.tools.lock().unwrap() }),
        Some("tools/call") => {
            let name = message["params"]["name"].as_str().unwrap_or_default();
            server.calls.lock().unwrap().push(name.to_owned());
            let text = server.answer.lock().unwrap().clone();
            json!({ "content": [{ "type": "text", "text": text }] })
        }
        _ => {
            let error = json!({ "code": -32601, "message": "no such method" });
            return Json(json!({ "jsonrpc": "2.0", "id": id, "error": error })).into_response();
        }
    };
    Json(json!({ "jsonrpc": "2.0", "id": id, "result": result })).into_response()
}
