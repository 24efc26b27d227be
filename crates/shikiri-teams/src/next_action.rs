//! The next action of a task session.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::Value;
use shikiri_model::ids::{AgentSessionId, DelegationId, TaskId, TenantId};
use shikiri_model::record::{RecordQuery, StoredDocument};
use shikiri_model::team::{
    AgentSession, Delegation, DeliveryState, InboxItemKind, ProjectMember, RefusalCode,
    SessionPurpose, TaskStatus, TeamTask, next_task,
};
use shikiri_runtime::transact;
use shikiri_store::StoreExt;

use super::delegations::check_result;
use super::dialogue_transcript::DialogueLine;
use super::session_handle::{AgentSessionHandle, session_over};
use super::team_transaction::TeamTransaction;
use super::{DeliveryReceipt, TeamError, parse_id};
use crate::Teams;

#[derive(Clone, Debug)]
pub enum NextAction {
    Work(Box<StoredDocument<TeamTask>>),
    WaitForDelegation(DelegationId),
    DelegationResult { delegation: Box<Delegation>, messages: Vec<DialogueLine> },
    None,
}

/// Who is notified of an outcome, besides the session that asked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OutcomeRecipient {
    /// The session that works on its task.
    Task,
    /// The session that takes its blocked task up again.
    Later,
    Anybody,
}

impl AgentSessionHandle {
    /// Outcomes of delegations come first, then a task that can go on. The session waits while only
    /// delegations are open.
    pub async fn next_action(&mut self, wait: Duration) -> Result<NextAction, TeamError> {
        self.confirm().await;
        let mut waiter = self.waiter(self.place().wake_stream(self.tenant()), wait);
        loop {
            let action = self.look_for_action().await?;
            let can_wait = matches!(action, NextAction::WaitForDelegation(_) | NextAction::None);
            if !can_wait || !waiter.wait_for_wake(self).await? {
                return Ok(action);
            }
        }
    }

    async fn look_for_action(&mut self) -> Result<NextAction, TeamError> {
        // Read before the outcomes: a delegation that ends in between is found in one or the other.
        let open = self.teams.open_delegations(self.tenant(), &self.place().project).await?;
        let open: Vec<_> = open.into_iter().filter(|one| one.agent == *self.agent()).collect();
        // The task comes first, so that a session that takes over a task also learns the outcomes
        // of its delegations.
        let task = self.take_task(&open).await?;
        if let Some(action) = self.outcome().await? {
            return Ok(action);
        }
        let awaited_for = |task: &TeamTask| open.iter().find(|one| one.is_awaited_by(&task.id));
        if let Some(task) = task {
            return Ok(match awaited_for(&task.value) {
                Some(delegation) => NextAction::WaitForDelegation(delegation.id.clone()),
                None => NextAction::Work(Box::new(task)),
            });
        }
        let asked = open.iter().find(|one| one.session == self.session.id);
        Ok(asked.map_or(NextAction::None, |one| NextAction::WaitForDelegation(one.id.clone())))
    }

    /// A session is told an outcome once. Another session that continues the task is told again.
    async fn outcome(&mut self) -> Result<Option<NextAction>, TeamError> {
        for one in self.teams.inbox_items(self.tenant(), self.place(), SessionPurpose::Task).await?
        {
            let InboxItemKind::Outcome(id) = &one.value.what else { continue };
            if one.value.was_seen_by(&self.session.id) {
                continue;
            }
            match self.teams.arrivals.of(&self.session.id, &one.value.id) {
                DeliveryState::Unknown => {}
                // If the answer is lost, the outcome is told again. Until then this session does
                // not go on.
                DeliveryState::OnItsWay => {
                    return Ok(Some(NextAction::WaitForDelegation(id.clone())));
                }
                DeliveryState::Came => continue,
            }
            let found =
                self.teams.runtime.store().load::<Delegation>(self.tenant(), id.as_str()).await?;
            let Some(delegation) = found else { continue };
            if !self.should_notify(&delegation.value).await? {
                continue;
            }
            let messages = match &delegation.value.dialogue {
                Some(dialogue) => self.teams.transcript(self.tenant(), dialogue).await?,
                None => Vec::new(),
            };
            self.go_on_with(delegation.value.task.as_ref()).await?;
            let ids = vec![one.value.id];
            self.receipt =
                Some(DeliveryReceipt::new(&self.teams, self.tenant(), &self.session.id, ids));
            let delegation = Box::new(delegation.value);
            return Ok(Some(NextAction::DelegationResult { delegation, messages }));
        }
        Ok(None)
    }

