//! What happens to the inbox items that a run left behind.

use shikiri_model::ids::{AgentSessionId, TenantId};
use shikiri_model::record::StoredDocument;
use shikiri_model::team::{
    DeliveryState, InboxItem, InboxItemKind, SessionPurpose, SpawnSlot, TeamMessage, TeamTask,
    is_handled_by, is_reason, tasks_to_abandon,
};
use shikiri_runtime::transact;
use shikiri_store::StoreExt;

use crate::team_transaction::TeamTransaction;
use crate::{TeamError, Teams};

/// The note on a task that every started agent failed at.
const GIVEN_UP: &str = "the agent was started again and again, and each time ended without \
                        finishing this; set the task to todo for another try";

impl Teams {
    /// Removes the items that a successful run has read and that need no answer.
    pub(super) async fn remove_handled_items(
        &self,
        waiting: &[StoredDocument<InboxItem>],
        session: &AgentSessionId,
    ) -> Result<(), TeamError> {
        for one in waiting.iter().filter(|one| one.value.is_seen_by(session)) {
            self.take_one_off(&one.value, session).await?;
        }
        Ok(())
    }

    async fn take_one_off(
        &self,
        taken: &InboxItem,
        session: &AgentSessionId,
    ) -> Result<(), TeamError> {
        transact("team", &taken.id, || self.try_take_off(taken, session)).await
    }

    async fn try_take_off(
        &self,
        taken: &InboxItem,
        session: &AgentSessionId,
    ) -> Result<Option<()>, TeamError> {
        let Some(mut found) =
            self.runtime.store().load::<InboxItem>(&taken.tenant, &taken.id).await?
        else {
            return Ok(Some(()));
        };
        // The delivery may be confirmed in memory but not committed yet.
        found.value.has_come |= self.arrivals.of(session, &taken.id) == DeliveryState::Came;
        // An item that another session has seen meanwhile belongs to that session.
        if !is_handled_by(&found.value, session) {
            return Ok(Some(()));
        }
        let mut transaction = TeamTransaction::begin(self, &taken.tenant).await?;
        transaction.remove(&found);
        transaction.try_commit(self, ()).await
    }

    /// Stops starting agents for these items. A session that logs in still sees them.
    pub(super) async fn stop_spawning_for(
        &self,
        slot: &SpawnSlot,
        waiting: &[StoredDocument<InboxItem>],
    ) -> Result<(), TeamError> {
        for one in waiting.iter().filter(|one| is_reason(&one.value)) {
            if !matches!(one.value.what, InboxItemKind::Task(_)) {
                self.set_aside(&one.value.tenant, &one.value.id).await?;
            }
        }
        if slot.purpose == SessionPurpose::Chat {
            return Ok(());
        }
        let tasks = self.open_tasks(&slot.tenant, &slot.place).await?;
        for task in tasks_to_abandon(&tasks) {
            self.block_task(task, GIVEN_UP).await?;
        }
        Ok(())
    }

    /// Clears the due date of an item: no agent is started for it.
    pub(super) async fn set_aside(&self, tenant: &TenantId, id: &str) -> Result<(), TeamError> {
        transact("team", id, || self.try_set_aside(tenant, id)).await
    }

    async fn try_set_aside(&self, tenant: &TenantId, id: &str) -> Result<Option<()>, TeamError> {
        let Some(mut waiting) = self.runtime.store().load::<InboxItem>(tenant, id).await? else {
            return Ok(Some(()));
        };
        let mut transaction = TeamTransaction::begin(self, tenant).await?;
        if let InboxItemKind::Message(id) = &waiting.value.what
            && let Some(mut message) =
                self.runtime.store().load::<TeamMessage>(tenant, id.as_str()).await?
        {
            // The run read the message and did nothing about it, so it counts as unread again.
            message.value.read_at = None;
            transaction.put(&message)?;
        }
        waiting.value.due_at = None;
        transaction.put(&waiting)?;
        transaction.try_commit(self, ()).await
    }

    pub(crate) async fn block_task(&self, task: &TeamTask, reason: &str) -> Result<(), TeamError> {
        transact("team", task.id.as_str(), || self.try_block(task, reason)).await
    }

    async fn try_block(&self, task: &TeamTask, reason: &str) -> Result<Option<()>, TeamError> {
        let (tenant, id) = (&task.tenant, task.id.as_str());
        let found = self.runtime.store().load::<TeamTask>(tenant, id).await?;
        // A task that was changed meanwhile is not given up.
        let Some(mut found) = found.filter(|found| found.value == *task) else {
            return Ok(Some(()));
        };
        let mut transaction = TeamTransaction::begin(self, tenant).await?;
        found.value.block(reason);
        transaction.put(&found)?;
        transaction.remove_inbox_item(self, id).await?;
        if let Some(member) = found.value.place() {
            self.settle_outcomes(&mut transaction, &found.value, &member).await?;
            transaction.wake_agent(member);
        }
        transaction.try_commit(self, ()).await
    }
}
