//! A chat session of an agent.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::door::Door;
use super::program::PASSKEY;

pub(super) struct Session {
    door: Door,
    token: String,
}

/// The longest that a call may wait.
pub(super) const LONG: u64 = 30;

impl Session {
    pub(super) async fn open(mut door: Door, project: &str, agent: &str) -> Result<Self> {
        let login = json!({
            "agent_id": agent, "passkey": PASSKEY, "project_id": project, "purpose": "chat",
        });
        let answer = door.call("authenticate", login).await?;
        let token = answer["session_token"].as_str().context("no token")?.to_owned();
        Ok(Self { door, token })
    }

    pub(super) async fn call(&mut self, tool: &str, mut arguments: Value) -> Result<Value> {
        arguments["session_token"] = json!(self.token);
        self.door.call(tool, arguments).await
    }

    /// What has come; with a time, what comes within it.
    pub(super) async fn look(&mut self, wait_seconds: u64) -> Result<Value> {
        self.call("get_pending_messages", json!({ "wait_seconds": wait_seconds })).await
    }

    /// Begins a conversation and gives its id.
    pub(super) async fn start(&mut self, target: &str, text: &str, turns: usize) -> Result<String> {
        let wanted =
            json!({ "target_agent_id": target, "initial_message": text, "max_turns": turns });
        let started = self.call("start_conversation", wanted).await?;
        Ok(started["conversation_id"].as_str().context("no conversation")?.to_owned())
    }

    pub(super) async fn say(&mut self, conversation: &str, text: &str) -> Result<()> {
        let message = json!({ "conversation_id": conversation, "content": text });
        self.call("send_conversation_message", message).await.map(drop)
    }
}
