//! The loop of the native engines, without I/O: the state of a turn and the next step.
//!
//! A [`NativeTurn`] is one turn of a conversation: its main thread and the threads of its
//! subagents. Everything that happens to it is a [`TurnEntry`]. Applying the entries again in order
//! gives the same turn, so a turn whose process died is resumed from them. A [`ModelThread`]
//! returns the next step: ask the model, call tools, or end. The cost of a request is reserved in a
//! `SpendBudget` before the request is sent.

mod execution_limits;
mod model_thread;
mod native_turn;
mod session_history;
mod spend_budget;
mod turn_entry;

pub use execution_limits::{ExecutionLimits, LimitError, LimitKind};
pub use model_thread::{CONTEXT_FULL, ModelThread, ThreadAction, ThreadEnding};
pub use native_turn::{MAX_DEPTH, NativeTurn, ReplayMode, UNKNOWN_OUTCOME};
pub use session_history::session_history;
pub use spend_budget::{RequestEstimate, ReservationId, SpendGrant};
pub use turn_entry::{ModelReply, ModelToolCall, TaskToolInput, ThreadId, TurnEntry};

/// The tool that spawns subagents.
pub const TASK: &str = "Task";
