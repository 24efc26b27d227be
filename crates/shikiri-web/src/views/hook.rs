use serde::Serialize;
use shikiri_model::execution::{Cost, TokenUsage};
use shikiri_model::hook::{RoleConfidence, RoleSource, SubagentState};
use shikiri_model::time::Timestamp;
use shikiri_subagents::{HookSessionView, HookSpending, SubagentView};
use utoipa::ToSchema;

use super::schemas::UsageSchema;
use super::words::SubagentStateSchema;

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
    confidence: RoleConfidence,
    #[schema(value_type = SubagentStateSchema)]
    state: SubagentState,
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
    #[schema(value_type = Option<UsageSchema>)]
    usage: Option<TokenUsage>,
    /// Whether nothing is missing in `usage`.
    usage_complete: bool,
    /// Null if it is not known, or no model has the prices.
    #[schema(value_type = Option<f64>)]
    cost_usd: Option<Cost>,
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
            state: subagent.state,
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
            usage: spent.map(|spent| spent.usage),
            usage_complete: subagent.usage_complete,
            cost_usd,
        }
    }
}

/// A session of Claude Code, as its hooks told of it.
#[derive(Serialize)]
pub struct HookSessionJson {
    session_id: String,
    /// The type of a session that is an agent itself, such as a teammate in its own pane.
    agent_type: Option<String>,
    created_at: Timestamp,
    ended_at: Option<Timestamp>,
    /// What the main agent spent.
    usage: Option<TokenUsage>,
    usage_complete: bool,
    cost_usd: Option<Cost>,
    total: HookTotalJson,
}

/// A sum over agents.
#[derive(Serialize)]
struct HookTotalJson {
    usage: Option<TokenUsage>,
    cost_usd: Option<Cost>,
    /// The number of agents whose usage is not known, or not complete.
    incomplete: u64,
}

impl From<HookSessionView> for HookSessionJson {
    fn from(view: HookSessionView) -> Self {
        let HookSessionView { session, spent, total, incomplete } = view;
        Self {
            session_id: session.session_id,
            agent_type: session.agent_type,
            created_at: session.created_at,
            ended_at: session.ended_at,
            usage: spent.as_ref().map(|spent| spent.usage),
            usage_complete: session.usage_complete,
            cost_usd: spent.and_then(|spent| spent.cost),
            total: HookTotalJson {
                usage: total.as_ref().map(|total| total.usage),
                cost_usd: total.and_then(|total| total.cost),
                incomplete,
            },
        }
    }
}

/// What sessions of Claude Code spent.
#[derive(Serialize)]
pub struct HookSpendingJson {
    sessions: u64,
    subagents: u64,
    /// By model.
    items: Vec<HookModelJson>,
    total: HookTotalJson,
}

#[derive(Serialize)]
struct HookModelJson {
    key: String,
    usage: TokenUsage,
    cost_usd: Option<Cost>,
}

impl From<HookSpending> for HookSpendingJson {
    fn from(spending: HookSpending) -> Self {
        let HookSpending { sessions, subagents, by_model, total, incomplete } = spending;
        let item = |(key, (usage, cost_usd))| HookModelJson { key, usage, cost_usd };
        Self {
            sessions,
            subagents,
            items: by_model.into_iter().map(item).collect(),
            total: HookTotalJson {
                usage: total.as_ref().map(|total| total.usage),
                cost_usd: total.and_then(|total| total.cost),
                incomplete,
            },
        }
    }
}