    /// Delegations from now on belong to the task whose outcome is told, if this session has it.
    async fn go_on_with(&mut self, task: Option<&TaskId>) -> Result<(), TeamError> {
        let Some(id) = task.filter(|id| self.session.task.as_ref() != Some(id)) else {
            return Ok(());
        };
        let found = self.teams.runtime.store().load::<TeamTask>(self.tenant(), id.as_str()).await?;
        let is_mine = |task: &TeamTask| {
            task.status == TaskStatus::InProgress && task.session.as_ref() == Some(&self.session.id)
        };
        if !found.is_some_and(|found| is_mine(&found.value)) {
            return Ok(());
        }
        let session = self.session.id.as_str();
        let changed =
            self.teams.runtime.update::<AgentSession>(&self.session.tenant, session, |session| {
                session.task = Some(id.clone());
                Ok(())
            });
        self.session = changed.await?.value;
        Ok(())
    }

    /// True for the session that asked and for one that continues the task. If there is no such
    /// task and the asking session is gone, any session is told. While the task is blocked no other
    /// is told: it may be resumed.
    async fn should_notify(&self, delegation: &Delegation) -> Result<bool, TeamError> {
        if delegation.session == self.session.id {
            return Ok(true);
        }
        match self.teams.outcome_recipient(delegation).await? {
            OutcomeRecipient::Task => Ok(delegation.task == self.session.task),
            OutcomeRecipient::Later => Ok(false),
            OutcomeRecipient::Anybody => {
                Ok(!self.teams.is_session_live(self.tenant(), &delegation.session).await?)
            }
        }
    }

    async fn take_task(
        &mut self,
        open: &[Delegation],
    ) -> Result<Option<StoredDocument<TeamTask>>, TeamError> {
        let taken = self.find_task(open).await?;
        if let Some(task) = &taken {
            self.session.task = Some(task.value.id.clone());
        }
        Ok(taken)
    }

    async fn find_task(
        &self,
        open: &[Delegation],
    ) -> Result<Option<StoredDocument<TeamTask>>, TeamError> {
        transact("team", self.agent().as_str(), || self.try_task(open)).await
    }

    async fn try_task(
        &self,
        open: &[Delegation],
    ) -> Result<Option<Option<StoredDocument<TeamTask>>>, TeamError> {
        let tasks = self.teams.open_tasks(self.tenant(), self.place()).await?;
        let living = self.teams.holders(self.tenant(), &tasks).await?;
        let waits = |task: &TeamTask| open.iter().any(|one| one.is_awaited_by(&task.id));
        let (waiting, ready): (Vec<_>, Vec<_>) = tasks.into_iter().partition(waits);
        let is_live = |id: &AgentSessionId| living.contains(id);
        let next = next_task(&ready, &self.session.id, is_live)
            .or_else(|| next_task(&waiting, &self.session.id, is_live));
        let Some(next) = next else { return Ok(Some(None)) };
        let found =
            self.teams.runtime.store().load::<TeamTask>(self.tenant(), next.id.as_str()).await?;
        // Another session may have taken it since it was chosen: choose again.
        let Some(mut task) = found.filter(|task| task.value == *next) else { return Ok(None) };
        let is_mine = task.value.session.as_ref() == Some(&self.session.id);
        let is_current = self.session.task.as_ref() == Some(&task.value.id);
        if is_mine && is_current && task.value.status == TaskStatus::InProgress {
            return Ok(Some(Some(task)));
        }
        let id = self.session.id.as_str();
        let session = self.teams.runtime.store().load::<AgentSession>(self.tenant(), id).await?;
        let Some(mut session) = session else { return Ok(None) };
        let mut transaction = TeamTransaction::begin(&self.teams, self.tenant()).await?;
        // The session may have ended while it waited, and its task may belong to another one.
        if !session.value.is_live(transaction.now) {
            return Err(session_over().into());
        }
        task.value.take(&self.session.id);
        session.value.task = Some(task.value.id.clone());
        transaction.put(&task)?;
        transaction.put(&session)?;
        Ok(transaction.try_change(&self.teams, task).await?.map(Some))
    }

    /// The agent reports that a task is done, or that it cannot continue.
    pub async fn report_completed(
        &self,
        task: &str,
        status: TaskStatus,
        result: Option<Value>,
    ) -> Result<StoredDocument<TeamTask>, TeamError> {
        check_result(result.as_ref())?;
        transact("team", task, || self.try_complete(task, status, result.clone())).await
    }

    async fn try_complete(
        &self,
        id: &str,
        status: TaskStatus,
        result: Option<Value>,
    ) -> Result<Option<StoredDocument<TeamTask>>, TeamError> {
        let id: TaskId = parse_id(id, RefusalCode::NoTask)?;
        let found = self.teams.runtime.store().load::<TeamTask>(self.tenant(), id.as_str()).await?;
        let Some(mut task) = found.filter(|task| task.value.project == self.place().project) else {
            return Err(RefusalCode::NoTask.because(format!("there is no task {id}")).into());
        };
        task.value.report(self.agent(), status, result)?;
        let mut transaction = TeamTransaction::begin(&self.teams, self.tenant()).await?;
        transaction.put(&task)?;
        let session = self.session.id.as_str();
        if let Some(mut session) =
            self.teams.runtime.store().load::<AgentSession>(self.tenant(), session).await?
            && session.value.task.as_ref() == Some(&id)
        {
            // Delegations from now on do not belong to this task.
            session.value.task = None;
            transaction.put(&session)?;
        }
        transaction.remove_inbox_item(&self.teams, id.as_str()).await?;
        self.teams.settle_outcomes(&mut transaction, &task.value, self.place()).await?;
        transaction.wake_agent(self.place().clone());
        transaction.try_change(&self.teams, task).await
    }
}

