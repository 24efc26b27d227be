//! Queries on subagents and hooks.

use shikiri_model::execution::{Cost, PriceList, TokenUsage};
use shikiri_model::hook::{
    FileTouchQuery, FileTouchRecord, HookLogRecord, HookStats, LogQuery, RoleSource, SubagentQuery,
    SubagentRecord, ToolCaller,
};
use shikiri_model::ids::TenantId;
use shikiri_model::record::RecordPosition;
use shikiri_model::time::Timestamp;
use shikiri_runtime::AppError;

use crate::Subagents;
use crate::hook_usage::spending;

/// A subagent, and what it spent if that is known.
#[derive(Clone, Debug, PartialEq)]
pub struct SubagentView {
    pub subagent: SubagentRecord,
    pub spent: Option<SubagentSpending>,
    /// Until its end, or up to now.
    pub duration_ms: i64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SubagentSpending {
    pub usage: TokenUsage,
    /// None if neither a model record nor the program has the prices.
    pub cost: Option<Cost>,
    /// The models whose prices are the built-in ones.
    pub built_in_of: Vec<String>,
}

impl Subagents {
    /// Subagents of a tenant, newest first.
    pub async fn subagents(
        &self,
        tenant: &TenantId,
        mut query: SubagentQuery,
    ) -> Result<(Vec<SubagentView>, Option<RecordPosition>), AppError> {
        self.check_hook_tenant(tenant).await?;
        let limit = query.limit as usize;
        query.limit = query.limit.saturating_add(1);
        let mut found = self.runtime.store().hooks().subagents(tenant, query).await?;
        let more = found.len() > limit;
        found.truncate(limit);
        let last = found.last().filter(|_| more);
        let next = last
            .map(|last| RecordPosition { created_at: last.created_at, id: last.agent_id.clone() });
        self.read_subagent_usage(tenant, &mut found).await?;
        let prices = self.tenancy.prices().await?;
        let now = self.runtime.store().now().await?;
        Ok((SubagentView::of_all(found, &prices, now), next))
    }

    /// Sets the role of a subagent by hand.
    pub async fn set_role(
        &self,
        tenant: &TenantId,
        agent_id: &str,
        role: &str,
    ) -> Result<SubagentView, AppError> {
        let role = role.trim();
        let is_name = (1..=64).contains(&role.len())
            && !role.chars().any(|c| c.is_control() || c.is_whitespace());
        if !is_name {
            return Err(AppError::invalid("role", "is 1 to 64 characters without spaces"));
        }
        let changed =
            self.runtime.store().hooks().set_role(tenant, agent_id, role, RoleSource::Manual);
        let subagent = changed.await?.ok_or_else(|| AppError::not_found("subagent", agent_id))?;
        let (prices, now) = (self.tenancy.prices().await?, self.runtime.store().now().await?);
        Ok(SubagentView::new(subagent, &prices, now))
    }

    /// Deletes a session's subagents; returns how many there were.
    pub async fn forget_hook_session(
        &self,
        tenant: &TenantId,
        session_id: &str,
    ) -> Result<u64, AppError> {
        Ok(self.runtime.store().hooks().forget_session(tenant, session_id).await?)
    }

    /// Lines of the log of hooks, newest first.
    pub async fn hook_log(
        &self,
        tenant: &TenantId,
        mut query: LogQuery,
    ) -> Result<(Vec<HookLogRecord>, Option<RecordPosition>), AppError> {
        self.check_hook_tenant(tenant).await?;
        let limit = query.limit as usize;
        query.limit = query.limit.saturating_add(1);
        let mut lines = self.runtime.store().hooks().log(tenant, query).await?;
        let more = lines.len() > limit;
        lines.truncate(limit);
        let last = lines.last().filter(|_| more);
        let next =
            last.map(|last| RecordPosition { created_at: last.timestamp, id: last.id.to_string() });
        Ok((lines, next))
    }

    pub async fn hook_stats(&self, tenant: &TenantId) -> Result<HookStats, AppError> {
        self.check_hook_tenant(tenant).await?;
        Ok(self.runtime.store().hooks().stats(tenant).await?)
    }

    /// The tool calls that used a file, newest first.
    pub async fn touches(
        &self,
        tenant: &TenantId,
        query: FileTouchQuery,
    ) -> Result<Vec<FileTouchRecord>, AppError> {
        self.check_hook_tenant(tenant).await?;
        Ok(self.runtime.store().hooks().touches(tenant, query).await?)
    }

    /// The caller of the MCP tool call that has this id in Claude Code. None if no hook reported
    /// it.
    pub async fn who_called(
        &self,
        tenant: &TenantId,
        tool_use_id: &str,
    ) -> Result<Option<ToolCaller>, AppError> {
        Ok(self.runtime.store().hooks().find_tool_caller(tenant, tool_use_id).await?)
    }

    /// Refuses unknown tenants except `local`: hook processes write for it before it is created.
    pub(crate) async fn check_hook_tenant(&self, tenant: &TenantId) -> Result<(), AppError> {
        if *tenant != TenantId::local() {
            self.runtime.tenant(tenant).await?;
        }
        Ok(())
    }
}

impl SubagentView {
    pub(crate) fn new(subagent: SubagentRecord, prices: &PriceList, now: Timestamp) -> Self {
        let spent = subagent.usage.as_deref().and_then(|text| spending([text], prices));
        let end = subagent.ended_at.unwrap_or(now);
        let duration = end.since(subagent.created_at).as_millis();
        let duration_ms = i64::try_from(duration).unwrap_or(i64::MAX);
        Self { subagent, spent, duration_ms }
    }
}
