//! A client of the protocol's older era: it opens a session and names it in every request.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use super::exchange::Exchange;
use super::{ACCEPT, PATH};
use crate::client::Client;

/// The client's self-description.
#[derive(Clone, Debug)]
pub struct Hello {
    pub protocol: String,
    pub capabilities: Value,
    pub name: String,
}

impl Default for Hello {
    /// The newest revision with sessions. Accepts every request of the server.
    fn default() -> Self {
        Self {
            protocol: "2025-11-25".to_owned(),
            capabilities: json!({ "elicitation": {}, "sampling": {}, "roots": {} }),
            name: "test".to_owned(),
        }
    }
}

/// One session. Clones share it, like the tasks of one host.
#[derive(Clone, Debug)]
pub struct McpClient {
    client: Client,
    session: String,
    protocol: String,
    next_id: Arc<AtomicI64>,
}

impl McpClient {
    /// A session of a client that accepts every request.
    pub async fn connect(client: &Client) -> Self {
        Self::open(client, Hello::default()).await
    }

    /// A session of a client with these capabilities.
    pub async fn with_capabilities(client: &Client, capabilities: Value) -> Self {
        Self::open(client, Hello { capabilities, ..Hello::default() }).await
    }

    pub async fn open(client: &Client, hello: Hello) -> Self {
        let mut opened = Self::initialize(client, &hello).await;
        let result = opened.result().await;
        let session = opened.header("mcp-session-id").expect("a session's id").to_owned();
        let protocol = result["protocolVersion"].as_str().expect("a revision").to_owned();
        let this = Self::resumed(client, &session, &protocol);
        assert_eq!(this.notify("notifications/initialized", json!({})).await.status, 202);
        this
    }

    /// The bare handshake.
    pub async fn initialize(client: &Client, hello: &Hello) -> Exchange {
        let params = json!({
            "protocolVersion": hello.protocol,
            "capabilities": hello.capabilities,
            "clientInfo": { "name": hello.name, "version": "1" },
        });
        let message = message(Some(json!(0)), "initialize", params);
        Exchange::open(client.request(Method::POST, PATH).header("accept", ACCEPT).json(&message))
            .await
    }

    /// A session that was opened before, perhaps at another server.
    pub fn resumed(client: &Client, session: &str, protocol: &str) -> Self {
        Self {
            client: client.clone(),
            session: session.to_owned(),
            protocol: protocol.to_owned(),
            next_id: Arc::new(AtomicI64::new(1)),
        }
    }

    /// The same session at another server, or with another key.
    #[must_use]
    pub fn through(&self, client: &Client) -> Self {
        Self { client: client.clone(), ..self.clone() }
    }

    pub fn session(&self) -> &str {
        &self.session
    }

    pub fn protocol(&self) -> &str {
        &self.protocol
    }

    pub fn next_id(&self) -> i64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// A request with this session's headers, for the caller to complete.
    pub fn http(&self, method: Method) -> RequestBuilder {
        let accept = if method == Method::GET { "text/event-stream" } else { ACCEPT };
        let request = self.client.request(method, PATH);
        request
            .header("accept", accept)
            .header("mcp-session-id", &self.session)
            .header("mcp-protocol-version", &self.protocol)
    }

    /// Posts any body.
    pub async fn post(&self, body: &Value) -> Exchange {
        Exchange::open(self.http(Method::POST).json(body)).await
    }

    /// Sends a request with an id of its own.
    pub async fn request(&self, method: &str, params: Value) -> Exchange {
        self.post(&message(Some(json!(self.next_id())), method, params)).await
    }

    /// The result of a successful request.
    pub async fn result(&self, method: &str, params: Value) -> Value {
        self.request(method, params).await.result().await
    }

    /// Calls a tool, with a progress token.
    pub async fn call(&self, tool: &str, arguments: Value) -> Exchange {
        let id = self.next_id();
        self.call_as(&json!(id), &json!(format!("progress-{id}")), tool, arguments).await
    }

    /// The same with a given id and token.
    pub async fn call_as(
        &self,
        id: &Value,
        token: &Value,
        tool: &str,
        arguments: Value,
    ) -> Exchange {
        let params = json!({
            "name": tool, "arguments": arguments, "_meta": { "progressToken": token },
        });
        self.post(&message(Some(id.clone()), "tools/call", params)).await
    }

    /// The result of a tool call without questions.
    pub async fn called(&self, tool: &str, arguments: Value) -> Value {
        self.call(tool, arguments).await.result().await
    }

    pub async fn notify(&self, method: &str, params: Value) -> Exchange {
        self.post(&message(None, method, params)).await
    }

    /// Answers a request of the server.
    pub async fn answer(&self, question: &Value, result: Value) -> Exchange {
        self.post(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": result })).await
    }

    /// Answers a request of the server with an error.
    pub async fn fail(&self, question: &Value, code: i64, message: &str) -> Exchange {
        let error = json!({ "code": code, "message": message });
        self.post(&json!({ "jsonrpc": "2.0", "id": question["id"], "error": error })).await
    }

    /// Opens the session's own stream.
    pub async fn listen(&self) -> Exchange {
        Exchange::open(self.http(Method::GET)).await
    }

    /// Resumes the stream of this event, after it.
    pub async fn resume(&self, last_event_id: &str) -> Exchange {
        Exchange::open(self.http(Method::GET).header("last-event-id", last_event_id)).await
    }

    /// Ends the session.
    pub async fn delete(&self) -> Exchange {
        Exchange::open(self.http(Method::DELETE)).await
    }
}

fn message(id: Option<Value>, method: &str, params: Value) -> Value {
    let mut message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
    if let Some(id) = id {
        message["id"] = id;
    }
    message
}
