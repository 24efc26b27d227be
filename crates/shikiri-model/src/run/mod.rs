//! A run: one durable piece of agent work with one event stream.
//!
//! `decide` is the whole state machine: given the run, a command and the time, it returns the
//! changed run and the events to append. The caller commits both together and acts afterwards.

mod decide;
mod form;
mod question;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use decide::{Command, Decision, Refusal, decide};
pub use form::fill_in;
pub use question::{Answer, AnswerAction, Question, QuestionKind};

use crate::event::StreamId;
use crate::execution::Execution;
use crate::ids::{NodeId, RunId, TenantId};
use crate::record::{Columns, Document};
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub id: RunId,
    pub tenant: TenantId,
    pub agent: String,
    pub input: Value,
    pub status: RunStatus,
    /// Unique in the tenant: a second start with it attaches to this run.
    #[serde(default)]
    pub idempotency_key: Option<String>,
    /// Who asked for it, in the words of the door that was asked.
    #[serde(default)]
    pub origin: Option<Value>,
    #[serde(default)]
    pub parent: Option<Parent>,
    /// The node that works on it.
    #[serde(default)]
    pub node: Option<NodeId>,
    /// When a worker should next look at it.
    #[serde(default)]
    pub due_at: Option<Timestamp>,
    /// Counts what arrived from outside (answers, ends of children), so that a run about to
    /// wait notices what came while it was deciding to.
    #[serde(default)]
    pub wakes: u64,
    /// How often a worker started or took it up.
    #[serde(default)]
    pub starts: u64,
    /// How often in a row its node was lost.
    #[serde(default)]
    pub losses: u32,
    #[serde(default)]
    pub cancel_requested: bool,
    /// Asked and not answered.
    #[serde(default)]
    pub questions: Vec<Question>,
    /// What it was given while it worked, oldest first.
    #[serde(default)]
    pub inputs: Vec<Value>,
    #[serde(default)]
    pub result: Option<Value>,
    #[serde(default)]
    pub error: Option<RunError>,
    #[serde(default)]
    pub ended_at: Option<Timestamp>,
    /// Set if it is an execution: work of an engine, which cannot be replayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<Box<Execution>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    Queued,
    Running,
    /// For an answer, a timer or a child; no worker holds it.
    Waiting,
    Completed,
    Failed,
    Cancelled,
}

/// The journal entry of the parent that waits for this run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
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
pub enum Outcome {
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
        stream_of(&self.id)
    }

    /// Whether another process can go on with it once its node is gone.
    pub fn goes_on(&self) -> bool {
        self.execution.as_ref().is_none_or(|execution| execution.goes_on)
    }

    pub fn outcome(&self) -> Option<Outcome> {
        match self.status {
            RunStatus::Completed => Some(Outcome::Completed(self.result.clone()?)),
            RunStatus::Failed => Some(Outcome::Failed(self.error.clone()?)),
            RunStatus::Cancelled => Some(Outcome::Cancelled),
            RunStatus::Queued | RunStatus::Running | RunStatus::Waiting => None,
        }
    }
}

pub fn stream_of(run: &RunId) -> StreamId {
    StreamId::new(format!("run/{run}"))
}

/// A child's key: its parent starts it once, however often the journal is replayed.
pub fn child_key(parent: &RunId, index: u64) -> String {
    format!("child:{parent}:{index}")
}

impl RunStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

impl RunError {
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into() }
    }
}

impl Document for Run {
    const KIND: &'static str = "run";

    fn tenant(&self) -> TenantId {
        self.tenant.clone()
    }

    fn id(&self) -> &str {
        self.id.as_str()
    }

    fn columns(&self) -> Columns {
        Columns {
            state: self.status.as_str().to_owned(),
            parent: match &self.execution {
                Some(execution) => Some(execution.conversation.to_string()),
                None => self.parent.as_ref().map(|parent| parent.run.to_string()),
            },
            owner: self.node.as_ref().map(ToString::to_string),
            unique: self.idempotency_key.clone(),
            due_at: self.due_at,
        }
    }
}

#[cfg(test)]
mod decide_tests;
