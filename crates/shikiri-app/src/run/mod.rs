//! Durable runs: start, follow, answer, redirect, cancel; and the worker that carries them.

mod agent;
mod context;
mod drive;
mod invitation;
mod node;
mod outbox;
mod start;
mod sweep;
mod updates;
mod use_cases;
mod vital;
mod worker;

pub use agent::{Agent, AgentError, Agents, Attendance};
pub use context::{Context, ModelLimits, OnUnknown, StepError};
pub(crate) use node::Here;
pub use node::Node;
pub(crate) use outbox::Outbox;
pub use start::NewRun;
pub(crate) use start::{is_good_key, started_here};
pub use use_cases::RunView;
pub(crate) use use_cases::{CommitOrRefusal, apply};
pub(crate) use worker::Work;
