//! Conversations: create, update, list, archive, delete, and read their messages.
//!
//! An execution that writes to a conversation holds its lease. Deleting a conversation and
//! forgetting its session need the same lease, so they cannot interfere with an execution.

use std::time::Duration;

use shikiri_model::conversation::{Conversation, ConversationStatus, conversation_lock};
use shikiri_model::execution::{MessageLog, SessionFiles, ToolLog};
use shikiri_model::ids::{ConversationId, ModelId, TenantId};
use shikiri_model::lease::{LeaseChange, LeaseGuard, LeaseRefusal};
use shikiri_model::record::{
    Document, ExpectedVersion, Record, RecordChange, RecordPosition, RecordQuery, StoredDocument,
};
use shikiri_model::run::{Run, run_stream};
use shikiri_runtime::field_checks::{check_text, set};
use shikiri_runtime::leased_change::{HOLD, run_to_completion};
use shikiri_runtime::{AppError, entropy, transact};
use shikiri_store::{Commit, CommitError, StoreExt};

use crate::Executions;
use crate::execution::journal_stream;

/// What a caller may set; absent fields stay as they are.
#[derive(Clone, Debug, Default)]
pub struct ConversationPatch {
    pub title: Option<Option<String>>,
    pub model_id: Option<Option<ModelId>>,
    pub workspace_enabled: Option<Option<bool>>,
    pub status: Option<ConversationStatus>,
    /// Forgets the engine's session: the next execution starts a new one.
    pub forget_session: bool,
}

const MAX_TITLE: usize = 200;
/// The number of messages that one commit removes.
const SLICE: u32 = 200;
/// The number of executions that are removed at a time.
const EXECUTIONS_AT_ONCE: u32 = 50;
/// How long to wait for the lease. Enough for another change, but not for an execution.
const WAIT: Duration = Duration::from_millis(250);

impl ConversationPatch {
    fn apply(&self, conversation: &mut Conversation) {
        set(&mut conversation.title, self.title.as_ref());
        set(&mut conversation.model_id, self.model_id.as_ref());
        set(&mut conversation.workspace_enabled, self.workspace_enabled.as_ref());
        set(&mut conversation.status, self.status.as_ref());
        if self.forget_session {
            conversation.session_id = None;
        }
    }
}

impl Executions {
    pub async fn create_conversation(
        &self,
        tenant: &TenantId,
        patch: ConversationPatch,
    ) -> Result<StoredDocument<Conversation>, AppError> {
        self.check_conversation_patch(&patch).await?;
        let id = ConversationId::mint(self.runtime.store().now().await?, entropy()?);
        let mut conversation = Conversation::new(id, tenant.clone());
        patch.apply(&mut conversation);
        self.runtime.create_in_tenant(tenant, conversation).await
    }

    pub async fn conversation(
        &self,
        tenant: &TenantId,
        id: &ConversationId,
    ) -> Result<StoredDocument<Conversation>, AppError> {
        let found = self.runtime.store().load::<Conversation>(tenant, id.as_str()).await?;
        found.ok_or_else(|| AppError::not_found("conversation", id))
    }

    /// Newest first.
    pub async fn list_conversations(
        &self,
        tenant: &TenantId,
        status: Option<ConversationStatus>,
        after: Option<RecordPosition>,
        limit: u32,
    ) -> Result<(Vec<StoredDocument<Conversation>>, Option<RecordPosition>), AppError> {
        self.runtime.tenant(tenant).await?;
        self.runtime
            .list_records(RecordQuery {
                state: status.map(|status| status.as_str().to_owned()),
                after,
                newest_first: true,
                limit,
                ..RecordQuery::of::<Conversation>(tenant)
            })
            .await
    }

    /// Updates a conversation. Title, model and status may change while an execution runs, which
    /// reads them again when it ends. The session may not change.
    pub async fn update_conversation(
        &self,
        tenant: &TenantId,
        id: &ConversationId,
        patch: ConversationPatch,
    ) -> Result<StoredDocument<Conversation>, AppError> {
        self.check_conversation_patch(&patch).await?;
        if patch.forget_session {
            self.conversation(tenant, id).await?;
            let (executions, tenant, id) = (self.clone(), tenant.clone(), id.clone());
            return run_to_completion(async move {
                let guard = executions.lock_conversation(&id).await?;
                let change = executions.change_under_lock(&tenant, &id, &patch, &guard);
                let changed = executions.runtime.with_renewed_lease(&guard, change).await;
                executions.unlock_after_failure(&guard, &changed).await;
                changed
            })
            .await;
        }
        self.runtime
            .update::<Conversation>(tenant, id.as_str(), |conversation| {
                patch.apply(conversation);
                Ok(())
            })
            .await
    }

