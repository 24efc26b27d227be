//! What can be asked about hooks afterwards: subagents, the log, figures, and who made a call.

use serde_json::Value;

use crate::record::Position;
use crate::time::Timestamp;

use super::registry::SubagentState;

/// How many lines of the log are given if nobody says how many.
pub const USUAL_LOG: u32 = 50;

/// Which subagents of a tenant, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubagentQuery {
    pub session_id: Option<String>,
    pub state: Option<SubagentState>,
    /// Those that come after this one.
    pub after: Option<Position>,
    pub limit: u32,
}

/// Which lines of a tenant's log, newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogQuery {
    pub session_id: Option<String>,
    /// Only lines that were written before the one with this number.
    pub before: Option<i64>,
    pub limit: u32,
}

impl Default for LogQuery {
    fn default() -> Self {
        Self { session_id: None, before: None, limit: USUAL_LOG }
    }
}

/// A line of the log as it was kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Logged {
    pub id: i64,
    pub session_id: String,
    pub hook_name: String,
    pub event_type: String,
    pub agent_id: Option<String>,
    pub timestamp: Timestamp,
    pub result: Option<String>,
    pub details: Option<Value>,
    pub duration_ms: Option<i64>,
    pub tool_use_id: Option<String>,
}

/// Figures about a tenant's hooks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HookStats {
    /// Of each event and hook, the most frequent first.
    pub hooks: Vec<HookFigures>,
    /// Of the sessions that were heard of last, newest first.
    pub sessions: Vec<SessionFigures>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct HookFigures {
    pub event_type: String,
    pub hook_name: String,
    pub count: u64,
    pub injected: u64,
    pub blocked: u64,
    pub average_ms: Option<f64>,
    pub max_ms: Option<i64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SessionFigures {
    pub session_id: String,
    pub count: u64,
    pub injected: u64,
    pub blocked: u64,
    /// Its subagents that have not ended.
    pub active: u64,
    /// Of those, the ones that have not got their convention.
    pub unprocessed: u64,
    pub last_at: Timestamp,
}

/// Who made a call of a tool: the main agent if there is no `agent_id`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CalledBy {
    pub session_id: String,
    pub agent_id: Option<String>,
    pub agent_type: Option<String>,
    pub role: Option<String>,
}

/// How far a transcript has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadTo {
    pub inode: u64,
    pub offset: u64,
    pub lines: u64,
}
