//! A run: one durable piece of agent work with one event stream.
//!
//! `decide` is the whole state machine: given the run, a command and the time, it returns the
//! changed run and the events to append. The caller commits both together and acts afterwards.

mod answer_form;
mod decide;
mod error_code;
mod event_names;
mod node_record;
mod question;
mod run_counts;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use answer_form::fill_form_defaults;
pub use decide::{RunCommand, RunDecision, RunRefusal, decide};
pub use error_code::{RunErrorCode, WarningCode};
pub use event_names::{DialogueEventName, ExecutionEventName, RunEventName};
pub use node_record::{NodeProcess, NodeRecord};
pub use question::{AnswerAction, QuestionAnswer, QuestionKind, RunQuestion};
pub use run_counts::{RUN_COUNTS, RunCounts, StatusCounts, count_key};

use crate::event::StreamId;
use crate::execution::Execution;
use crate::ids::{NodeId, RunId, TenantId};
use crate::macros::{document, text_enum};
use crate::record::RecordColumns;
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub id: RunId,
    pub tenant: TenantId,
    pub agent: String,
    pub input: Value,
    pub status: RunStatus,
    /// Unique in the tenant. A second start with the same key attaches to this run.
    #[serde(default)]
    pub idempotency_key: Option<String>,
    /// The principal that started it, as the API names it.
    #[serde(default)]
    pub origin: Option<Value>,
    #[serde(default)]
    pub parent: Option<RunParent>,
    /// The node that works on it.
    #[serde(default)]
    pub node: Option<NodeId>,
    /// When a worker should look at it next.
    #[serde(default)]
    pub due_at: Option<Timestamp>,
    /// Counts arrivals from outside (answers, ends of children), so that a run that is about to
    /// wait notices an arrival in between.
    #[serde(default)]
    pub wakes: u64,
    /// How often a worker started or resumed it.
    #[serde(default)]
    pub starts: u64,
    /// How often in a row its node was lost.
    #[serde(default)]
    pub losses: u32,
    #[serde(default)]
    pub cancel_requested: bool,
    /// Questions without an answer.
    #[serde(default)]
    pub questions: Vec<RunQuestion>,
    /// Input that it got while it worked, oldest first.
    #[serde(default)]
    pub inputs: Vec<Value>,
    #[serde(default)]
    pub result: Option<Value>,
    #[serde(default)]
    pub error: Option<RunError>,
    #[serde(default)]
    pub ended_at: Option<Timestamp>,
    /// Set for an execution: one turn of a conversation, done by an engine. See `is_resumable`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<Box<Execution>>,
}

text_enum! {
    pub enum RunStatus {
        Queued = "queued",
        Running = "running",
        /// Waits for an answer, a timer or a child; no worker holds it.
        Waiting = "waiting",
        Completed = "completed",
        Failed = "failed",
        Cancelled = "cancelled",
    }
}

/// The journal entry of the parent that waits for this run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunParent {
    pub run: RunId,
    pub index: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunError {
    pub code: String,
    pub message: String,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub enum RunOutcome {
    Completed(Value),
    Failed(RunError),
    Cancelled,
}

impl Run {
    pub fn new(id: RunId, tenant: TenantId, agent: String, input: Value, now: Timestamp) -> Self {
        Self {
            id,
            tenant,
            agent,
            input,
            status: RunStatus::Queued,
            idempotency_key: None,
            origin: None,
            parent: None,
            node: None,
            due_at: Some(now),
            wakes: 0,
            starts: 0,
            losses: 0,
            cancel_requested: false,
            questions: Vec::new(),
            inputs: Vec::new(),
            result: None,
            error: None,
            ended_at: None,
            execution: None,
        }
    }

    pub fn stream(&self) -> StreamId {
        run_stream(&self.id)
    }

    /// Whether another process can continue it when its node is gone.
    pub fn is_resumable(&self) -> bool {
        self.execution.as_ref().is_none_or(|execution| execution.is_resumable)
    }

    /// Whether it is an execution that waits for its conversation, and has not been started yet.
    pub fn is_waiting_execution(&self) -> bool {
        self.execution.is_some() && self.status == RunStatus::Queued && self.starts == 0
    }

    pub fn outcome(&self) -> Option<RunOutcome> {
        match self.status {
            RunStatus::Completed => Some(RunOutcome::Completed(self.result.clone()?)),
            RunStatus::Failed => Some(RunOutcome::Failed(self.error.clone()?)),
            RunStatus::Cancelled => Some(RunOutcome::Cancelled),
            RunStatus::Queued | RunStatus::Running | RunStatus::Waiting => None,
        }
    }
}

pub fn run_stream(run: &RunId) -> StreamId {
    StreamId::new(format!("run/{run}"))
}

/// A child's idempotency key: its parent starts it once, however often the journal is replayed.
pub fn child_key(parent: &RunId, index: u64) -> String {
    format!("child:{parent}:{index}")
}

impl RunStatus {
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

impl RunError {
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into() }
    }
}

document!(Run, "run", tenant, id, |run| RecordColumns {
    state: run.status.as_str().to_owned(),
    parent: match &run.execution {
        Some(execution) => Some(execution.conversation.to_string()),
        None => run.parent.as_ref().map(|parent| parent.run.to_string()),
    },
    owner: run.node.as_ref().map(ToString::to_string),
    unique: run.idempotency_key.clone(),
    due_at: run.due_at,
});

#[cfg(test)]
mod decide_tests;
