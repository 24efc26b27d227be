//! What happens in a turn, as it is kept.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::limits::Limit;
use crate::execution::Usage;

/// The call that spawned the thread; None for the main one.
pub type ThreadId = Option<String>;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub enum Entry {
    /// The turn has begun.
    Opened { session_id: String, model: String },
    /// The model has answered.
    Reply { thread: ThreadId, reply: Reply },
    /// The model's answer broke off after this text, which readers have seen.
    Cut { thread: ThreadId, text: String },
    /// A tool has answered, or a subagent has ended.
    Answer { thread: ThreadId, tool_use_id: String, content: Value, is_error: bool },
}

/// A whole message of the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    pub id: String,
    /// As the model calls itself.
    pub model: String,
    /// Blocks, as the API has them: they are sent back as they came.
    pub content: Vec<Value>,
    pub stop_reason: Option<String>,
    pub usage: Usage,
    /// The limit that made the request's own limit smaller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capped: Option<Limit>,
}

/// A tool that the model wants called.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub id: String,
    pub name: String,
    pub input: Value,
}

/// What the tool `Task` is called with.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Spawn {
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

impl Reply {
    /// What it said, without what it thought.
    pub fn text(&self) -> String {
        self.content.iter().filter_map(text).collect()
    }

    pub fn calls(&self) -> Vec<Call> {
        let calls = self.content.iter().filter(|block| block["type"] == "tool_use");
        let field = |block: &Value, name: &str| block[name].as_str().unwrap_or_default().to_owned();
        calls
            .map(|block| Call {
                id: field(block, "id"),
                name: field(block, "name"),
                input: block["input"].clone(),
            })
            .collect()
    }
}

impl Call {
    /// The subagent that it spawns, if it is a call of `Task` that makes sense.
    pub fn spawn(&self) -> Option<Spawn> {
        let wanted = (self.name == super::TASK).then(|| Spawn::deserialize(&self.input).ok())?;
        wanted.filter(|spawn| !spawn.prompt.trim().is_empty())
    }
}

/// A block's text, if it is one that says something.
pub(super) fn text(block: &Value) -> Option<&str> {
    let text = (block["type"] == "text").then(|| block["text"].as_str())?;
    text.filter(|text| !text.is_empty())
}
