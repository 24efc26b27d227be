//! Questions of a run to a person, a model or the caller's client, and their answers.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::QuestionId;
use crate::macros::text_enum;
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunQuestion {
    pub id: QuestionId,
    /// The index of the journal entry that asked.
    pub index: u64,
    /// The agent's own key for it, which is the same in every run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub kind: QuestionKind,
    pub message: String,
    /// What an answer must look like: a JSON schema for a person, messages and limits for a model,
    /// null for roots.
    pub schema: Value,
    /// Answered with `timeout` at this time.
    pub expires_at: Option<Timestamp>,
}

text_enum! {
    pub enum QuestionKind {
        Human = "human",
        Model = "model",
        /// The folders that the caller's client has open.
        Roots = "roots",
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QuestionAnswer {
    pub action: AnswerAction,
    #[serde(default)]
    pub content: Value,
    /// Why the server answered by itself, such as "unsupported by the client".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerAction {
    Accept,
    Decline,
    Cancel,
    /// No answer came in time.
    Timeout,
}

impl QuestionAnswer {
    pub fn new(action: AnswerAction, content: Value) -> Self {
        Self { action, content, reason: None }
    }

    pub fn accept(content: Value) -> Self {
        Self::new(AnswerAction::Accept, content)
    }

    pub fn timeout() -> Self {
        Self::new(AnswerAction::Timeout, Value::Null)
    }

    /// The content if the answer was yes. Every other answer counts as no.
    pub fn accepted(&self) -> Option<&Value> {
        (self.action == AnswerAction::Accept).then_some(&self.content)
    }
}
