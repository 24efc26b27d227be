//! Reports about hooks: subagents, the log, statistics, and the caller of a tool call.

use serde::Serialize;
use serde_json::Value;

use crate::record::RecordPosition;
use crate::time::Timestamp;

use super::hook_rows::SubagentState;

/// The number of log lines if the query gives none.
pub const USUAL_LOG: u32 = 50;

/// Selects subagents of a tenant, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubagentQuery {
    pub session_id: Option<String>,
    pub state: Option<SubagentState>,
    /// Only subagents that were created in this period.
    pub from: Option<Timestamp>,
    pub before: Option<Timestamp>,
    /// Only subagents after this position.
    pub after: Option<RecordPosition>,
    pub limit: u32,
}

/// Selects sessions of a tenant, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HookSessionQuery {
    pub session_id: Option<String>,
    /// Only sessions that were created in this period.
    pub from: Option<Timestamp>,
    pub before: Option<Timestamp>,
    pub limit: u32,
}

/// What a later look at a transcript found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookUsageUpdate {
    pub session_id: String,
    /// None: the session's main agent.
    pub agent_id: Option<String>,
    /// The start or prompt that the row had. After another one, the update does not count.
    pub since: Option<Timestamp>,
    pub usage: Option<String>,
    pub usage_complete: bool,
}

/// Selects lines of a tenant's log, newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogQuery {
    pub session_id: Option<String>,
    /// Only lines before the line with this number.
    pub before: Option<i64>,
    pub limit: u32,
}

impl Default for LogQuery {
    fn default() -> Self {
        Self { session_id: None, before: None, limit: USUAL_LOG }
    }
}

/// A line of the log as it was kept.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HookLogRecord {
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
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HookStats {
    /// One entry per event and hook, the most frequent first.
    pub hooks: Vec<HookFigures>,
    /// The sessions with the latest events, newest first.
    pub sessions: Vec<SessionFigures>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HookFigures {
    pub event_type: String,
    pub hook_name: String,
    pub count: u64,
    pub injected: u64,
    pub blocked: u64,
    pub average_ms: Option<f64>,
    pub max_ms: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SessionFigures {
    pub session_id: String,
    pub count: u64,
    pub injected: u64,
    pub blocked: u64,
    /// Subagents that have not ended.
    pub active: u64,
    /// Active subagents that have not got their convention.
    pub unprocessed: u64,
    pub last_at: Timestamp,
}

/// The caller of a tool call: the main agent if `agent_id` is None.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolCaller {
    pub session_id: String,
    pub agent_id: Option<String>,
    pub agent_type: Option<String>,
    pub role: Option<String>,
}

/// How far a transcript has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TranscriptOffset {
    pub inode: u64,
    pub offset: u64,
    pub lines: u64,
}
