//! A client of 2026-07-28: every request identifies its sender.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use super::exchange::Exchange;
use super::{ACCEPT, PATH};
use crate::client::Client;

const VERSION: &str = "2026-07-28";
const META: &str = "io.modelcontextprotocol/";
const TASKS: &str = "io.modelcontextprotocol/tasks";

#[derive(Clone, Debug)]
pub struct ModernClient {
    client: Client,
    pub capabilities: Value,
    pub log_level: Option<String>,
    next_id: Arc<AtomicI64>,
}

/// A request that a test can still make invalid.
#[derive(Clone, Debug)]
pub struct Prepared {
    pub headers: Vec<(String, String)>,
    pub body: Value,
}

impl Prepared {
    /// Replaces or removes a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: Option<&str>) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self.headers.extend(value.map(|value| (name.to_owned(), value.to_owned())));
        self
    }

    pub fn meta(&mut self, name: &str) -> &mut Value {
        &mut self.body["params"]["_meta"][format!("{META}{name}")]
    }
}

impl ModernClient {
    /// A client that accepts every request, but no tasks.
    pub fn new(client: &Client) -> Self {
        Self {
            client: client.clone(),
            capabilities: json!({ "elicitation": {}, "sampling": {}, "roots": {} }),
            log_level: None,
            next_id: Arc::new(AtomicI64::new(1)),
        }
    }

    #[must_use]
    pub fn with_capabilities(mut self, capabilities: Value) -> Self {
        self.capabilities = capabilities;
        self
    }

    /// Accepts tasks as well.
    #[must_use]
    pub fn with_tasks(mut self) -> Self {
        self.capabilities["extensions"] = json!({ TASKS: {} });
        self
    }

    #[must_use]
    pub fn with_log_level(mut self, level: &str) -> Self {
        self.log_level = Some(level.to_owned());
        self
    }

    /// The same client with another key, or at another server.
    #[must_use]
    pub fn through(&self, client: &Client) -> Self {
        Self { client: client.clone(), ..self.clone() }
    }

    /// A request that follows the specification.
    pub fn prepare(&self, method: &str, mut params: Value) -> Prepared {
        let meta = |name: &str| format!("{META}{name}");
        params["_meta"][meta("protocolVersion")] = json!(VERSION);
        params["_meta"][meta("clientCapabilities")] = self.capabilities.clone();
        params["_meta"][meta("clientInfo")] = json!({ "name": "test", "version": "1" });
        if let Some(level) = &self.log_level {
            params["_meta"][meta("logLevel")] = json!(level);
        }
        let mut headers = vec![
            ("mcp-protocol-version".to_owned(), VERSION.to_owned()),
            ("mcp-method".to_owned(), method.to_owned()),
        ];
        let named_by = match method {
            "tools/call" | "prompts/get" => "name",
            "resources/read" => "uri",
            _ if method.starts_with("tasks/") => "taskId",
            _ => "",
        };
        if let Some(name) = params[named_by].as_str() {
            headers.push(("mcp-name".to_owned(), name.to_owned()));
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let body = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        Prepared { headers, body }
    }

    pub async fn send(&self, prepared: &Prepared) -> Exchange {
        Exchange::open(self.post(prepared)).await
    }

    /// For servers that may be down.
    pub async fn try_send(&self, prepared: &Prepared) -> reqwest::Result<Exchange> {
        Exchange::try_open(self.post(prepared)).await
    }

    fn post(&self, prepared: &Prepared) -> RequestBuilder {
        let mut request = self.client.request(Method::POST, PATH).header("accept", ACCEPT);
        for (name, value) in &prepared.headers {
            request = request.header(name, value);
        }
        request.json(&prepared.body)
    }

    pub async fn request(&self, method: &str, params: Value) -> Exchange {
        self.send(&self.prepare(method, params)).await
    }

    /// The result of a successful request.
    pub async fn result(&self, method: &str, params: Value) -> Value {
        self.request(method, params).await.result().await
    }

    /// Calls a tool, with a progress token.
    pub async fn call(&self, tool: &str, arguments: Value) -> Exchange {
        let token = format!("progress-{}", self.next_id.fetch_add(1, Ordering::Relaxed));
        let params = json!({
            "name": tool, "arguments": arguments, "_meta": { "progressToken": token },
        });
        self.request("tools/call", params).await
    }

    /// The result of a tool call, of any type.
    pub async fn called(&self, tool: &str, arguments: Value) -> Value {
        self.call(tool, arguments).await.result().await
    }

    /// Repeats a call with the requested input: `asked` is the former result, `responses` has the
    /// answers by their keys.
    pub async fn go_on(
        &self,
        tool: &str,
        arguments: Value,
        asked: &Value,
        responses: Value,
    ) -> Exchange {
        let params = json!({
            "name": tool,
            "arguments": arguments,
            "requestState": asked["requestState"],
            "inputResponses": responses,
        });
        self.request("tools/call", params).await
    }

    /// `tasks/get`, `tasks/cancel` and so on.
    pub async fn task(&self, method: &str, task_id: &str) -> Exchange {
        self.request(&format!("tasks/{method}"), json!({ "taskId": task_id })).await
    }

    pub async fn update_task(&self, task_id: &str, responses: Value) -> Exchange {
        let params = json!({ "taskId": task_id, "inputResponses": responses });
        self.request("tasks/update", params).await
    }

    /// `subscriptions/listen`, up to its acknowledgement.
    pub async fn listen(&self, filter: Value) -> Exchange {
        let mut listening =
            self.request("subscriptions/listen", json!({ "notifications": filter })).await;
        let first = listening.next().await.expect("an acknowledgement");
        assert_eq!(first.method(), Some("notifications/subscriptions/acknowledged"), "{first:?}");
        listening
    }
}
