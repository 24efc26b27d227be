//! Durable runs: start, follow, answer, redirect, cancel; and the worker that executes them.

mod agent;
mod dead_node_sweep;
mod liveness_file;
mod node;
mod node_directory;
mod node_tasks;
mod outbox;
mod run_context;
mod run_driver;
mod run_handler;
mod run_overview;
mod run_slot;
mod run_updates;
mod start_run;
mod use_cases;
mod worker;

pub use agent::{AgentError, AgentRegistry, CallerWaitPolicy, DurableAgent};
pub use node::LocalWorker;
pub use node::WorkerNode;
pub use node_directory::{NodeState, NodeView};
pub use node_tasks::NodeTasks;
pub use outbox::Outbox;
pub use run_context::{ModelLimits, RunContext, StepError, UnknownStepPolicy};
pub use run_handler::{BackgroundTask, NodePlace, NodeServices, RunHandler, RunJob, StopSignals};
pub use run_overview::OpenQuestion;
pub use run_slot::RunSlot;
pub use start_run::NewRun;
pub use start_run::{is_good_key, local_start_commit};
pub use use_cases::RunView;
pub use use_cases::{RunCommitError, apply};
pub use worker::RunWorkload;
