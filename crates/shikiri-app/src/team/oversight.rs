//! What a person does about a team from outside: changes a task, ends a dialogue, reads messages.

use shikiri_model::ids::{AgentId, DialogueId, MessageId, ProjectId, TaskId, TenantId};
use shikiri_model::record::{Position, RecordQuery, Stored};
use shikiri_model::team::{Dialogue, EndReason, Message, Task, TaskStatus, Waiting, What};
use shikiri_store::StoreExt;

use super::draft::Draft;
use super::setup::{check_description, check_title};
use super::transcript::Line;
use super::{TeamError, until_settled};
use crate::app::App;
use crate::error::AppError;
use crate::fields::set;

/// What a person may change of a task; absent fields stay as they are.
#[derive(Clone, Debug, Default)]
pub struct TaskPatch {
    pub title: Option<String>,
    pub description: Option<String>,
    pub assignee: Option<Option<AgentId>>,
    pub priority: Option<i32>,
    pub status: Option<TaskStatus>,
}

/// Messages that are looked through at a time for those of one agent.
const SLICE: u32 = 200;

impl TaskPatch {
    fn apply(&self, task: &mut Task) {
        let before = task.assignee.clone();
        set(&mut task.title, self.title.as_ref());
        set(&mut task.description, self.description.as_ref());
        set(&mut task.assignee, self.assignee.as_ref());
        set(&mut task.priority, self.priority.as_ref());
        let is_handed_over = task.assignee != before;
        if is_handed_over && task.status == TaskStatus::InProgress {
            // Whoever worked on it does not any more.
            task.status = TaskStatus::Todo;
        }
        set(&mut task.status, self.status.as_ref());
        if is_handed_over || task.status == TaskStatus::Todo {
            task.session = None;
        }
    }
}

impl App {
    /// Changes a task. It is on its agent's list as long as somebody should work on it.
    pub async fn change_task(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
        id: &TaskId,
        patch: &TaskPatch,
    ) -> Result<Stored<Task>, TeamError> {
        self.project(tenant, project).await?;
        if let Some(title) = &patch.title {
            check_title(title)?;
        }
        check_description(patch.description.as_deref().unwrap_or_default())?;
        until_settled!(id.as_str(), self.try_change_task(tenant, project, id, patch).await?)
    }

    async fn try_change_task(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
        id: &TaskId,
        patch: &TaskPatch,
    ) -> Result<Option<Stored<Task>>, TeamError> {
        let mut task = self.task(tenant, project, id).await?;
        let before = task.value.clone();
        patch.apply(&mut task.value);
        let mut draft = Draft::begin(self, tenant).await?;
        if let Some(Some(assignee)) = &patch.assignee {
            draft.require(&self.membership(tenant, project, assignee).await?);
        }
        draft.put(&task)?;
        self.move_on_lists(&mut draft, &before, &task.value).await?;
        task.version += 1;
        task.updated_at = draft.now;
        draft.settle(self, task).await
    }

    /// Puts a task on the list that it belongs on now, and tells those who are concerned.
    async fn move_on_lists(
        &self,
        draft: &mut Draft,
        before: &Task,
        after: &Task,
    ) -> Result<(), TeamError> {
        let is_same_agent = before.assignee == after.assignee;
        let is_open = after.status.is_waiting_for_work();
        let is_news = !is_same_agent || (before.status != after.status && is_open);
        let wanted = after.place().filter(|_| is_open);
        let listed = self.store.load::<Waiting>(&after.tenant, after.id.as_str()).await?;
        match (listed, wanted) {
            (Some(_), Some(_)) if !is_news => {}
            (Some(mut listed), Some(place)) => {
                let what = What::Task(after.id.clone());
                listed.value = draft.item(self, place, what).await?;
                draft.put(&listed)?;
            }
            (None, Some(place)) => {
                draft.await_agent(self, place, What::Task(after.id.clone())).await?;
            }
            (Some(listed), None) => draft.remove(&listed),
            (None, None) => {}
        }
        for place in [before.place(), after.place()].into_iter().flatten() {
            draft.ring(place);
        }
        match before.place() {
            Some(place) if !is_same_agent || !is_open => {
                self.settle_outcomes(draft, after, &place).await
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
    ) -> Result<Stored<Dialogue>, AppError> {
        self.project(tenant, project).await?;
        let found = self.store.load::<Dialogue>(tenant, id.as_str()).await?;
        let found = found.filter(|one| one.value.project == *project);
        found.ok_or_else(|| AppError::not_found("dialogue", id))
    }

    /// A page of what was said in a dialogue of a project.
    pub async fn dialogue_messages(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
        id: &DialogueId,
        after: Option<Position>,
        limit: u32,
    ) -> Result<(Vec<Line>, Option<Position>), TeamError> {
        self.dialogue_of(tenant, project, id).await?;
        let position = |line: &Line| Position {
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

    /// Ends a dialogue that goes nowhere; both sides are told, as at any other end.
    pub async fn cancel_dialogue(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
        id: &DialogueId,
    ) -> Result<Stored<Dialogue>, TeamError> {
        until_settled!(id.as_str(), self.try_cancel_dialogue(tenant, project, id).await?)
    }

    async fn try_cancel_dialogue(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
        id: &DialogueId,
    ) -> Result<Option<Stored<Dialogue>>, TeamError> {
        let mut dialogue = self.dialogue_of(tenant, project, id).await?;
        let mut draft = Draft::begin(self, tenant).await?;
        if let Some(end) = &dialogue.value.end {
            let message = format!("conversation {id} has ended ({})", end.reason.as_str());
            return Err(AppError::NotNow(message).into());
        }
        dialogue.value.end_for(EndReason::Cancelled, draft.now);
        self.put_end(&mut draft, &dialogue, None).await?;
        dialogue.version += 1;
        dialogue.updated_at = draft.now;
        draft.settle(self, dialogue).await
    }

    /// One message that was sent outside dialogues.
    pub async fn team_message(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
        id: &MessageId,
    ) -> Result<Stored<Message>, AppError> {
        let found = self.store.load::<Message>(tenant, id.as_str()).await?;
        let found = found.filter(|message| message.value.project == *project);
        found.ok_or_else(|| AppError::not_found("message", id))
    }

    /// The messages that were sent outside dialogues, oldest first; with an agent, those from it
    /// and to it.
    pub async fn list_team_messages(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
        agent: Option<&AgentId>,
        after: Option<Position>,
        limit: u32,
    ) -> Result<(Vec<Stored<Message>>, Option<Position>), AppError> {
        self.project(tenant, project).await?;
        let mut query = RecordQuery {
            parent: Some(project.to_string()),
            after,
            limit,
            ..RecordQuery::of::<Message>(tenant)
        };
        let Some(agent) = agent else { return self.list_records(query).await };
        query.limit = SLICE;
        let mut found = Vec::new();
        loop {
            let (slice, next) = self.list_records::<Message>(query.clone()).await?;
            let is_concerned =
                |one: &Stored<Message>| one.value.from == *agent || one.value.to == *agent;
            found.extend(slice.into_iter().filter(is_concerned));
            // One more than asked for tells whether there is a next page.
            if found.len() > limit as usize {
                found.truncate(limit as usize);
                let last = found.last().map(|one| Position {
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
