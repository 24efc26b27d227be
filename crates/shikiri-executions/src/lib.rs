//! Executions: one turn of a conversation through an engine, from the request to the bill.
//!
//! [`Executions`] is the service. [`execution`] implements a turn, from the request to the commit
//! that ends it; `execution/flow.rs` lists its ten steps. An [`execution::Engine`] does the work of
//! a turn and gets its tools as a [`execution::ToolBox`].
//!
//! Around it: [`conversations`] and their messages, [`workspace`]s with files, a tenant's MCP
//! [`servers`] and APIs, [`skills`], and `tools`, which combines all of these into one toolbox.
//!
//! If a node is lost, the runtime calls the service as its `RunHandler`: the execution is resumed
//! (`execution/resume_execution.rs`) or ends as `INTERRUPTED` (`execution/abort_execution.rs`).

pub mod conversations;
mod engine_folders;
pub mod execution;
pub mod servers;
mod service;
pub mod skills;
#[cfg(test)]
mod test_support;
mod tools;
pub mod workspace;

pub use service::{EnvironmentVariables, ExecutionOptions, Executions};
