//! What a task session does next.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::Value;
use shikiri_model::ids::{AgentSessionId, DelegationId, TaskId, TenantId};
use shikiri_model::record::{RecordQuery, Stored};
use shikiri_model::team::{
    AgentSession, Arrival, Delegation, Place, Purpose, RefusalCode, Task, TaskStatus, What,
    next_task,
};
use shikiri_store::StoreExt;

use super::delegations::check_result;
use super::desk::{Desk, session_over};
use super::draft::Draft;
use super::transcript::Line;
use super::{Receipt, TeamError, parse_id, until_settled};
use crate::app::App;

#[derive(Clone, Debug)]
pub enum Action {
    Work(Box<Stored<Task>>),
    WaitForDelegation(DelegationId),
    DelegationResult { delegation: Box<Delegation>, messages: Vec<Line> },
    None,
}

/// Who is to hear of an outcome besides whoever asked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Audience {
    /// Whoever works on its task.
    Task,
    /// Whoever takes its task up again, which is blocked.
    Later,
    Anybody,
}

impl Desk {
    /// The outcome of a delegation comes first; while one is open it is waited for; then work.
    pub async fn next_action(&mut self, wait: Duration) -> Result<Action, TeamError> {
        self.confirm().await;
        let mut waiter = self.waiter(self.place().bell(self.tenant()), wait);
        loop {
            let action = self.look_for_action().await?;
            let can_wait = matches!(action, Action::WaitForDelegation(_) | Action::None);
            if !can_wait || !waiter.again(self).await? {
                return Ok(action);
            }
        }
    }

    async fn look_for_action(&mut self) -> Result<Action, TeamError> {
        // First, so that whoever takes up a task that another session left also hears what became
        // of its delegations before it begins anew.
        let task = self.take_task().await?;
        // Before the outcomes: a delegation that ends in between is found among one or the other.
        let open = self.app.open_delegations(self.tenant(), &self.place().project).await?;
        if let Some(told) = self.outcome().await? {
            return Ok(told);
        }
        let is_mine = |one: &&Delegation| {
            one.agent == *self.agent()
                && (one.session == self.session.id
                    || one.task.is_some() && one.task == self.session.task)
        };
        if let Some(delegation) = open.iter().find(is_mine) {
            return Ok(Action::WaitForDelegation(delegation.id.clone()));
        }
        Ok(task.map_or(Action::None, |task| Action::Work(Box::new(task))))
    }

    /// A session hears of an outcome once; another one that goes on with the task hears it again.
    async fn outcome(&mut self) -> Result<Option<Action>, TeamError> {
        for one in self.app.waiting_for(self.tenant(), self.place(), Purpose::Task).await? {
            let What::Outcome(id) = &one.value.what else { continue };
            if one.value.was_seen_by(&self.session.id) {
                continue;
            }
            match self.app.arrivals.of(&self.session.id, &one.value.id) {
                Arrival::Unknown => {}
                // Should it be lost, it is told again; until then this session does not go on.
                Arrival::OnItsWay => return Ok(Some(Action::WaitForDelegation(id.clone()))),
                Arrival::Came => continue,
            }
            let found = self.app.store.load::<Delegation>(self.tenant(), id.as_str()).await?;
            let Some(delegation) = found else { continue };
            if !self.is_told_of(&delegation.value).await? {
                continue;
            }
            let messages = match &delegation.value.dialogue {
                Some(dialogue) => self.app.transcript(self.tenant(), dialogue).await?,
                None => Vec::new(),
            };
            let ids = vec![one.value.id];
            self.receipt = Some(Receipt::new(&self.app, self.tenant(), &self.session.id, ids));
            let delegation = Box::new(delegation.value);
            return Ok(Some(Action::DelegationResult { delegation, messages }));
        }
        Ok(None)
    }