impl Teams {
    /// Open tasks of an agent, oldest first.
    pub(super) async fn open_tasks(
        &self,
        tenant: &TenantId,
        member: &ProjectMember,
    ) -> Result<Vec<TeamTask>, TeamError> {
        let query =
            RecordQuery { owner: Some(member.key()), ..RecordQuery::of::<TeamTask>(tenant) };
        Ok(self.runtime.list_all(query).await?)
    }

    /// Removes the outcomes of a task that its agent no longer works on. If the task is only
    /// blocked, they stay for the session that resumes it.
    pub(super) async fn settle_outcomes(
        &self,
        transaction: &mut TeamTransaction,
        task: &TeamTask,
        member: &ProjectMember,
    ) -> Result<(), TeamError> {
        let is_kept = task.status == TaskStatus::Blocked && task.place().as_ref() == Some(member);
        for mut one in self.inbox_items(&task.tenant, member, SessionPurpose::Task).await? {
            let InboxItemKind::Outcome(id) = &one.value.what else { continue };
            let found = self.runtime.store().load::<Delegation>(&task.tenant, id.as_str()).await?;
            if found.is_some_and(|delegation| delegation.value.task.as_ref() != Some(&task.id)) {
                continue;
            }
            if is_kept {
                // No agent is started for it.
                one.value.due_at = None;
                transaction.put(&one)?;
            } else {
                transaction.remove(&one);
            }
        }
        Ok(())
    }

    /// Live sessions that work on one of these tasks.
    async fn holders(
        &self,
        tenant: &TenantId,
        tasks: &[TeamTask],
    ) -> Result<HashSet<AgentSessionId>, TeamError> {
        let mut living = HashSet::new();
        for id in tasks.iter().filter_map(|task| task.session.as_ref()) {
            if self.is_session_live(tenant, id).await? {
                living.insert(id.clone());
            }
        }
        Ok(living)
    }

    /// Whether a task session of the agent would find work.
    pub async fn has_task_work(
        &self,
        tenant: &TenantId,
        member: &ProjectMember,
    ) -> Result<bool, TeamError> {
        let tasks = self.open_tasks(tenant, member).await?;
        let living = self.holders(tenant, &tasks).await?;
        let is_free = |task: &TeamTask| task.session.as_ref().is_none_or(|id| !living.contains(id));
        if tasks.iter().any(is_free) {
            return Ok(true);
        }
        for one in self.inbox_items(tenant, member, SessionPurpose::Task).await? {
            let InboxItemKind::Outcome(id) = &one.value.what else { continue };
            let found = self.runtime.store().load::<Delegation>(tenant, id.as_str()).await?;
            if let Some(delegation) = found
                && self.outcome_recipient(&delegation.value).await? == OutcomeRecipient::Anybody
                && !self.is_session_live(tenant, &delegation.value.session).await?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Who is notified of a delegation's outcome, besides the session that asked.
    pub(super) async fn outcome_recipient(
        &self,
        delegation: &Delegation,
    ) -> Result<OutcomeRecipient, TeamError> {
        let Some(task) = &delegation.task else { return Ok(OutcomeRecipient::Anybody) };
        let task = self.runtime.store().load::<TeamTask>(&delegation.tenant, task.as_str()).await?;
        let is_its = |task: &TeamTask| task.assignee.as_ref() == Some(&delegation.agent);
        Ok(match task.map(|task| task.value).filter(is_its).map(|task| task.status) {
            Some(TaskStatus::Todo | TaskStatus::InProgress) => OutcomeRecipient::Task,
            Some(TaskStatus::Blocked) => OutcomeRecipient::Later,
            Some(TaskStatus::Done) | None => OutcomeRecipient::Anybody,
        })
    }

    /// Whether an outcome is still needed after one session was told.
    pub(super) async fn is_outcome_kept(
        &self,
        tenant: &TenantId,
        delegation: &DelegationId,
    ) -> Result<bool, TeamError> {
        let found = self.runtime.store().load::<Delegation>(tenant, delegation.as_str()).await?;
        let Some(delegation) = found else { return Ok(false) };
        Ok(self.outcome_recipient(&delegation.value).await? != OutcomeRecipient::Anybody)
    }
}
