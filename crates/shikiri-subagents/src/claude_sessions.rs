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
    /// What the main agent spent, as far as it is known.
    pub main: Option<SubagentSpending>,
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
        let (prices, now) = (self.tenancy.prices().await?, self.runtime.store().now().await?);
        let mut views = Vec::new();
        for activity in sessions.into_iter().take(limit) {
            let session_id = Some(activity.session_id.clone());
            let query = SubagentQuery { session_id, limit: SUBAGENTS, ..SubagentQuery::default() };
            let mut found = hooks.subagents(tenant, query).await?;
            self.read_subagent_usage(tenant, &mut found).await?;
            let mut subagents = SubagentView::of_all(found, &prices, now);
            // A stable sort keeps the newest first.
            subagents.sort_by_key(|view| !view.subagent.is_active());
            let session = self.hook_session(tenant, &activity.session_id).await?;
            let main = session.and_then(|session| session.spent);
            views.push(ClaudeSessionView { activity, main, subagents });
        }
        Ok(views)
    }
}

impl ClaudeSessionView {
    /// What the main agent and the subagents spent as far as it is known, and None if nothing is.
    pub fn spent(&self) -> Option<SubagentSpending> {
        let of_subagents = self.subagents.iter().filter_map(|view| view.spent.as_ref());
        let known: Vec<_> = self.main.iter().chain(of_subagents).collect();
        let usage: TokenUsage = known.iter().map(|spent| spent.usage).sum();
        let cost = known.iter().try_fold(Cost::default(), |sum, spent| Some(sum + spent.cost?));
        let mut built_in_of: Vec<_> =
            known.iter().flat_map(|spent| spent.built_in_of.iter().cloned()).collect();
        built_in_of.sort_unstable();
        built_in_of.dedup();
        (!known.is_empty()).then_some(SubagentSpending { usage, cost, built_in_of })
    }

    pub fn count_active(&self) -> usize {
        self.subagents.iter().filter(|view| view.subagent.is_active()).count()
    }
}
