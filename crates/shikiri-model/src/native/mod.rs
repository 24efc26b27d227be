//! The native engines' loop, without its I/O: what was said and done so far, and what comes next.
//!
//! A `Turn` is one turn of a conversation: its main thread and the threads of its subagents. Whatever
//! happens to it is an `Entry`; applying the entries again in their order gives the same turn, so a
//! turn that lost its process is taken up from them. A `Thread` says what comes next: ask the model,
//! call tools, or end. What a request may cost is taken from a `Purse` before it is sent.

mod entry;
mod limits;
mod past;
mod purse;
mod thread;
mod turn;

pub use entry::{Call, Entry, Reply, Spawn, ThreadId};
pub use limits::{Limit, LimitError, Limits};
pub use past::past;
pub use purse::{Estimate, Grant, Reservation};
pub use thread::{CONTEXT_FULL, Ending, Next, Thread};
pub use turn::{MAX_DEPTH, Telling, Turn, UNKNOWN_OUTCOME};

/// The tool that spawns subagents.
pub const TASK: &str = "Task";
