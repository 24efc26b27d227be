//! The trait for rows of Claude Code's hooks: what a hook process does in its project's file, for a
//! server on either database.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use shikiri_model::hook::{
    Conventions, FileTouchQuery, FileTouchRecord, HookEvidence, HookInput, HookLogRecord,
    HookOutcome, HookRowChange, HookRowsNeeded, HookSession, HookSessionQuery, HookStats,
    HookUsageUpdate, LogQuery, RoleSource, SubagentQuery, SubagentRecord, ToolCaller,
    TranscriptOffset,
};
use shikiri_model::ids::TenantId;
use shikiri_model::time::Timestamp;

use crate::error::StoreError;

/// One event with its evidence from outside the rows.
#[derive(Clone, Debug)]
pub struct HookEventInput {
    pub payload: Arc<HookInput>,
    pub conventions: Arc<Conventions>,
    pub evidence: HookEvidence,
    /// The new read positions of the transcripts.
    pub read: Vec<(String, TranscriptOffset)>,
    /// When the event arrived, for the log.
    pub started: Instant,
}

impl HookEventInput {
    pub(crate) fn needs(&self) -> HookRowsNeeded {
        HookRowsNeeded::of(&self.payload, &self.evidence, &self.conventions)
    }

    pub(crate) fn took_ms(&self) -> i64 {
        i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX)
    }
}

#[async_trait]
pub trait HookStore: Send + Sync {
    /// Decides an event while its rows cannot change, and writes the changes and the log entry.
    /// Nothing is written if the decision needs more evidence.
    async fn handle_event(
        &self,
        tenant: &TenantId,
        turn: HookEventInput,
    ) -> Result<HookOutcome, StoreError>;

    /// Confirms that this claimant delivered an answer. Returns false and writes nothing if the
    /// claim was lost.
    async fn confirm(
        &self,
        tenant: &TenantId,
        me: &str,
        confirmed: Vec<HookRowChange>,
    ) -> Result<bool, StoreError>;

    /// The position up to which a transcript was read.
    async fn read_to(&self, path: &str) -> Result<Option<TranscriptOffset>, StoreError>;

    async fn subagent(
        &self,
        tenant: &TenantId,
        agent_id: &str,
    ) -> Result<Option<SubagentRecord>, StoreError>;

    /// Subagents, newest first.
    async fn subagents(
        &self,
        tenant: &TenantId,
        query: SubagentQuery,
    ) -> Result<Vec<SubagentRecord>, StoreError>;

    /// Sessions of Claude Code, newest first.
    async fn sessions(
        &self,
        tenant: &TenantId,
        query: HookSessionQuery,
    ) -> Result<Vec<HookSession>, StoreError>;

    /// Stores what a later look at transcripts found.
    async fn update_usage(
        &self,
        tenant: &TenantId,
        updates: Vec<HookUsageUpdate>,
    ) -> Result<(), StoreError>;

    /// Sets the role of a subagent; None if there is no such subagent.
    async fn set_role(
        &self,
        tenant: &TenantId,
        agent_id: &str,
        role: &str,
        source: RoleSource,
    ) -> Result<Option<SubagentRecord>, StoreError>;

    /// Removes a session's subagents, calls and marks; returns the number of subagents.
    async fn forget_session(&self, tenant: &TenantId, session_id: &str) -> Result<u64, StoreError>;

    /// Lines of the log, newest first.
    async fn log(
        &self,
        tenant: &TenantId,
        query: LogQuery,
    ) -> Result<Vec<HookLogRecord>, StoreError>;

    async fn stats(&self, tenant: &TenantId) -> Result<HookStats, StoreError>;

    /// The caller of an MCP tool; None if no hook reported the call.
    async fn find_tool_caller(
        &self,
        tenant: &TenantId,
        tool_use_id: &str,
    ) -> Result<Option<ToolCaller>, StoreError>;

    /// The tool calls that used a file, newest first.
    async fn touches(
        &self,
        tenant: &TenantId,
        query: FileTouchQuery,
    ) -> Result<Vec<FileTouchRecord>, StoreError>;

    /// Removes up to `limit` lines of the log, and as many uses of files, from before `before`;
    /// returns the number of removed rows.
    async fn purge_log(&self, before: Timestamp, limit: u32) -> Result<u64, StoreError>;
}
