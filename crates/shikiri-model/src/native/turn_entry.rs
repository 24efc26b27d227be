//! The stored entries of a turn.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::execution_limits::LimitKind;
use crate::execution::TokenUsage;

/// The call that spawned the thread; None for the main one.
pub type ThreadId = Option<String>;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub enum TurnEntry {
    /// The turn began.
    Opened { session_id: String, model: String },
    /// The model replied.
    Reply { thread: ThreadId, reply: ModelReply },
    /// The reply broke off after this text, which readers have seen.
    Cut { thread: ThreadId, text: String },
    /// A tool returned its result, or a subagent ended.
    Answer { thread: ThreadId, tool_use_id: String, content: Value, is_error: bool },
}

/// A complete message of the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelReply {
    pub id: String,
    /// The name that the model reports.
    pub model: String,
    /// Content blocks in the API's format. They are sent back unchanged.
    pub content: Vec<Value>,
    pub stop_reason: Option<String>,
    pub usage: TokenUsage,
    /// The limit that reduced the request's output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capped: Option<LimitKind>,
}

/// A tool call of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelToolCall {
    pub id: String,
    pub name: String,
    pub input: Value,
}

/// The input of the tool `Task`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct TaskToolInput {
    #[serde(default)]
    pub description: String,
    pub prompt: String,
    #[serde(default = "general")]
    pub subagent_type: String,
    /// An alias or a model's name.
    #[serde(default)]
    pub model: Option<String>,
}

fn general() -> String {
    "general-purpose".to_owned()
}

impl ModelReply {
    /// Its text, without thinking.
    pub fn text(&self) -> String {
        self.content.iter().filter_map(text).collect()
    }

    pub fn calls(&self) -> Vec<ModelToolCall> {
        let calls = self.content.iter().filter(|block| block["type"] == "tool_use");
        let field = |block: &Value, name: &str| block[name].as_str().unwrap_or_default().to_owned();
        calls
            .map(|block| ModelToolCall {
                id: field(block, "id"),
                name: field(block, "name"),
                input: block["input"].clone(),
            })
            .collect()
    }
}

impl ModelToolCall {
    /// The subagent that it spawns, if it is a valid call of `Task`.
    pub fn spawn(&self) -> Option<TaskToolInput> {
        let wanted =
            (self.name == super::TASK).then(|| TaskToolInput::deserialize(&self.input).ok())?;
        wanted.filter(|spawn| !spawn.prompt.trim().is_empty())
    }
}

/// The text of a block, if it is not empty.
pub(super) fn text(block: &Value) -> Option<&str> {
    let text = (block["type"] == "text").then(|| block["text"].as_str())?;
    text.filter(|text| !text.is_empty())
}
