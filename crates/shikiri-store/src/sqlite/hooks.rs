//! Hooks in the file that hook processes write too.

use async_trait::async_trait;
use shikiri_model::hook::{
    CalledBy, Change, HookStats, LogQuery, Logged, Outcome, ReadTo, RoleSource, Subagent,
    SubagentQuery, decide,
};
use shikiri_model::ids::TenantId;
use shikiri_model::time::Timestamp;
use shikiri_sqlite::hooks;

use super::SqliteStore;
use crate::error::StoreError;
use crate::hooks::{HookStore, HookTurn};

#[async_trait]
impl HookStore for SqliteStore {
    async fn take(&self, tenant: &TenantId, turn: HookTurn) -> Result<Outcome, StoreError> {
        let (tenant, now) = (tenant.clone(), self.clock.now());
        self.write(move |connection| {
            let known = hooks::load(connection, tenant.as_str(), &turn.needs())?;
            let HookTurn { payload, conventions, evidence, .. } = &turn;
            let outcome = decide(payload, &known, evidence, conventions, now);
            if let Outcome::Done(decision) = &outcome {
                let (tenant, session) = (tenant.as_str(), &payload.session_id);
                hooks::write(connection, tenant, &decision.changes)?;
                for (path, read) in &turn.read {
                    hooks::set_read_to(connection, path, *read, now)?;
                }
                hooks::log(connection, tenant, session, &decision.log, now, turn.took_ms())?;
            }
            Ok(outcome)
        })
        .await
    }

    async fn confirm(
        &self,
        tenant: &TenantId,
        me: &str,
        told: Vec<Change>,
    ) -> Result<bool, StoreError> {
        let (tenant, me) = (tenant.clone(), me.to_owned());
        self.write(move |c| hooks::confirm(c, tenant.as_str(), &me, &told)).await
    }

    async fn read_to(&self, path: &str) -> Result<Option<ReadTo>, StoreError> {
        let path = path.to_owned();
        self.readers.read_short(move |c| Ok(hooks::read_to(c, &path)?)).await
    }

    async fn subagent(
        &self,
        tenant: &TenantId,
        agent_id: &str,
    ) -> Result<Option<Subagent>, StoreError> {
        let (tenant, agent_id) = (tenant.clone(), agent_id.to_owned());
        self.readers.read_short(move |c| Ok(hooks::find(c, tenant.as_str(), &agent_id)?)).await
    }

    async fn subagents(
        &self,
        tenant: &TenantId,
        query: SubagentQuery,
    ) -> Result<Vec<Subagent>, StoreError> {
        let tenant = tenant.clone();
        self.readers.read(move |c| Ok(hooks::subagents(c, tenant.as_str(), &query)?)).await
    }

    async fn set_role(
        &self,
        tenant: &TenantId,
        agent_id: &str,
        role: &str,
        source: RoleSource,
    ) -> Result<Option<Subagent>, StoreError> {
        let (tenant, agent_id, role) = (tenant.clone(), agent_id.to_owned(), role.to_owned());
        self.write(move |c| hooks::set_role(c, tenant.as_str(), &agent_id, &role, source)).await
    }

    async fn forget_session(&self, tenant: &TenantId, session_id: &str) -> Result<u64, StoreError> {
        let (tenant, session_id) = (tenant.clone(), session_id.to_owned());
        self.write(move |c| hooks::forget_session(c, tenant.as_str(), &session_id)).await
    }

    async fn log(&self, tenant: &TenantId, query: LogQuery) -> Result<Vec<Logged>, StoreError> {
        let tenant = tenant.clone();
        self.readers.read(move |c| Ok(hooks::logged(c, tenant.as_str(), &query)?)).await
    }

    async fn stats(&self, tenant: &TenantId) -> Result<HookStats, StoreError> {
        let tenant = tenant.clone();
        self.readers.read(move |c| Ok(hooks::stats(c, tenant.as_str())?)).await
    }

    async fn who_called(
        &self,
        tenant: &TenantId,
        tool_use_id: &str,
    ) -> Result<Option<CalledBy>, StoreError> {
        let (tenant, id) = (tenant.clone(), tool_use_id.to_owned());
        self.readers.read_short(move |c| Ok(hooks::who_called(c, tenant.as_str(), &id)?)).await
    }

    async fn purge_log(&self, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
        // Most of the time there is nothing: that is found without a write.
        if !self.readers.read_short(move |c| Ok(hooks::has_old_log(c, before)?)).await? {
            return Ok(0);
        }
        self.write(move |c| hooks::purge_log(c, before, limit)).await
    }
}
