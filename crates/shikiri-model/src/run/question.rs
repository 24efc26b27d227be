//! Questions of a run to a person or a model, and their answers.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::QuestionId;
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Question {
    pub id: QuestionId,
    /// The journal entry that asked.
    pub index: u64,
    pub kind: QuestionKind,
    pub message: String,
    /// What a good answer looks like: a JSON schema for a person, messages and limits for a model.
    pub schema: Value,
    /// Answered with `timeout` once this has passed.
    pub expires_at: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuestionKind {
    Human,
    Model,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    pub action: AnswerAction,
    #[serde(default)]
    pub content: Value,
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
    pub fn accept(content: Value) -> Self {
        Self { action: AnswerAction::Accept, content }
    }

    pub fn timeout() -> Self {
        Self { action: AnswerAction::Timeout, content: Value::Null }
    }

    /// The content, only if the answer was yes: the fail-safe reading of every other outcome.
    pub fn accepted(&self) -> Option<&Value> {
        (self.action == AnswerAction::Accept).then_some(&self.content)
    }
}
