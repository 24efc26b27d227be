//! Executions: one turn of a conversation through an engine, from the request to the bill.
//! `flow` has all steps in order; the other modules implement them.

mod abort_execution;
mod engine;
mod engine_channel;
mod execution_queries;
mod execution_request;
mod finish_execution;
mod flow;
mod queued_execution;
mod resume_execution;
mod session_files;
mod start_execution;
mod toolbox;
mod turn_journal;
mod turn_options;
mod waiting_line;

pub use engine::{
    Engine, EngineError, EngineRegistry, GeneratedTitle, JournalStep, ResolvedServer, ResumeState,
    TitleRequest, TurnRequest, with_bare_secret,
};
pub use engine_channel::{EngineOutput, EngineReceiver, EngineSender, PersistAck};
pub use execution_queries::ExecutionFilter;
pub use execution_request::{ExecutionStart, NewExecution};
pub(crate) use flow::{ExecutionJob, execute_job};
pub(crate) use resume_execution::resume_execution;
pub use toolbox::{NoTools, ToolBox, ToolCallResult, ToolContent, ToolSpec};
pub(crate) use turn_journal::journal_stream;
pub use turn_options::inherited_environment;
pub(crate) use waiting_line::WaitingLines;
