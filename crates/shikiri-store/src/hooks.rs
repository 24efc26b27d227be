//! Rows of Claude Code's hooks: what a hook process does on its project's file, for a server on
//! either database.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use shikiri_model::hook::{
    CalledBy, Change, Conventions, Evidence, HookStats, LogQuery, Logged, Needs, Outcome, Payload,
    ReadTo, RoleSource, Subagent, SubagentQuery,
};
use shikiri_model::ids::TenantId;
use shikiri_model::time::Timestamp;

use crate::error::StoreError;

/// One event, with all that is known about it outside of the rows.
#[derive(Clone, Debug)]
pub struct HookTurn {
    pub payload: Arc<Payload>,
    pub conventions: Arc<Conventions>,
    pub evidence: Evidence,
    /// How far transcripts were read to find the evidence.
    pub read: Vec<(String, ReadTo)>,
    /// When the event came, for the log.
    pub started: Instant,
}

impl HookTurn {
    pub(crate) fn needs(&self) -> Needs {
        Needs::of(&self.payload, &self.evidence, &self.conventions)
    }

    pub(crate) fn took_ms(&self) -> i64 {
        i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX)
    }
}

#[async_trait]
pub trait HookStore: Send + Sync {
    /// Decides an event on rows that nobody else changes meanwhile, and writes what was decided
    /// and its line of the log. Nothing is written if the decision wants to know more.
    async fn take(&self, tenant: &TenantId, turn: HookTurn) -> Result<Outcome, StoreError>;

    /// Writes that an answer has been given by whoever claimed to give it. False, and nothing is
    /// written, if somebody else has taken it on meanwhile.
    async fn confirm(
        &self,
        tenant: &TenantId,
        me: &str,
        told: Vec<Change>,
    ) -> Result<bool, StoreError>;

    /// How far a transcript has been read.
    async fn read_to(&self, path: &str) -> Result<Option<ReadTo>, StoreError>;

    async fn subagent(
        &self,
        tenant: &TenantId,
        agent_id: &str,
    ) -> Result<Option<Subagent>, StoreError>;

    /// Subagents, newest first.
    async fn subagents(
        &self,
        tenant: &TenantId,
        query: SubagentQuery,
    ) -> Result<Vec<Subagent>, StoreError>;

    /// Gives a subagent a role; none if there is no such subagent.
    async fn set_role(
        &self,
        tenant: &TenantId,
        agent_id: &str,
        role: &str,
        source: RoleSource,
    ) -> Result<Option<Subagent>, StoreError>;

    /// Removes a session's subagents, with their calls and what it was told; returns how many
    /// subagents there were.
    async fn forget_session(&self, tenant: &TenantId, session_id: &str) -> Result<u64, StoreError>;

    /// Lines of the log, newest first.
    async fn log(&self, tenant: &TenantId, query: LogQuery) -> Result<Vec<Logged>, StoreError>;

    async fn stats(&self, tenant: &TenantId) -> Result<HookStats, StoreError>;

    /// Who made a call of an MCP tool; none if no hook told of it.
    async fn who_called(
        &self,
        tenant: &TenantId,
        tool_use_id: &str,
    ) -> Result<Option<CalledBy>, StoreError>;

    /// Removes up to `limit` lines of the log from before `before`; returns how many went.
    async fn purge_log(&self, before: Timestamp, limit: u32) -> Result<u64, StoreError>;
}
