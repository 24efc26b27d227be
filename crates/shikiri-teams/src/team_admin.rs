//! A person's changes to a team: changes a task, ends a dialogue, reads messages.

use shikiri_model::ids::{AgentId, DialogueId, MessageId, ProjectId, TaskId, TenantId};
use shikiri_model::record::{RecordPosition, RecordQuery, StoredDocument};
use shikiri_model::team::{
    Dialogue, DialogueEndReason, InboxItem, InboxItemKind, TaskStatus, TeamMessage, TeamTask,
};
use shikiri_runtime::field_checks::set;
use shikiri_runtime::{AppError, transact};
use shikiri_store::StoreExt;

use super::TeamError;
use super::dialogue_transcript::DialogueLine;
use super::project_setup::{check_description, check_title};
use super::team_transaction::TeamTransaction;
use crate::Teams;

/// The changes to a task. Absent fields stay as they are.
#[derive(Clone, Debug, Default)]
pub struct TaskPatch {
    pub title: Option<String>,
    pub description: Option<String>,
    pub assignee: Option<Option<AgentId>>,
    pub priority: Option<i32>,
    pub status: Option<TaskStatus>,
}

/// Messages that are searched at a time for those of one agent.
const SLICE: u32 = 200;

impl TaskPatch {
    fn apply(&self, task: &mut TeamTask) {
        let before = task.assignee.clone();
        set(&mut task.title, self.title.as_ref());
        set(&mut task.description, self.description.as_ref());
        set(&mut task.assignee, self.assignee.as_ref());
        set(&mut task.priority, self.priority.as_ref());
        let is_handed_over = task.assignee != before;
        if is_handed_over && task.status == TaskStatus::InProgress {
            // The former assignee no longer works on it.
            task.status = TaskStatus::Todo;
        }
        set(&mut task.status, self.status.as_ref());
        if is_handed_over || task.status == TaskStatus::Todo {
            task.session = None;
        }
    }
}

/// Whether a change gives the task to an agent, or to the same one again.
fn is_given(before: &TeamTask, after: &TeamTask) -> bool {
    let is_open = after.status.is_waiting_for_work();
    before.assignee != after.assignee || (before.status != after.status && is_open)
}

impl Teams {
    /// Changes a task. It is in its agent's inbox while it is open.
    pub async fn change_task(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
        id: &TaskId,
        patch: &TaskPatch,
    ) -> Result<StoredDocument<TeamTask>, TeamError> {
        self.project(tenant, project).await?;
        if let Some(title) = &patch.title {
            check_title(title)?;
        }
        check_description(patch.description.as_deref().unwrap_or_default())?;
        transact("team", id.as_str(), || self.try_change_task(tenant, project, id, patch)).await
    }

    async fn try_change_task(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
        id: &TaskId,
        patch: &TaskPatch,
    ) -> Result<Option<StoredDocument<TeamTask>>, TeamError> {
        let mut task = self.task(tenant, project, id).await?;
        let before = task.value.clone();
        patch.apply(&mut task.value);
        let mut transaction = TeamTransaction::begin(self, tenant).await?;
        if is_given(&before, &task.value) {
            task.value.given_at = Some(transaction.now);
        }
        let is_open = task.value.status.is_waiting_for_work();
        let is_named = matches!(patch.assignee, Some(Some(_)));
        if let Some(assignee) = task.value.assignee.as_ref().filter(|_| is_open || is_named) {
            let mut membership = self.membership(tenant, project, assignee).await?;
            let cause = task.value.cause(task.created_at);
            transaction.set_off(self, &mut membership, Some(&cause))?;
        }
        transaction.put(&task)?;
        self.move_on_lists(&mut transaction, &before, &task.value).await?;
        transaction.try_change(self, task).await
    }

    /// Moves a task to the inbox that it belongs in now, and notifies the agents concerned.
    async fn move_on_lists(
        &self,
        transaction: &mut TeamTransaction,
        before: &TeamTask,
        after: &TeamTask,
    ) -> Result<(), TeamError> {
        let is_same_agent = before.assignee == after.assignee;
        let is_open = after.status.is_waiting_for_work();
        let is_news = is_given(before, after);
        let wanted = after.place().filter(|_| is_open);
        let listed =
            self.runtime.store().load::<InboxItem>(&after.tenant, after.id.as_str()).await?;
        match (listed, wanted) {
            (Some(_), Some(_)) if !is_news => {}
            (Some(mut listed), Some(member)) => {
                let what = InboxItemKind::Task(after.id.clone());
                listed.value = transaction.item(self, member, what).await?;
                transaction.put(&listed)?;
            }
            (None, Some(member)) => {
                transaction
                    .add_inbox_item(self, member, InboxItemKind::Task(after.id.clone()))
                    .await?;
            }
            (Some(listed), None) => transaction.remove(&listed),
            (None, None) => {}
        }
        for member in [before.place(), after.place()].into_iter().flatten() {
            transaction.wake_agent(member);
        }
        match before.place() {
            Some(member) if !is_same_agent || !is_open => {
                self.settle_outcomes(transaction, after, &member).await
            }
            _ => Ok(()),
        }
    }

