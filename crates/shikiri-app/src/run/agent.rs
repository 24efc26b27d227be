//! What an in-process agent is.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use shikiri_model::run::{QuestionKind, RunError};

use super::context::{Context, StepError};

/// A journaled agent. After a crash `run` is called again with the same input, and everything
/// that it did through its context is played back; so outside of the context it must be
/// deterministic: no clock, no randomness, no I/O except inside a step.
///
/// Operations of the context may be joined, not raced: which of two came first is not recorded,
/// so a `select!` over them could decide differently when it is replayed. A limit on time belongs
/// inside a step, a deadline to a question.
#[async_trait]
pub trait Agent: Send + Sync + 'static {
    /// Unique; a lower-case word.
    fn name(&self) -> &'static str;

    /// The name as people read it.
    fn title(&self) -> &'static str {
        self.name()
    }

    /// One line for people.
    fn description(&self) -> &'static str;

    /// What `check` lets pass: an object of JSON Schema 2020-12 that describes an object.
    fn input_schema(&self) -> Value;

    /// What `run` results in, in the same form.
    fn output_schema(&self) -> Option<Value> {
        None
    }

    /// What `check_update` lets pass, in the same form; None if the agent takes no updates.
    fn update_schema(&self) -> Option<Value> {
        None
    }

    /// Whether a caller stays while the agent works.
    fn attendance(&self) -> Attendance {
        Attendance::MayLeave
    }

    /// Questions without whose answers the agent is of no use. A caller that cannot answer them is
    /// turned away before a run is made.
    fn insists_on(&self) -> &'static [QuestionKind] {
        &[]
    }

    /// Refuses an input before a run is made of it.
    fn check(&self, input: &Value) -> Result<(), String>;

    /// Refuses what a run is given while it works. What passes, the agent gets from
    /// `Context::updates` where it looks for it.
    fn check_update(&self, _update: &Value) -> Result<(), String> {
        Err("this agent takes no updates".to_owned())
    }

    async fn run(&self, context: Context, input: Value) -> Result<Value, AgentError>;
}

/// What becomes of a caller while an agent works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attendance {
    /// The work is short: every caller waits for its end.
    Stays,
    /// Whoever can come back for the result is let go at once; others wait.
    MayLeave,
    /// The agent asks before its work begins: whoever can come back is let go with the answers.
    LeavesOnceAsked,
    /// Only for callers that can come back.
    Leaves,
}

/// Why an agent gave up.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct AgentError {
    pub code: &'static str,
    pub message: String,
}

impl AgentError {
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

impl From<StepError> for AgentError {
    fn from(error: StepError) -> Self {
        let code = match error {
            StepError::Failed(_) => "STEP_FAILED",
            StepError::Unknown { .. } => "UNKNOWN_OUTCOME",
        };
        Self::new(code, error.to_string())
    }
}

impl From<AgentError> for RunError {
    fn from(error: AgentError) -> Self {
        RunError::new(error.code, error.message)
    }
}

/// The agents that this process can run.
pub struct Agents(BTreeMap<&'static str, Arc<dyn Agent>>);

impl Agents {
    pub fn new(agents: Vec<Arc<dyn Agent>>) -> Self {
        Self(agents.into_iter().map(|agent| (agent.name(), agent)).collect())
    }

    pub fn get(&self, name: &str) -> Option<&Arc<dyn Agent>> {
        self.0.get(name)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Agent>> {
        self.0.values()
    }

    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.keys().copied()
    }
}