    /// Whoever asked or goes on with the task; if there is no such task and whoever asked is gone,
    /// whoever is there. While the task is blocked nobody else hears of it: it may be taken up again.
    async fn is_told_of(&self, delegation: &Delegation) -> Result<bool, TeamError> {
        if delegation.session == self.session.id {
            return Ok(true);
        }
        match self.app.audience(delegation).await? {
            Audience::Task => Ok(delegation.task == self.session.task),
            Audience::Later => Ok(false),
            Audience::Anybody => {
                Ok(!self.app.is_session_live(self.tenant(), &delegation.session).await?)
            }
        }
    }

    async fn take_task(&mut self) -> Result<Option<Stored<Task>>, TeamError> {
        let taken = self.find_task().await?;
        if let Some(task) = &taken {
            self.session.task = Some(task.value.id.clone());
        }
        Ok(taken)
    }

    async fn find_task(&self) -> Result<Option<Stored<Task>>, TeamError> {
        until_settled!(self.agent().as_str(), self.try_task().await?)
    }

    async fn try_task(&self) -> Result<Option<Option<Stored<Task>>>, TeamError> {
        let tasks = self.app.open_tasks(self.tenant(), self.place()).await?;
        let living = self.app.holders(self.tenant(), &tasks).await?;
        let next = next_task(&tasks, &self.session.id, |id| living.contains(id));
        let Some(next) = next else { return Ok(Some(None)) };
        let found = self.app.store.load::<Task>(self.tenant(), next.id.as_str()).await?;
        // Another session may have taken it since it was chosen: then choose again.
        let Some(mut task) = found.filter(|task| task.value == *next) else { return Ok(None) };
        let is_mine = task.value.session.as_ref() == Some(&self.session.id);
        if is_mine && task.value.status == TaskStatus::InProgress {
            return Ok(Some(Some(task)));
        }
        let id = self.session.id.as_str();
        let session = self.app.store.load::<AgentSession>(self.tenant(), id).await?;
        let Some(mut session) = session else { return Ok(None) };
        let mut draft = Draft::begin(&self.app, self.tenant()).await?;
        // It may have ended while it waited, and what it had is another's by now.
        if !session.value.is_live(draft.now) {
            return Err(session_over().into());
        }
        task.value.take(&self.session.id);
        session.value.task = Some(task.value.id.clone());
        draft.put(&task)?;
        draft.put(&session)?;
        task.version += 1;
        task.updated_at = draft.now;
        draft.settle(&self.app, Some(task)).await
    }

    /// The agent says that a task is done, or that it cannot go on.
    pub async fn report_completed(
        &self,
        task: &str,
        status: TaskStatus,
        result: Option<Value>,
    ) -> Result<Stored<Task>, TeamError> {
        check_result(result.as_ref())?;
        until_settled!(task, self.try_complete(task, status, result.clone()).await?)
    }

    async fn try_complete(
        &self,
        id: &str,
        status: TaskStatus,
        result: Option<Value>,
    ) -> Result<Option<Stored<Task>>, TeamError> {
        let id: TaskId = parse_id(id, RefusalCode::NoTask)?;
        let found = self.app.store.load::<Task>(self.tenant(), id.as_str()).await?;
        let Some(mut task) = found.filter(|task| task.value.project == self.place().project) else {
            return Err(RefusalCode::NoTask.because(format!("there is no task {id}")).into());
        };
        task.value.report(self.agent(), status, result)?;
        let mut draft = Draft::begin(&self.app, self.tenant()).await?;
        draft.put(&task)?;
        let session = self.session.id.as_str();
        if let Some(mut session) =
            self.app.store.load::<AgentSession>(self.tenant(), session).await?
            && session.value.task.as_ref() == Some(&id)
        {
            // What it delegates from now on is not for this task.
            session.value.task = None;
            draft.put(&session)?;
        }
        draft.stop_waiting(&self.app, id.as_str()).await?;
        self.app.settle_outcomes(&mut draft, &task.value, self.place()).await?;
        draft.ring(self.place().clone());
        task.version += 1;
        task.updated_at = draft.now;
        draft.settle(&self.app, task).await
    }
}

