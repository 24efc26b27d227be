//! A client at the other end of a pipe. Closing its input ends the server.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use shikiri_mcp::serve_stdio;
use shikiri_model::lane::{CallerIdentity, CallerOrigin};
use shikiri_runtime::AppError;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines};
use tokio::task::JoinHandle;

use crate::world::World;

const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct StdioClient {
    input: DuplexStream,
    lines: Lines<BufReader<DuplexStream>>,
    /// Every message that the server sent.
    pub(crate) seen: Vec<Value>,
    next_id: i64,
    server: JoinHandle<Result<(), AppError>>,
}

impl StdioClient {
    pub(crate) fn start(world: &World) -> Self {
        let (input, server_input) = tokio::io::duplex(64 * 1024);
        let (server_output, output) = tokio::io::duplex(64 * 1024);
        let origin = CallerOrigin::Process { pid: 7, started_ms: 7, declared: None };
        let identity = move |client: &str| CallerIdentity::of(&origin, client);
        let mcp = Arc::clone(&world.mcp);
        let server =
            tokio::spawn(serve_stdio(mcp, identity, BufReader::new(server_input), server_output));
        let lines = BufReader::new(output).lines();
        Self { input, lines, seen: Vec::new(), next_id: 1, server }
    }

    /// Connected, in the older era, by a client that can be asked by forms.
    pub(crate) async fn connect(world: &World) -> Self {
        let mut client = Self::start(world);
        let reply = client.initialize("2025-11-25").await;
        assert_eq!(reply["result"]["protocolVersion"], "2025-11-25", "{reply}");
        client
    }

    pub(crate) async fn initialize(&mut self, version: &str) -> Value {
        let params = json!({
            "protocolVersion": version,
            "capabilities": { "elicitation": {} },
            "clientInfo": { "name": "pipe", "version": "1" },
        });
        let reply = self.request("initialize", params).await;
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
        reply
    }

    pub(crate) async fn send(&mut self, message: &Value) {
        self.send_line(&message.to_string()).await;
    }

    pub(crate) async fn send_line(&mut self, line: &str) {
        self.input.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    /// Sends a request and gives its id.
    pub(crate) async fn begin(&mut self, method: &str, params: Value) -> i64 {
        let id = self.next_id;
        self.next_id += 1;
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.send(&request).await;
        id
    }

    /// Sends a request and waits for its reply.
    pub(crate) async fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params).await;
        self.reply(id).await
    }

    pub(crate) async fn reply(&mut self, id: i64) -> Value {
        self.until(|message| message["id"] == id && message.get("method").is_none()).await
    }

    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let called = json!({ "name": tool, "arguments": arguments });
        let reply = self.request("tools/call", called).await;
        assert!(reply["result"].is_object(), "{reply}");
        reply["result"].clone()
    }

    pub(crate) async fn tool_names(&mut self) -> Vec<String> {
        let reply = self.request("tools/list", json!({})).await;
        names_of(&reply["result"]["tools"])
    }

    /// The next message for which that holds.
    pub(crate) async fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let message = self.next_message().await;
            if wanted(&message) {
                return message;
            }
        }
    }

    pub(crate) async fn next_message(&mut self) -> Value {
        let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await;
        let line = line.unwrap_or_else(|_| panic!("nothing more came after {:#?}", self.seen));
        let message: Value = serde_json::from_str(&line.unwrap().unwrap()).unwrap();
        self.seen.push(message.clone());
        message
    }

    /// Ends the input, waits for the server's end, and gives the messages that were still on
    /// their way.
    pub(crate) async fn end(self) -> Vec<Value> {
        let Self { input, mut lines, server, .. } = self;
        drop(input);
        let mut rest = Vec::new();
        while let Some(line) = lines.next_line().await.unwrap() {
            rest.push(serde_json::from_str(&line).unwrap());
        }
        server.await.unwrap().unwrap();
        rest
    }
}

pub(crate) fn names_of(tools: &Value) -> Vec<String> {
    let tools = tools.as_array().unwrap().iter();
    tools.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

/// A request's params in the newer era.
pub(crate) fn modern(mut params: Value, version: &str) -> Value {
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(version);
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({ "elicitation": {} });
    params
}