    /// No execution can be started in an archived conversation.
    pub async fn archive_conversation(
        &self,
        tenant: &TenantId,
        id: &ConversationId,
    ) -> Result<StoredDocument<Conversation>, AppError> {
        let status = Some(ConversationStatus::Archived);
        let patch = ConversationPatch { status, ..ConversationPatch::default() };
        self.update_conversation(tenant, id, patch).await
    }

    /// The messages, oldest first.
    pub async fn list_messages(
        &self,
        tenant: &TenantId,
        id: &ConversationId,
        after: Option<RecordPosition>,
        limit: u32,
    ) -> Result<(Vec<StoredDocument<MessageLog>>, Option<RecordPosition>), AppError> {
        self.conversation(tenant, id).await?;
        self.runtime.list_records(messages_of(tenant, id, after, limit)).await
    }

    /// Deletes a conversation with its messages, executions, events and files. Usage is kept for
    /// billing.
    ///
    /// The record is deleted last, and all of it under the lease: no execution can start meanwhile,
    /// and an interrupted deletion can be repeated. In the other order, the remaining files could
    /// no longer be found.
    pub async fn delete_conversation(
        &self,
        tenant: &TenantId,
        id: &ConversationId,
    ) -> Result<(), AppError> {
        self.conversation(tenant, id).await?;
        let (executions, tenant, id) = (self.clone(), tenant.clone(), id.clone());
        run_to_completion(async move {
            let guard = executions.lock_conversation(&id).await?;
            let removal = executions.remove_conversation(&tenant, &id, &guard);
            let removed = executions.runtime.with_renewed_lease(&guard, removal).await;
            executions.unlock_after_failure(&guard, &removed).await;
            removed
        })
        .await
    }

    async fn remove_conversation(
        &self,
        tenant: &TenantId,
        id: &ConversationId,
        guard: &LeaseGuard,
    ) -> Result<(), AppError> {
        loop {
            let (slice, _) = self.runtime.list_page(messages_of(tenant, id, None, SLICE)).await?;
            if slice.is_empty() {
                break;
            }
            let commit = Commit::new().guarded_by(guard.clone());
            self.runtime.store().commit(slice.iter().fold(commit, remove)).await?;
        }
        self.remove_executions(tenant, id, guard).await?;
        match self.runtime.delete_record::<SessionFiles>(tenant, id.as_str()).await {
            Ok(()) | Err(AppError::NotFound { .. }) => {}
            Err(other) => return Err(other),
        }
        self.remove_workspace(id).await?;
        self.remove_engine_home(id).await?;
        self.runtime.storage_of(tenant).forget_folder(id);
        transact("conversation", id.as_str(), || async {
            let stored = self.conversation(tenant, id).await?;
            let delete = RecordChange::Delete { key: stored.value.key(), version: stored.version };
            match self.runtime.store().commit(release_with(guard, delete)).await {
                Ok(_) => {
                    // Its id is never used again, so neither is the lease's name.
                    let _ = self.runtime.store().forget_lease(guard).await;
                    Ok(Some(()))
                }
                // The title changed meanwhile.
                Err(CommitError::Conflict(_)) => Ok(None),
                Err(other) => Err(other.into()),
            }
        })
        .await
    }

    /// Removes a conversation's executions: first the events, then the tool calls, then the record, by
    /// which the rest is found again if the removal is interrupted.
    async fn remove_executions(
        &self,
        tenant: &TenantId,
        id: &ConversationId,
        guard: &LeaseGuard,
    ) -> Result<(), AppError> {
        loop {
            let query = RecordQuery {
                parent: Some(id.to_string()),
                limit: EXECUTIONS_AT_ONCE,
                ..RecordQuery::of::<Run>(tenant)
            };
            let (runs, _) = self.runtime.list_page(query).await?;
            if runs.is_empty() {
                return Ok(());
            }
            let streams = runs.iter().filter_map(|run| {
                let run = run.key.id.parse().ok()?;
                Some([run_stream(&run), journal_stream(&run)])
            });
            let streams: Vec<_> = streams.flatten().collect();
            self.runtime.store().erase_streams(tenant, &streams).await?;
            for run in &runs {
                self.remove_tool_logs(tenant, &run.key.id, guard).await?;
            }
            let commit = Commit::new().guarded_by(guard.clone());
            match self.runtime.store().commit(runs.iter().fold(commit, remove)).await {
                // One that waited was cancelled meanwhile: look again.
                Ok(_) | Err(CommitError::Conflict(_)) => {}
                Err(other) => return Err(other.into()),
            }
        }
    }