impl App {
    /// Tasks of an agent that somebody should work on, oldest first.
    pub(super) async fn open_tasks(
        &self,
        tenant: &TenantId,
        place: &Place,
    ) -> Result<Vec<Task>, TeamError> {
        let query = RecordQuery { owner: Some(place.key()), ..RecordQuery::of::<Task>(tenant) };
        Ok(self.list_all(query).await?)
    }

    /// Nobody at this place goes on with the task. What became of its delegations is of use to
    /// nobody any more, unless it is blocked only: then it waits for whoever takes the task up.
    pub(super) async fn settle_outcomes(
        &self,
        draft: &mut Draft,
        task: &Task,
        place: &Place,
    ) -> Result<(), TeamError> {
        let is_kept = task.status == TaskStatus::Blocked && task.place().as_ref() == Some(place);
        for mut one in self.waiting_for(&task.tenant, place, Purpose::Task).await? {
            let What::Outcome(id) = &one.value.what else { continue };
            let found = self.store.load::<Delegation>(&task.tenant, id.as_str()).await?;
            if found.is_some_and(|delegation| delegation.value.task.as_ref() != Some(&task.id)) {
                continue;
            }
            if is_kept {
                // Nobody is started for it.
                one.value.due_at = None;
                draft.put(&one)?;
            } else {
                draft.remove(&one);
            }
        }
        Ok(())
    }

    /// Sessions that live and work on one of these.
    async fn holders(
        &self,
        tenant: &TenantId,
        tasks: &[Task],
    ) -> Result<HashSet<AgentSessionId>, TeamError> {
        let mut living = HashSet::new();
        for id in tasks.iter().filter_map(|task| task.session.as_ref()) {
            if self.is_session_live(tenant, id).await? {
                living.insert(id.clone());
            }
        }
        Ok(living)
    }

    /// Whether a task session of the agent would find something to do.
    pub async fn has_task_work(&self, tenant: &TenantId, place: &Place) -> Result<bool, TeamError> {
        let tasks = self.open_tasks(tenant, place).await?;
        let living = self.holders(tenant, &tasks).await?;
        let is_free = |task: &Task| task.session.as_ref().is_none_or(|id| !living.contains(id));
        if tasks.iter().any(is_free) {
            return Ok(true);
        }
        for one in self.waiting_for(tenant, place, Purpose::Task).await? {
            let What::Outcome(id) = &one.value.what else { continue };
            let found = self.store.load::<Delegation>(tenant, id.as_str()).await?;
            if let Some(delegation) = found
                && self.audience(&delegation.value).await? == Audience::Anybody
                && !self.is_session_live(tenant, &delegation.value.session).await?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Who is to hear of a delegation's outcome besides whoever asked.
    pub(super) async fn audience(&self, delegation: &Delegation) -> Result<Audience, TeamError> {
        let Some(task) = &delegation.task else { return Ok(Audience::Anybody) };
        let task = self.store.load::<Task>(&delegation.tenant, task.as_str()).await?;
        let is_its = |task: &Task| task.assignee.as_ref() == Some(&delegation.agent);
        Ok(match task.map(|task| task.value).filter(is_its).map(|task| task.status) {
            Some(TaskStatus::Todo | TaskStatus::InProgress) => Audience::Task,
            Some(TaskStatus::Blocked) => Audience::Later,
            Some(TaskStatus::Done) | None => Audience::Anybody,
        })
    }

    /// Whether an outcome is still of use after one session has heard it.
    pub(super) async fn is_outcome_kept(
        &self,
        tenant: &TenantId,
        delegation: &DelegationId,
    ) -> Result<bool, TeamError> {
        let found = self.store.load::<Delegation>(tenant, delegation.as_str()).await?;
        let Some(delegation) = found else { return Ok(false) };
        Ok(self.audience(&delegation.value).await? != Audience::Anybody)
    }
}
