//! Conversations: make, change, list, archive, remove, and read what was said.
//!
//! An execution that writes to a conversation holds its lease. Whatever would pull the ground from
//! under it, a removal or a fresh session, is done under the same lease and so waits its turn.

use std::time::Duration;

use shikiri_model::conversation::{Conversation, ConversationStatus, lock_of};
use shikiri_model::execution::{MessageLog, SessionFiles};
use shikiri_model::ids::{ConversationId, ModelId, TenantId};
use shikiri_model::lease::{Guard, LeaseChange, LeaseRefusal};
use shikiri_model::record::{
    Document, Expect, Position, Record, RecordChange, RecordQuery, Stored,
};
use shikiri_store::{Commit, CommitError, StoreExt};

use crate::app::{App, busy, entropy, max_tries};
use crate::error::AppError;
use crate::fields::{check_text, set};
use crate::hold::{HOLD, to_its_end};

/// What a caller may set; absent fields stay as they are.
#[derive(Clone, Debug, Default)]
pub struct ConversationPatch {
    pub title: Option<Option<String>>,
    pub model_id: Option<Option<ModelId>>,
    pub workspace_enabled: Option<Option<bool>>,
    pub status: Option<ConversationStatus>,
    /// Forgets the engine's session: the next execution starts afresh.
    pub forget_session: bool,
}

const MAX_TITLE: usize = 200;
/// Messages that one commit removes.
const SLICE: u32 = 200;
/// Long enough for another change like this one; an execution is not waited for.
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

impl App {
    pub async fn create_conversation(
        &self,
        tenant: &TenantId,
        patch: ConversationPatch,
    ) -> Result<Stored<Conversation>, AppError> {
        self.check_conversation_patch(&patch).await?;
        let id = ConversationId::mint(self.store.now().await?, entropy()?);
        let mut conversation = Conversation::new(id, tenant.clone());
        patch.apply(&mut conversation);
        self.create_in_tenant(tenant, conversation).await
    }

    pub async fn conversation(
        &self,
        tenant: &TenantId,
        id: &ConversationId,
    ) -> Result<Stored<Conversation>, AppError> {
        let found = self.store.load::<Conversation>(tenant, id.as_str()).await?;
        found.ok_or_else(|| AppError::not_found("conversation", id))
    }

    /// Newest first.
    pub async fn list_conversations(
        &self,
        tenant: &TenantId,
        status: Option<ConversationStatus>,
        after: Option<Position>,
        limit: u32,
    ) -> Result<(Vec<Stored<Conversation>>, Option<Position>), AppError> {
        self.tenant(tenant).await?;
        self.list_records(RecordQuery {
            state: status.map(|status| status.as_str().to_owned()),
            after,
            newest_first: true,
            limit,
            ..RecordQuery::of::<Conversation>(tenant)
        })
        .await
    }

