//! The trait of in-process agents, and the agents that a process knows.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use shikiri_model::run::{QuestionKind, RunError, RunErrorCode};

use super::run_context::{RunContext, StepError};

/// A journaled agent. After a crash `run` is called again with the same input, and everything
/// that it did through its context is played back; so outside of the context it must be
/// deterministic: no clock, no randomness, no I/O except inside a step.
///
/// Operations of the context may be joined, not raced: which of two came first is not recorded,
/// so a `select!` over them could decide differently when it is replayed. A limit on time belongs
/// inside a step, a deadline to a question.
#[async_trait]
pub trait DurableAgent: Send + Sync + 'static {
    /// Unique; a lower-case word.
    fn name(&self) -> &'static str;

    /// The name as people read it.
    fn title(&self) -> &'static str {
        self.name()
    }

    /// One line for people.
    fn description(&self) -> &'static str;

    /// The input that `check` accepts: a JSON Schema 2020-12 object that describes an object.
    fn input_schema(&self) -> Value;

    /// The result of `run`, in the same form.
    fn output_schema(&self) -> Option<Value> {
        None
    }

    /// The updates that `check_update` accepts, in the same form. None if the agent takes no
    /// updates.
    fn update_schema(&self) -> Option<Value> {
        None
    }

    /// Whether a caller waits while the agent works.
    fn caller_wait_policy(&self) -> CallerWaitPolicy {
        CallerWaitPolicy::MayLeave
    }

    /// The kinds of questions that the agent depends on. A caller that cannot answer them is
    /// refused before a run is created.
    fn required_questions(&self) -> &'static [QuestionKind] {
        &[]
    }

    /// The group of tools that its tool belongs to, by which clients ask for a part of all tools.
    fn tool_group(&self) -> &'static str {
        "agents"
    }

    /// Whether `run_answer` may answer what the agent asks a person. A model calls that tool, and
    /// would answer in the person's name.
    fn allows_tool_answers(&self) -> bool {
        false
    }

    /// Refuses an invalid input before a run is created.
    fn check(&self, input: &Value) -> Result<(), String>;

    /// Refuses an invalid update of a run. The agent reads accepted updates with
    /// [`RunContext::updates`].
    fn check_update(&self, _update: &Value) -> Result<(), String> {
        Err("this agent takes no updates".to_owned())
    }

    async fn run(&self, context: RunContext, input: Value) -> Result<Value, AgentError>;
}

/// How long a caller waits while an agent works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallerWaitPolicy {
    /// The work is short: every caller waits for its end.
    Stays,
    /// A caller that can come back for the result is released at once. Others wait.
    MayLeave,
    /// The agent asks before its work begins. A caller that can come back is released once it
    /// answered.
    LeavesOnceAsked,
    /// Only for callers that can come back.
    Leaves,
}

/// Why an agent failed.
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
            StepError::Failed(_) => RunErrorCode::StepFailed,
            StepError::Unknown { .. } => RunErrorCode::UnknownOutcome,
        };
        Self::new(code.as_str(), error.to_string())
    }
}

impl From<AgentError> for RunError {
    fn from(error: AgentError) -> Self {
        RunError::new(error.code, error.message)
    }
}

/// The agents that this process can run.
pub struct AgentRegistry(BTreeMap<&'static str, Arc<dyn DurableAgent>>);

impl AgentRegistry {
    pub fn new(agents: Vec<Arc<dyn DurableAgent>>) -> Self {
        Self(agents.into_iter().map(|agent| (agent.name(), agent)).collect())
    }

    pub fn get(&self, name: &str) -> Option<&Arc<dyn DurableAgent>> {
        self.0.get(name)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn DurableAgent>> {
        self.0.values()
    }

    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.keys().copied()
    }
}
