//! What can be asked about subagents and hooks.

use std::collections::BTreeMap;

use shikiri_model::execution::{Cost, PriceList, Usage};
use shikiri_model::hook::{
    CalledBy, HookStats, LogQuery, Logged, RoleSource, Subagent, SubagentQuery,
};
use shikiri_model::ids::TenantId;
use shikiri_model::record::Position;
use shikiri_model::time::Timestamp;

use crate::app::App;
use crate::error::AppError;

/// A subagent, with what it spent as far as that is known.
#[derive(Clone, Debug, PartialEq)]
pub struct SubagentView {
    pub subagent: Subagent,
    pub spent: Option<Spent>,
    /// Until its end, or up to now.
    pub duration_ms: i64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Spent {
    pub usage: Usage,
    /// None if no model record has the prices.
    pub cost: Option<Cost>,
}

impl App {
    /// Subagents of a tenant, newest first.
    pub async fn subagents(
        &self,
        tenant: &TenantId,
        mut query: SubagentQuery,
    ) -> Result<(Vec<SubagentView>, Option<Position>), AppError> {
        self.check_hook_tenant(tenant).await?;
        let limit = query.limit as usize;
        query.limit = query.limit.saturating_add(1);
        let mut found = self.store.hooks().subagents(tenant, query).await?;
        let more = found.len() > limit;
        found.truncate(limit);
        let last = found.last().filter(|_| more);
        let next =
            last.map(|last| Position { created_at: last.created_at, id: last.agent_id.clone() });
        let prices = self.prices().await?;
        let now = self.store.now().await?;
        let views = found.into_iter().map(|subagent| SubagentView::new(subagent, &prices, now));
        Ok((views.collect(), next))
    }

    /// Says by hand what a subagent is there for.
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
        let changed = self.store.hooks().set_role(tenant, agent_id, role, RoleSource::Manual);
        let subagent = changed.await?.ok_or_else(|| AppError::not_found("subagent", agent_id))?;
        let (prices, now) = (self.prices().await?, self.store.now().await?);
        Ok(SubagentView::new(subagent, &prices, now))
    }

    /// Forgets a session's subagents; returns how many there were.
    pub async fn forget_hook_session(
        &self,
        tenant: &TenantId,
        session_id: &str,
    ) -> Result<u64, AppError> {
        Ok(self.store.hooks().forget_session(tenant, session_id).await?)
    }

    /// Lines of the log of hooks, newest first.
    pub async fn hook_log(
        &self,
        tenant: &TenantId,
        mut query: LogQuery,
    ) -> Result<(Vec<Logged>, Option<Position>), AppError> {
        self.check_hook_tenant(tenant).await?;
        let limit = query.limit as usize;
        query.limit = query.limit.saturating_add(1);
        let mut lines = self.store.hooks().log(tenant, query).await?;
        let more = lines.len() > limit;
        lines.truncate(limit);
        let last = lines.last().filter(|_| more);
        let next =
            last.map(|last| Position { created_at: last.timestamp, id: last.id.to_string() });
        Ok((lines, next))
    }

    pub async fn hook_stats(&self, tenant: &TenantId) -> Result<HookStats, AppError> {
        self.check_hook_tenant(tenant).await?;
        Ok(self.store.hooks().stats(tenant).await?)
    }

    /// Who made the call of an MCP tool that Claude Code gave this id; none if no hook told of it.
    pub async fn who_called(
        &self,
        tenant: &TenantId,
        tool_use_id: &str,
    ) -> Result<Option<CalledBy>, AppError> {
        Ok(self.store.hooks().who_called(tenant, tool_use_id).await?)
    }

    /// Hook processes write for `local` before anybody has made it.
    async fn check_hook_tenant(&self, tenant: &TenantId) -> Result<(), AppError> {
        if *tenant != TenantId::local() {
            self.tenant(tenant).await?;
        }
        Ok(())
    }

    async fn prices(&self) -> Result<PriceList, AppError> {
        let (mut prices, mut after) = (Vec::new(), None);
        loop {
            let (models, next) = self.list_models(after, 200).await?;
            prices.extend(models.into_iter().map(|m| (m.value.model_name, m.value.prices)));
            match next {
                Some(next) => after = Some(next),
                None => return Ok(PriceList::new(prices)),
            }
        }
    }
}

impl SubagentView {
    fn new(subagent: Subagent, prices: &PriceList, now: Timestamp) -> Self {
        let spent = subagent.usage.as_deref().and_then(|text| spent(text, prices));
        let end = subagent.ended_at.unwrap_or(now);
        let duration = end.since(subagent.created_at).as_millis();
        let duration_ms = i64::try_from(duration).unwrap_or(i64::MAX);
        Self { subagent, spent, duration_ms }
    }
}

/// The sum over all models; without the prices of one of them, the cost is not known.
fn spent(text: &str, prices: &PriceList) -> Option<Spent> {
    let by_model: BTreeMap<String, Usage> = serde_json::from_str(text).ok()?;
    let mut sum = Spent { usage: Usage::default(), cost: Some(Cost::default()) };
    for (model, usage) in by_model {
        let cost = prices.of(&model).map(|prices| prices.cost(&usage));
        sum.cost = sum.cost.zip(cost).map(|(sum, cost)| sum + cost);
        sum.usage += usage;
    }
    Some(sum)
}
