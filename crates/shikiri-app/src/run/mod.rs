//! Durable runs: start, follow, answer, redirect, cancel; and the worker that carries them.

mod agent;
mod context;
mod drive;
mod node;
mod outbox;
mod start;
mod sweep;
mod updates;
mod use_cases;
mod worker;

pub use agent::{Agent, AgentError, Agents, Attendance};
pub use context::{Context, ModelLimits, OnUnknown, StepError};
pub(crate) use node::Here;
pub use node::Node;
pub use start::NewRun;
pub use use_cases::RunView;