    async fn remove_tool_logs(
        &self,
        tenant: &TenantId,
        execution: &str,
        guard: &LeaseGuard,
    ) -> Result<(), AppError> {
        loop {
            let query = RecordQuery {
                parent: Some(execution.to_owned()),
                limit: SLICE,
                ..RecordQuery::of::<ToolLog>(tenant)
            };
            let (slice, _) = self.runtime.list_page(query).await?;
            if slice.is_empty() {
                return Ok(());
            }
            let commit = Commit::new().guarded_by(guard.clone());
            self.runtime.store().commit(slice.iter().fold(commit, remove)).await?;
        }
    }

    /// Removes the files of a tenant's conversations. The caller deletes their records.
    pub async fn remove_files_of(&self, tenant: &TenantId) -> Result<(), AppError> {
        let mut after = None;
        loop {
            let (page, next) = self.list_conversations(tenant, None, after, 200).await?;
            for conversation in page {
                self.remove_workspace(&conversation.value.id).await?;
                self.remove_engine_home(&conversation.value.id).await?;
            }
            match next {
                Some(next) => after = Some(next),
                None => return Ok(()),
            }
        }
    }

    async fn change_under_lock(
        &self,
        tenant: &TenantId,
        id: &ConversationId,
        patch: &ConversationPatch,
        guard: &LeaseGuard,
    ) -> Result<StoredDocument<Conversation>, AppError> {
        transact("conversation", id.as_str(), || async {
            let mut stored = self.conversation(tenant, id).await?;
            patch.apply(&mut stored.value);
            let put = RecordChange::put(&stored.value, ExpectedVersion::Version(stored.version))?;
            match self.runtime.store().commit(release_with(guard, put)).await {
                Ok(committed) => {
                    stored.version += 1;
                    stored.updated_at = committed.at;
                    Ok(Some(stored))
                }
                Err(CommitError::Conflict(_)) => Ok(None),
                Err(other) => Err(other.into()),
            }
        })
        .await
    }

    async fn check_conversation_patch(&self, patch: &ConversationPatch) -> Result<(), AppError> {
        if let Some(Some(title)) = &patch.title {
            check_text("title", title, MAX_TITLE)?;
        }
        match &patch.model_id {
            Some(Some(model)) => self.tenancy.check_model_id(model.as_str()).await,
            _ => Ok(()),
        }
    }

    async fn lock_conversation(&self, id: &ConversationId) -> Result<LeaseGuard, AppError> {
        match self.runtime.store().acquire(&conversation_lock(id), "a change", HOLD, WAIT).await {
            Ok(lease) => Ok(lease.guard()),
            Err(CommitError::Lease(LeaseRefusal::Held { owner, .. })) => Err(AppError::Locked {
                conversation: id.to_string(),
                execution: owner,
                retry_after: Duration::from_secs(1),
            }),
            Err(other) => Err(other.into()),
        }
    }

    /// Releases the lease after a failure. A successful change released it with its last write.
    async fn unlock_after_failure<T>(&self, guard: &LeaseGuard, done: &Result<T, AppError>) {
        if done.is_err() {
            // A lease that cannot be released expires.
            let _ = self.runtime.store().release(guard).await;
        }
    }
}

/// The last write under a lease, which also releases it.
fn release_with(guard: &LeaseGuard, change: RecordChange) -> Commit {
    let release = LeaseChange::Release { guard: guard.clone() };
    Commit::new().guarded_by(guard.clone()).lease(release).record(change)
}

fn remove(commit: Commit, record: &Record) -> Commit {
    commit.record(RecordChange::Delete { key: record.key.clone(), version: record.version })
}

fn messages_of(
    tenant: &TenantId,
    id: &ConversationId,
    after: Option<RecordPosition>,
    limit: u32,
) -> RecordQuery {
    RecordQuery {
        parent: Some(id.to_string()),
        after,
        limit,
        ..RecordQuery::of::<MessageLog>(tenant)
    }
}
