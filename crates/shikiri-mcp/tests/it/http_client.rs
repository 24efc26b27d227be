//! Requests to the HTTP routes, without a socket.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::world::World;

pub(crate) struct HttpAnswer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

/// An event of a stream, with the message in it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SseEvent {
    pub(crate) id: Option<String>,
    pub(crate) message: Option<Value>,
}

impl HttpAnswer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("no JSON: {:?}", self.text))
    }

    pub(crate) fn events(&self) -> Vec<SseEvent> {
        assert_eq!(self.headers["content-type"], "text/event-stream", "{}", self.text);
        let blocks = self.text.split("\n\n").map(parse_event);
        blocks.filter(|event| event.id.is_some() || event.message.is_some()).collect()
    }

    /// The message that answers the request.
    pub(crate) fn reply(&self) -> Value {
        if self.headers["content-type"] == "application/json" {
            return self.json();
        }
        let mut messages = self.events().into_iter().filter_map(|event| event.message);
        messages.next_back().unwrap_or_else(|| panic!("no message: {}", self.text))
    }
}

fn parse_event(block: &str) -> SseEvent {
    let field = |name: &str| {
        let lines = block.lines();
        lines.filter_map(|line| line.strip_prefix(name)).map(str::trim).next()
    };
    let data = field("data:").filter(|data| !data.is_empty());
    SseEvent {
        id: field("id:").map(str::to_owned),
        message: data.map(|data| serde_json::from_str(data).unwrap()),
    }
}

impl World {
    pub(crate) async fn http(
        &self,
        method: &str,
        token: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> HttpAnswer {
        let mut request = Request::builder().method(method).uri("/mcp");
        request = request.header("authorization", format!("Bearer {token}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let body = to_bytes(response.into_body(), usize::MAX);
        let body = tokio::time::timeout(Duration::from_secs(30), body).await;
        let body = body.unwrap_or_else(|_| panic!("the body does not end")).unwrap();
        HttpAnswer { status, headers, text: String::from_utf8(body.to_vec()).unwrap() }
    }

    /// A message of the older era, with the session's id if there is one.
    pub(crate) async fn post(&self, token: &str, session: &str, message: &str) -> HttpAnswer {
        let mut headers = vec![("content-type", "application/json")];
        if !session.is_empty() {
            headers.push(("mcp-session-id", session));
        }
        self.http("POST", token, &headers, message).await
    }

    /// `initialize` with these client capabilities; gives the session's id.
    pub(crate) async fn open_session(&self, token: &str) -> String {
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": { "name": "http", "version": "1" },
        });
        let hello = request(0, "initialize", params);
        let answer = self.post(token, "", &hello).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
        answer.headers["mcp-session-id"].to_str().unwrap().to_owned()
    }

    /// A request of the newer era. `version` is what both header and body say.
    pub(crate) async fn post_modern(
        &self,
        version: &str,
        method: &str,
        params: Value,
    ) -> HttpAnswer {
        let name = params["name"].as_str().unwrap_or_default().to_owned();
        let params = crate::stdio_client::modern(params, version);
        let mut headers = vec![
            ("content-type", "application/json"),
            ("mcp-protocol-version", version),
            ("mcp-method", method),
        ];
        if !name.is_empty() {
            headers.push(("mcp-name", &name));
        }
        self.http("POST", &self.key, &headers, &request(1, method, params)).await
    }
}

pub(crate) fn request(id: i64, method: &str, params: Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()
}
