//! Hooks in the SQLite file that hook processes write as well.

use async_trait::async_trait;
use shikiri_model::hook::{
    EvidenceRequest, FileTouchQuery, FileTouchRecord, HookLogRecord, HookOutcome, HookRowChange,
    HookSession, HookSessionQuery, HookStats, HookUsageUpdate, LogQuery, RoleSource, SubagentQuery,
    SubagentRecord, ToolCaller, TranscriptOffset, decide,
};
use shikiri_model::ids::TenantId;
use shikiri_model::time::Timestamp;
use shikiri_sqlite::hook_rows;

use super::SqliteStore;
use crate::error::StoreError;
use crate::hook_store::{HookEventInput, HookStore};

#[async_trait]
impl HookStore for SqliteStore {
    async fn handle_event(
        &self,
        tenant: &TenantId,
        turn: HookEventInput,
    ) -> Result<HookOutcome, StoreError> {
        let (tenant, now) = (tenant.clone(), self.clock.now());
        self.write(move |connection| {
            let known = hook_rows::load(connection, tenant.as_str(), &turn.needs())?;
            let HookEventInput { payload, conventions, evidence, .. } = &turn;
            let outcome = decide(payload, &known, evidence, conventions, now);
            if let HookOutcome::Wants(EvidenceRequest::Start { waiting: Some(call) }) = &outcome {
                let waiting = HookRowChange::Spawn((**call).clone());
                hook_rows::write(connection, tenant.as_str(), &[waiting])?;
            }
            if let HookOutcome::Done(decision) = &outcome {
                let (tenant, session) = (tenant.as_str(), &payload.session_id);
                hook_rows::write(connection, tenant, &decision.changes)?;
                for (path, read) in &turn.read {
                    hook_rows::set_read_to(connection, path, *read, now)?;
                }
                hook_rows::log(connection, tenant, session, &decision.log, now, turn.took_ms())?;
            }
            Ok(outcome)
        })
        .await
    }

    async fn confirm(
        &self,
        tenant: &TenantId,
        me: &str,
        confirmed: Vec<HookRowChange>,
    ) -> Result<bool, StoreError> {
        let (tenant, me) = (tenant.clone(), me.to_owned());
        self.write(move |c| hook_rows::confirm(c, tenant.as_str(), &me, &confirmed)).await
    }

    async fn read_to(&self, path: &str) -> Result<Option<TranscriptOffset>, StoreError> {
        let path = path.to_owned();
        self.readers.read_short(move |c| Ok(hook_rows::read_to(c, &path)?)).await
    }

    async fn subagent(
        &self,
        tenant: &TenantId,
        agent_id: &str,
    ) -> Result<Option<SubagentRecord>, StoreError> {
        let (tenant, agent_id) = (tenant.clone(), agent_id.to_owned());
        self.readers.read_short(move |c| Ok(hook_rows::find(c, tenant.as_str(), &agent_id)?)).await
    }

    async fn subagents(
        &self,
        tenant: &TenantId,
        query: SubagentQuery,
    ) -> Result<Vec<SubagentRecord>, StoreError> {
        let tenant = tenant.clone();
        self.readers.read(move |c| Ok(hook_rows::subagents(c, tenant.as_str(), &query)?)).await
    }

    async fn sessions(
        &self,
        tenant: &TenantId,
        query: HookSessionQuery,
    ) -> Result<Vec<HookSession>, StoreError> {
        let tenant = tenant.clone();
        self.readers.read(move |c| Ok(hook_rows::sessions(c, tenant.as_str(), &query)?)).await
    }

    async fn update_usage(
        &self,
        tenant: &TenantId,
        updates: Vec<HookUsageUpdate>,
    ) -> Result<(), StoreError> {
        let tenant = tenant.clone();
        self.write(move |c| hook_rows::update_usage(c, tenant.as_str(), &updates)).await
    }

    async fn set_role(
        &self,
        tenant: &TenantId,
        agent_id: &str,
        role: &str,
        source: RoleSource,
    ) -> Result<Option<SubagentRecord>, StoreError> {
        let (tenant, agent_id, role) = (tenant.clone(), agent_id.to_owned(), role.to_owned());
        self.write(move |c| hook_rows::set_role(c, tenant.as_str(), &agent_id, &role, source)).await
    }

    async fn forget_session(&self, tenant: &TenantId, session_id: &str) -> Result<u64, StoreError> {
        let (tenant, session_id) = (tenant.clone(), session_id.to_owned());
        self.write(move |c| hook_rows::forget_session(c, tenant.as_str(), &session_id)).await
    }

    async fn log(
        &self,
        tenant: &TenantId,
        query: LogQuery,
    ) -> Result<Vec<HookLogRecord>, StoreError> {
        let tenant = tenant.clone();
        self.readers.read(move |c| Ok(hook_rows::list_log(c, tenant.as_str(), &query)?)).await
    }

    async fn stats(&self, tenant: &TenantId) -> Result<HookStats, StoreError> {
        let tenant = tenant.clone();
        self.readers.read(move |c| Ok(hook_rows::stats(c, tenant.as_str())?)).await
    }

    async fn find_tool_caller(
        &self,
        tenant: &TenantId,
        tool_use_id: &str,
    ) -> Result<Option<ToolCaller>, StoreError> {
        let (tenant, id) = (tenant.clone(), tool_use_id.to_owned());
        self.readers
            .read_short(move |c| Ok(hook_rows::find_tool_caller(c, tenant.as_str(), &id)?))
            .await
    }

    async fn touches(
        &self,
        tenant: &TenantId,
        query: FileTouchQuery,
    ) -> Result<Vec<FileTouchRecord>, StoreError> {
        let tenant = tenant.clone();
        self.readers.read(move |c| Ok(hook_rows::list_touches(c, tenant.as_str(), &query)?)).await
    }

    async fn purge_log(&self, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
        // Usually there is nothing to remove, and a read is enough to know.
        if !self.readers.read_short(move |c| Ok(hook_rows::has_old_log(c, before)?)).await? {
            return Ok(0);
        }
        self.write(move |c| hook_rows::purge_log(c, before, limit)).await
    }
}