    /// A dialogue of a project.
    pub async fn dialogue_of(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
        id: &DialogueId,
    ) -> Result<StoredDocument<Dialogue>, AppError> {
        self.project(tenant, project).await?;
        let found = self.runtime.store().load::<Dialogue>(tenant, id.as_str()).await?;
        let found = found.filter(|one| one.value.project == *project);
        found.ok_or_else(|| AppError::not_found("dialogue", id))
    }

    /// The newest dialogues of all projects of the tenant. A dialogue that lives is among them:
    /// each ends at its deadline.
    pub async fn newest_dialogues(
        &self,
        tenant: &TenantId,
        limit: u32,
    ) -> Result<Vec<StoredDocument<Dialogue>>, AppError> {
        let query =
            RecordQuery { newest_first: true, limit, ..RecordQuery::of::<Dialogue>(tenant) };
        Ok(self.runtime.list_records(query).await?.0)
    }

    /// A page of a dialogue's messages.
    pub async fn dialogue_messages(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
        id: &DialogueId,
        after: Option<RecordPosition>,
        limit: u32,
    ) -> Result<(Vec<DialogueLine>, Option<RecordPosition>), TeamError> {
        self.dialogue_of(tenant, project, id).await?;
        let position = |line: &DialogueLine| RecordPosition {
            created_at: line.said.created_at,
            id: line.said.message_id.to_string(),
        };
        let mut lines = self.transcript(tenant, id).await?;
        if let Some(after) = after {
            let known = lines.iter().position(|line| position(line) == after);
            lines.drain(..known.map_or(0, |known| known + 1));
        }
        let has_more = lines.len() > limit as usize;
        lines.truncate(limit as usize);
        let next = lines.last().filter(|_| has_more).map(position);
        Ok((lines, next))
    }

    /// Cancels a dialogue. Both sides are notified, as at any other end.
    pub async fn cancel_dialogue(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
        id: &DialogueId,
    ) -> Result<StoredDocument<Dialogue>, TeamError> {
        transact("team", id.as_str(), || self.try_cancel_dialogue(tenant, project, id)).await
    }

    async fn try_cancel_dialogue(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
        id: &DialogueId,
    ) -> Result<Option<StoredDocument<Dialogue>>, TeamError> {
        let mut dialogue = self.dialogue_of(tenant, project, id).await?;
        let mut transaction = TeamTransaction::begin(self, tenant).await?;
        if let Some(end) = &dialogue.value.end {
            let message = format!("conversation {id} has ended ({})", end.reason.as_str());
            return Err(AppError::NotNow(message).into());
        }
        dialogue.value.end_for(DialogueEndReason::Cancelled, transaction.now);
        self.put_end(&mut transaction, &dialogue, None).await?;
        transaction.try_change(self, dialogue).await
    }

    /// One message outside dialogues.
    pub async fn team_message(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
        id: &MessageId,
    ) -> Result<StoredDocument<TeamMessage>, AppError> {
        let found = self.runtime.store().load::<TeamMessage>(tenant, id.as_str()).await?;
        let found = found.filter(|message| message.value.project == *project);
        found.ok_or_else(|| AppError::not_found("message", id))
    }

    /// The messages outside dialogues, oldest first; with an agent, those from it and to it.
    pub async fn list_team_messages(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
        agent: Option<&AgentId>,
        after: Option<RecordPosition>,
        limit: u32,
    ) -> Result<(Vec<StoredDocument<TeamMessage>>, Option<RecordPosition>), AppError> {
        self.project(tenant, project).await?;
        let mut query = RecordQuery {
            parent: Some(project.to_string()),
            after,
            limit,
            ..RecordQuery::of::<TeamMessage>(tenant)
        };
        let Some(agent) = agent else { return self.runtime.list_records(query).await };
        query.limit = SLICE;
        let mut found = Vec::new();
        loop {
            let (slice, next) = self.runtime.list_records::<TeamMessage>(query.clone()).await?;
            let is_concerned = |one: &StoredDocument<TeamMessage>| {
                one.value.from == *agent || one.value.to == *agent
            };
            found.extend(slice.into_iter().filter(is_concerned));
            // One more than asked for shows whether there is a next page.
            if found.len() > limit as usize {
                found.truncate(limit as usize);
                let last = found.last().map(|one| RecordPosition {
                    created_at: one.created_at,
                    id: one.value.id.to_string(),
                });
                return Ok((found, last));
            }
            query.after = next;
            if query.after.is_none() {
                return Ok((found, None));
            }
        }
    }
}
