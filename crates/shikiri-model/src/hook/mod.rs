//! Claude Code's hooks: which subagent is calling, what its role is, and which conventions it gets.
//!
//! A hook process lives for a millisecond. It reads one [`Payload`], loads the rows that
//! [`Needs::of`] names, and asks [`decide`] what changes, what Claude Code is answered, and what is
//! logged. If the rows do not suffice, `decide` says what it [`Want`]s to be told from the disk, and
//! is asked again.
//!
//! Identity comes first: `agent_id` names the subagent in every payload, and `tool_use_id` the call
//! that spawned it. Only where an older Claude Code leaves the id out is anything guessed, and then
//! the record says so and a role that is in doubt is not given.

mod command;
pub mod conventions;
mod decide;
#[cfg(test)]
mod decide_tests;
#[cfg(test)]
mod doubt_tests;

mod deliver;
mod evidence;
mod lifecycle;
mod matching;
mod pattern;
mod payload;
mod registry;
mod report;
mod role;
mod rules;
#[cfg(test)]
mod world;

pub use conventions::{Conventions, Delivery, Severity};
pub use decide::{Answer, Decision, LogLine, Outcome, decide};
pub use evidence::{Evidence, Meta, PromptRole, Want};
pub use payload::{BadPayload, Payload};
pub use registry::{
    Change, Claim, Known, Mark, MarkKey, Needs, SUBAGENTS_MARK, Spawn, Subagent, SubagentState,
};
pub use report::{
    CalledBy, HookFigures, HookStats, LogQuery, Logged, ReadTo, SessionFigures, SubagentQuery,
    USUAL_LOG,
};
pub use role::{Confidence, RoleSource, role_in};
