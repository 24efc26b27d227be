//! The sessions of Claude Code that hooks reported last: main agent, subagents, and what each did.

use shikiri_model::execution::{Cost, TokenUsage};
use shikiri_model::hook::{HookSessionActivity, LogQuery, SubagentQuery, read_activity};
use shikiri_model::ids::TenantId;
use shikiri_runtime::AppError;

use crate::Subagents;
use crate::hook_reports::{SubagentSpending, SubagentView};

/// The lines of the log that are read. A session without an event among them is not found.
const LOG_LINES: u32 = 1_000;
/// The subagents of a session that are read.
const SUBAGENTS: u32 = 200;

/// A session with its newest subagents.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaudeSessionView {
    pub activity: HookSessionActivity,
    /// Active ones first, then those that ended; both newest first.
    pub subagents: Vec<SubagentView>,
}

impl Subagents {
    /// The sessions with the latest events, newest first.
    pub async fn claude_sessions(
        &self,
        tenant: &TenantId,
        limit: usize,
    ) -> Result<Vec<ClaudeSessionView>, AppError> {
        self.check_hook_tenant(tenant).await?;
        let hooks = self.runtime.store().hooks();
        let query = LogQuery { limit: LOG_LINES, ..LogQuery::default() };
        let sessions = read_activity(&hooks.log(tenant, query).await?);
        if sessions.is_empty() {
            return Ok(Vec::new());
        }
        let (prices, now) = (self.prices().await?, self.runtime.store().now().await?);
        let mut views = Vec::new();
        for activity in sessions.into_iter().take(limit) {
            let session_id = Some(activity.session_id.clone());
            let query = SubagentQuery { session_id, limit: SUBAGENTS, ..SubagentQuery::default() };
            let found = hooks.subagents(tenant, query).await?;
            let view = |subagent| SubagentView::new(subagent, &prices, now);
            let mut subagents: Vec<_> = found.into_iter().map(view).collect();
            // A stable sort keeps the newest first.
            subagents.sort_by_key(|view| !view.subagent.is_active());
            views.push(ClaudeSessionView { activity, subagents });
        }
        Ok(views)
    }
}

impl ClaudeSessionView {
    /// What the subagents spent as far as it is known, and None if nothing is. What the main agent
    /// spends is not reported to hooks.
    pub fn spent(&self) -> Option<SubagentSpending> {
        let known: Vec<_> = self.subagents.iter().filter_map(|view| view.spent.as_ref()).collect();
        let usage: TokenUsage = known.iter().map(|spent| spent.usage).sum();
        let cost = known.iter().try_fold(Cost::default(), |sum, spent| Some(sum + spent.cost?));
        (!known.is_empty()).then_some(SubagentSpending { usage, cost })
    }

    pub fn count_active(&self) -> usize {
        self.subagents.iter().filter(|view| view.subagent.is_active()).count()
    }
}