    /// Title, model and status may change while an execution runs: it reads them again when it
    /// ends. Its session may not.
    pub async fn update_conversation(
        &self,
        tenant: &TenantId,
        id: &ConversationId,
        patch: ConversationPatch,
    ) -> Result<Stored<Conversation>, AppError> {
        self.check_conversation_patch(&patch).await?;
        if patch.forget_session {
            self.conversation(tenant, id).await?;
            let (app, tenant, id) = (self.clone(), tenant.clone(), id.clone());
            return to_its_end(async move {
                let guard = app.lock_conversation(&id).await?;
                let change = app.change_under_lock(&tenant, &id, &patch, &guard);
                let changed = app.holding(&guard, change).await;
                app.unlock_after_failure(&guard, &changed).await;
                changed
            })
            .await;
        }
        self.update::<Conversation>(tenant, id.as_str(), |conversation| {
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
    ) -> Result<Stored<Conversation>, AppError> {
        let status = Some(ConversationStatus::Archived);
        let patch = ConversationPatch { status, ..ConversationPatch::default() };
        self.update_conversation(tenant, id, patch).await
    }

    /// What was said, oldest first.
    pub async fn list_messages(
        &self,
        tenant: &TenantId,
        id: &ConversationId,
        after: Option<Position>,
        limit: u32,
    ) -> Result<(Vec<Stored<MessageLog>>, Option<Position>), AppError> {
        self.conversation(tenant, id).await?;
        self.list_records(messages_of(tenant, id, after, limit)).await
    }

    /// Removes a conversation with its messages and files. Executions and what they cost stay: bills
    /// are made from them.
    ///
    /// Its belongings go first and its record last, all under the lease: no execution can start
    /// meanwhile, and if this is cut short the conversation is still there to be removed again. The
    /// other way round, nobody could find what was left.
    pub async fn delete_conversation(
        &self,
        tenant: &TenantId,
        id: &ConversationId,
    ) -> Result<(), AppError> {
        self.conversation(tenant, id).await?;
        let (app, tenant, id) = (self.clone(), tenant.clone(), id.clone());
        to_its_end(async move {
            let guard = app.lock_conversation(&id).await?;
            let removal = app.remove_conversation(&tenant, &id, &guard);
            let removed = app.holding(&guard, removal).await;
            app.unlock_after_failure(&guard, &removed).await;
            removed
        })
        .await
    }

    async fn remove_conversation(
        &self,
        tenant: &TenantId,
        id: &ConversationId,
        guard: &Guard,
    ) -> Result<(), AppError> {
        loop {
            let (slice, _) = self.list_page(messages_of(tenant, id, None, SLICE)).await?;
            if slice.is_empty() {
                break;
            }
            let commit = Commit::new().guarded_by(guard.clone());
            self.store.commit(slice.iter().fold(commit, remove)).await?;
        }
        match self.delete_record::<SessionFiles>(tenant, id.as_str()).await {
            Ok(()) | Err(AppError::NotFound { .. }) => {}
            Err(other) => return Err(other),
        }
        self.remove_workspace(id).await?;
        self.remove_engine_home(id).await?;
        self.storage.of(tenant).forget_folder(id);
        for _ in 0..max_tries() {
            let stored = self.conversation(tenant, id).await?;
            let delete = RecordChange::Delete { key: stored.value.key(), version: stored.version };
            match self.store.commit(release_with(guard, delete)).await {
                Ok(_) => {
                    // Its id is never used again, so neither is the lease's name.
                    let _ = self.store.forget_lease(guard).await;
                    return Ok(());
                }
                // A title was changed meanwhile.
                Err(CommitError::Conflict(_)) => {}
                Err(other) => return Err(other.into()),
            }
        }
        Err(busy("conversation", id.as_str()))
    }

    /// What lies on disk for a tenant's conversations; their records are somebody else's to remove.
    pub(crate) async fn remove_files_of(&self, tenant: &TenantId) -> Result<(), AppError> {
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
        guard: &Guard,
    ) -> Result<Stored<Conversation>, AppError> {
        for _ in 0..max_tries() {
            let mut stored = self.conversation(tenant, id).await?;
            patch.apply(&mut stored.value);
            let put = RecordChange::put(&stored.value, Expect::Version(stored.version))?;
            match self.store.commit(release_with(guard, put)).await {
                Ok(committed) => {
                    stored.version += 1;
                    stored.updated_at = committed.at;
                    return Ok(stored);
                }
                Err(CommitError::Conflict(_)) => {}
                Err(other) => return Err(other.into()),
            }
        }
        Err(busy("conversation", id.as_str()))
    }

    async fn check_conversation_patch(&self, patch: &ConversationPatch) -> Result<(), AppError> {
        if let Some(Some(title)) = &patch.title {
            check_text("title", title, MAX_TITLE)?;
        }
        match &patch.model_id {
            Some(Some(model)) => self.check_model_id(model.as_str()).await,
            _ => Ok(()),
        }
    }

    async fn lock_conversation(&self, id: &ConversationId) -> Result<Guard, AppError> {
        match self.store.acquire(&lock_of(id), "a change", HOLD, WAIT).await {
            Ok(lease) => Ok(lease.guard()),
            Err(CommitError::Lease(LeaseRefusal::Held { owner, .. })) => Err(AppError::Locked {
                conversation: id.to_string(),
                execution: owner,
                retry_after: Duration::from_secs(1),
            }),
            Err(other) => Err(other.into()),
        }
    }

    /// What went well gave the lease back with its last write.
    async fn unlock_after_failure<T>(&self, guard: &Guard, done: &Result<T, AppError>) {
        if done.is_err() {
            // One that cannot be given back runs out.
            let _ = self.store.release(guard).await;
        }
    }
}

/// A last write under a lease, which ends with it.
fn release_with(guard: &Guard, change: RecordChange) -> Commit {
    let release = LeaseChange::Release { guard: guard.clone() };
    Commit::new().guarded_by(guard.clone()).lease(release).record(change)
}

fn remove(commit: Commit, record: &Record) -> Commit {
    commit.record(RecordChange::Delete { key: record.key.clone(), version: record.version })
}

fn messages_of(
    tenant: &TenantId,
    id: &ConversationId,
    after: Option<Position>,
    limit: u32,
) -> RecordQuery {
    RecordQuery {
        parent: Some(id.to_string()),
        after,
        limit,
        ..RecordQuery::of::<MessageLog>(tenant)
    }
}
