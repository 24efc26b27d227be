//! Claude Code's hooks: which subagent is calling, what its role is, and which conventions it gets.
//!
//! A hook process lives for a millisecond. It parses one [`HookInput`], loads the rows that
//! [`HookRowsNeeded::of`] names, and calls [`decide`] for the changes, the answer to Claude Code
//! and the log entry. If the rows do not suffice, `decide` returns an [`EvidenceRequest`] for facts
//! from the disk, and is called again with them.
//!
//! Identity comes first: `agent_id` names the subagent in every payload, and `tool_use_id` the call
//! that spawned it. Only where an older Claude Code omits the id is the agent guessed. The record
//! then says so, and an agent whose role is in doubt gets the default text.

pub mod conventions;
mod decide;
#[cfg(test)]
mod decide_tests;
#[cfg(test)]
mod doubt_tests;
mod shell_commands;

mod convention_delivery;
mod file_touches;
mod glob_pattern;
mod guardrail_errors;
mod hook_activity;
mod hook_evidence;
mod hook_input;
mod hook_reports;
mod hook_rows;
mod hook_session;
mod hook_usage;
mod role_resolution;
mod role_source;
#[cfg(test)]
mod session_tests;
mod session_texts;
mod subagent_lifecycle;
mod tool_rules;
#[cfg(test)]
mod tool_rules_tests;
mod tool_targets;
#[cfg(test)]
mod world;

pub use conventions::{ConventionDelivery, Conventions, OnError, RuleSeverity};
pub use decide::{HookDecision, HookLogEntry, HookOutcome, HookOutput, decide};
pub use file_touches::{FileTouch, FileTouchQuery, FileTouchRecord, TouchOutcome};
pub use hook_activity::{HookSessionActivity, HookSessionState, LastToolUse, read_activity};
pub use hook_evidence::{
    EvidenceRequest, HookEvidence, PromptRole, SubagentMeta, TranscriptUsage, UsageRequest,
};
pub use hook_input::{HookInput, HookInputError, subagent_file_name};
pub use hook_reports::{
    HookFigures, HookLogRecord, HookSessionQuery, HookStats, HookUsageUpdate, LogQuery,
    SessionFigures, SubagentQuery, ToolCaller, TranscriptOffset, USUAL_LOG,
};
pub use hook_rows::{
    DeliveryClaim, HookRowChange, HookRows, HookRowsNeeded, SUBAGENTS_MARK, SessionMark,
    SessionMarkKey, SpawnCall, SubagentRecord, SubagentState,
};
pub use hook_session::HookSession;
pub use role_source::{RoleConfidence, RoleSource, parse_role_tag};
pub use tool_targets::{PathFacts, name_in_project, paths_of_call};
