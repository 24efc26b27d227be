//! The host's side of the control protocol: prompts in, messages out, and questions both ways.

use std::collections::HashSet;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::process::ChildStdin;

use super::process::{ClaudeEnded, Running};

/// A running Claude Code that takes prompts one after the other and asks its host, the test.
#[derive(Debug)]
pub struct ClaudeHost {
    running: Running,
    stdin: ChildStdin,
    /// Positions of messages that were returned already.
    taken: HashSet<usize>,
    sent: usize,
}

/// A request of Claude Code to its host.
#[derive(Clone, Debug)]
pub struct ControlRequest {
    id: String,
    /// With its `subtype`: `elicitation`, `can_use_tool`, `hook_callback` …
    pub request: Value,
}

impl ClaudeHost {
    pub(super) async fn start(mut running: Running) -> Self {
        let stdin = running.take_stdin();
        let mut host = Self { running, stdin, taken: HashSet::new(), sent: 0 };
        host.control(json!({ "subtype": "initialize" })).await;
        host
    }

    /// Sends a user message, without waiting.
    pub async fn say(&mut self, text: &str) {
        let message = json!({ "role": "user", "content": text });
        let parent = Value::Null;
        self.send(&json!({
            "type": "user", "message": message, "parent_tool_use_id": parent, "session_id": "",
        }))
        .await;
    }

    /// Sends a control request, such as `interrupt`, and returns its successful response.
    pub async fn control(&mut self, request: Value) -> Value {
        self.sent += 1;
        let id = format!("host_{}", self.sent);
        let request = json!({ "type": "control_request", "request_id": id, "request": request });
        self.send(&request).await;
        let answers = |message: &Value| {
            message["type"] == "control_response" && message["response"]["request_id"] == id
        };
        let answer = self.next(&request.to_string(), answers).await;
        assert_eq!(answer["response"]["subtype"], "success", "to {request}: {answer}");
        answer["response"]["response"].clone()
    }

    /// Waits for the next request of this subtype.
    pub async fn asked(&mut self, subtype: &str) -> ControlRequest {
        let asks = |message: &Value| {
            message["type"] == "control_request" && message["request"]["subtype"] == subtype
        };
        let message = self.next(subtype, asks).await;
        let id = message["request_id"].as_str().expect("a request's id").to_owned();
        ControlRequest { id, request: message["request"].clone() }
    }

    /// Answers a request; the form of an answer depends on the subtype.
    pub async fn answer(&mut self, request: &ControlRequest, response: Value) {
        let response =
            json!({ "subtype": "success", "request_id": request.id, "response": response });
        self.send(&json!({ "type": "control_response", "response": response })).await;
    }

    /// Waits for the next message of this type, such as `result`.
    pub async fn message(&mut self, kind: &str) -> Value {
        self.next(kind, |message| message["type"] == kind).await
    }

    /// All output so far.
    pub fn messages(&self) -> Vec<Value> {
        self.running.messages.all()
    }

    /// Closes the connection, which ends it.
    pub async fn end(self) -> ClaudeEnded {
        drop(self.stdin);
        self.running.end().await
    }

    /// The first matching message that was not returned before.
    async fn next(&mut self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let taken = &self.taken;
        let found = self.running.messages.find(self.running.patience, |messages| {
            let mut fresh = messages.iter().enumerate().filter(|(at, _)| !taken.contains(at));
            fresh.find(|(_, message)| wanted(message)).map(|(at, message)| (at, message.clone()))
        });
        let Some((at, message)) = found.await else {
            panic!("claude ended, or gave nothing within {:?}: {what}", self.running.patience);
        };
        self.taken.insert(at);
        message
    }

    async fn send(&mut self, message: &Value) {
        let line = format!("{message}\n");
        let sent = self.stdin.write_all(line.as_bytes()).await;
        sent.unwrap_or_else(|e| panic!("claude does not listen any more: {e}"));
    }
}
