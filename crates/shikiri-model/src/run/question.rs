//! Questions of a run to a person, a model or the caller's client, and their answers.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::QuestionId;
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Question {
    pub id: QuestionId,
    /// The journal entry that asked.
    pub index: u64,
    /// The agent's own word for it, by which a caller recognises it from run to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub kind: QuestionKind,
    pub message: String,
    /// What a good answer looks like: a JSON schema for a person, messages and limits for a
    /// model, null for roots.
    pub schema: Value,
    /// Answered with `timeout` once this has passed.
    pub expires_at: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuestionKind {
    Human,
    Model,
    /// The folders that the caller's client works in.
    Roots,
}

impl QuestionKind {
    pub const ALL: [Self; 3] = [Self::Human, Self::Model, Self::Roots];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Human => "human",
            Self::Model => "model",
            Self::Roots => "roots",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    pub action: AnswerAction,
    #[serde(default)]
    pub content: Value,
    /// Why a door answered by itself, such as "unsupported by the client".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerAction {
    Accept,
    Decline,
    Cancel,
    /// Nobody answered in time.
    Timeout,
}

impl Answer {
    pub fn new(action: AnswerAction, content: Value) -> Self {
        Self { action, content, reason: None }
    }

    pub fn accept(content: Value) -> Self {
        Self::new(AnswerAction::Accept, content)
    }

    pub fn timeout() -> Self {
        Self::new(AnswerAction::Timeout, Value::Null)
    }

    /// The content, only if the answer was yes: the fail-safe reading of every other outcome.
    pub fn accepted(&self) -> Option<&Value> {
        (self.action == AnswerAction::Accept).then_some(&self.content)
    }
}
