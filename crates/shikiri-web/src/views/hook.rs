use serde::Serialize;
use shikiri_model::execution::{Cost, TokenUsage};
use shikiri_model::hook::{RoleConfidence, RoleSource, SubagentState};
use shikiri_model::time::Timestamp;
use shikiri_subagents::SubagentView;
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
            cost_usd,
        }
    }
}
