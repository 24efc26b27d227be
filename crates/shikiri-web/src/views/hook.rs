use serde::{Deserialize, Serialize};
use serde_json::Value;
use shikiri_app::hooks::SubagentView;
use shikiri_model::execution::Cost;
use shikiri_model::hook::{
    Confidence, HookFigures, HookStats, Logged, RoleSource, SessionFigures, SubagentState,
};
use shikiri_model::time::Timestamp;
use utoipa::ToSchema;

use super::execution::UsageJson;

/// A subagent of Claude Code, as its hooks told of it.
#[derive(Serialize, ToSchema)]
#[schema(as = Subagent)]
pub struct SubagentJson {
    agent_id: String,
    session_id: String,
    agent_type: String,
    role: Option<String>,
    /// Where the role comes from: `manual`, `agent_type`, `task_match`, `transcript_parse` or
    /// `fifo`.
    #[schema(value_type = Option<String>)]
    role_source: Option<RoleSource>,
    /// How surely it is known which call spawned it: `exact`, `unique`, `fifo` or `none`.
    #[schema(value_type = String)]
    confidence: Confidence,
    state: SubagentStateJson,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// Whether it has its convention.
    startup_processed: bool,
    #[schema(value_type = Option<String>, format = DateTime)]
    startup_processed_at: Option<Timestamp>,
    task_match_index: Option<i64>,
    /// The call that spawned it.
    tool_use_id: Option<String>,
    /// The subagent that spawned it; the main agent if there is none.
    parent_agent_id: Option<String>,
    /// Which part of the conventions it was given.
    delivered: Option<String>,
    #[schema(value_type = Option<String>, format = DateTime)]
    ended_at: Option<Timestamp>,
    end_reason: Option<String>,
    /// Until its end, or up to now.
    duration_ms: i64,
    /// Known at its end, where its transcript can be read.
    usage: Option<UsageJson>,
    /// Null if it is not known, or no model has the prices.
    #[schema(value_type = Option<f64>)]
    cost_usd: Option<Cost>,
}

#[derive(Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = SubagentState)]
pub enum SubagentStateJson {
    Active,
    Ended,
}

/// An event as the log has it.
#[derive(Serialize, ToSchema)]
#[schema(as = HookLogLine)]
pub struct HookLogJson {
    id: i64,
    session_id: String,
    hook_name: String,
    event_type: String,
    agent_id: Option<String>,
    #[schema(value_type = String, format = DateTime)]
    timestamp: Timestamp,
    /// `ok`, `injected`, `blocked` or `ignored`.
    result: Option<String>,
    #[schema(value_type = Option<Object>)]
    details: Option<Value>,
    duration_ms: Option<i64>,
    tool_use_id: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = HookStats)]
pub struct HookStatsJson {
    /// Of each event and hook, the most frequent first.
    hooks: Vec<HookFiguresJson>,
    /// Of the 50 sessions that were heard of last.
    sessions: Vec<SessionFiguresJson>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = HookFigures)]
struct HookFiguresJson {
    event_type: String,
    hook_name: String,
    count: u64,
    injected: u64,
    blocked: u64,
    average_ms: Option<f64>,
    max_ms: Option<i64>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = HookSessionFigures)]
struct SessionFiguresJson {
    session_id: String,
    count: u64,
    injected: u64,
    blocked: u64,
    /// Subagents that have not ended.
    active: u64,
    /// Of those, the ones without their convention.
    unprocessed: u64,
    #[schema(value_type = String, format = DateTime)]
    last_at: Timestamp,
}

impl From<SubagentView> for SubagentJson {
    fn from(view: SubagentView) -> Self {
        let SubagentView { subagent, spent, duration_ms } = view;
        let cost_usd = spent.as_ref().and_then(|spent| spent.cost);
        Self {
            agent_id: subagent.agent_id,
            session_id: subagent.session_id,
            agent_type: subagent.agent_type,
            role: subagent.role,
            role_source: subagent.role_source,
            confidence: subagent.confidence,
            state: subagent.state.into(),
            created_at: subagent.created_at,
            startup_processed: subagent.startup_processed,
            startup_processed_at: subagent.startup_processed_at,
            task_match_index: subagent.task_match_index,
            tool_use_id: subagent.tool_use_id,
            parent_agent_id: subagent.parent_agent_id,
            delivered: subagent.delivered,
            ended_at: subagent.ended_at,
            end_reason: subagent.end_reason,
            duration_ms,
            usage: spent.map(|spent| spent.usage.into()),
            cost_usd,
        }
    }
}

impl From<SubagentState> for SubagentStateJson {
    fn from(state: SubagentState) -> Self {
        match state {
            SubagentState::Active => Self::Active,
            SubagentState::Ended => Self::Ended,
        }
    }
}

impl From<SubagentStateJson> for SubagentState {
    fn from(state: SubagentStateJson) -> Self {
        match state {
            SubagentStateJson::Active => Self::Active,
            SubagentStateJson::Ended => Self::Ended,
        }
    }
}

impl From<Logged> for HookLogJson {
    fn from(line: Logged) -> Self {
        Self {
            id: line.id,
            session_id: line.session_id,
            hook_name: line.hook_name,
            event_type: line.event_type,
            agent_id: line.agent_id,
            timestamp: line.timestamp,
            result: line.result,
            details: line.details,
            duration_ms: line.duration_ms,
            tool_use_id: line.tool_use_id,
        }
    }
}

impl From<HookStats> for HookStatsJson {
    fn from(stats: HookStats) -> Self {
        Self {
            hooks: stats.hooks.into_iter().map(Into::into).collect(),
            sessions: stats.sessions.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<HookFigures> for HookFiguresJson {
    fn from(figures: HookFigures) -> Self {
        let HookFigures { event_type, hook_name, count, injected, blocked, average_ms, max_ms } =
            figures;
        Self { event_type, hook_name, count, injected, blocked, average_ms, max_ms }
    }
}

impl From<SessionFigures> for SessionFiguresJson {
    fn from(figures: SessionFigures) -> Self {
        let SessionFigures { session_id, count, injected, blocked, active, unprocessed, last_at } =
            figures;
        Self { session_id, count, injected, blocked, active, unprocessed, last_at }
    }
}
