//! Removing an agent from a project, and a project with all that it has.
//!
//! The membership goes first, so nothing new is begun: every write of or to an agent requires it.
//! Then everything that is open ends like any other end, and those who wait are told. What a
//! removal that breaks off leaves open has a deadline of its own; repeating the removal of a project
//! finishes it.

use shikiri_model::ids::{AgentId, ProjectId, TenantId};
use shikiri_model::record::{Document, RecordQuery, StoredDocument};
use shikiri_model::team::{
    AgentSession, Delegation, Dialogue, InboxItem, MessageBudget, Project, ProjectMember,
    ProjectMembership, SessionPurpose, SpawnSlot, SpawnTarget, TeamAgent, TeamMessage, TeamTask,
};
use shikiri_runtime::leased_change::run_to_completion;
use shikiri_runtime::{AppError, transact};
use shikiri_store::StoreExt;

use super::TeamError;
use super::team_transaction::TeamTransaction;
use crate::Teams;

const PURPOSES: [SessionPurpose; 2] = [SessionPurpose::Task, SessionPurpose::Chat];
/// Records that one commit deletes.
const AT_ONCE: u32 = 100;

impl Teams {
    /// Removes an agent from a project. Its sessions end, its dialogues are cancelled, what it
    /// delegated or was to answer fails, and its open tasks are blocked; what was said and done
    /// stays. An agent without another project is removed altogether, with its passkey.
    pub async fn remove_agent(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
        agent: &AgentId,
    ) -> Result<(), TeamError> {
        self.project(tenant, project).await?;
        let member = ProjectMember::new(project, agent);
        let (teams, tenant) = (self.clone(), tenant.clone());
        run_to_completion(async move { Ok(teams.take_out(&tenant, &member).await) }).await?
    }

    /// Removes a project for good, with its tasks, messages, delegations and dialogues. Its agents
    /// are removed from it first.
    pub async fn delete_project(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
    ) -> Result<(), TeamError> {
        self.project(tenant, project).await?;
        let (teams, tenant, project) = (self.clone(), tenant.clone(), project.clone());
        run_to_completion(async move { Ok(teams.take_down(&tenant, &project).await) }).await?
    }

    async fn take_down(&self, tenant: &TenantId, project: &ProjectId) -> Result<(), TeamError> {
        self.take_all_out(tenant, project).await?;
        self.delete_all::<TeamTask>(tenant, project).await?;
        self.delete_all::<TeamMessage>(tenant, project).await?;
        self.delete_all::<Delegation>(tenant, project).await?;
        self.delete_all::<Dialogue>(tenant, project).await?;
        self.delete_all::<AgentSession>(tenant, project).await?;
        self.delete_all::<SpawnSlot>(tenant, project).await?;
        self.delete_all::<MessageBudget>(tenant, project).await?;
        match self.runtime.delete_record::<Project>(tenant, project.as_str()).await {
            Ok(()) | Err(AppError::NotFound { .. }) => {}
            Err(other) => return Err(other.into()),
        }
        // Agents that were added meanwhile.
        self.take_all_out(tenant, project).await
    }

    async fn take_all_out(&self, tenant: &TenantId, project: &ProjectId) -> Result<(), TeamError> {
        let query = RecordQuery {
            parent: Some(project.to_string()),
            ..RecordQuery::of::<ProjectMembership>(tenant)
        };
        for membership in self.runtime.list_all::<ProjectMembership>(query).await? {
            match self.take_out(tenant, &membership.place).await {
                Ok(()) | Err(TeamError::App(AppError::NotFound { .. })) => {}
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }

    async fn take_out(&self, tenant: &TenantId, member: &ProjectMember) -> Result<(), TeamError> {
        let agent = member.agent.as_str();
        transact("agent", agent, || self.try_leave(tenant, member)).await?;
        self.cancel_dialogues_of(tenant, member).await?;
        self.end_all_sessions(tenant, member).await?;
        // Those that a call began while its session ended.
        self.cancel_dialogues_of(tenant, member).await?;
        for delegation in self.open_delegations(tenant, &member.project).await? {
            if [&delegation.agent, &delegation.target].contains(&&member.agent) {
                let id = delegation.id.as_str();
                transact("team", id, || self.try_fail(tenant, id, &member.agent)).await?;
            }
        }
        let reason = format!("agent {agent} was removed from the project");
        for task in self.open_tasks(tenant, member).await? {
            self.block_task(&task, &reason).await?;
        }
        for purpose in PURPOSES {
            self.clear_inbox(tenant, member, purpose).await?;
        }
        Ok(())
    }

    /// Removes the membership, and the agent if that was the last one.
    async fn try_leave(
        &self,
        tenant: &TenantId,
        member: &ProjectMember,
    ) -> Result<Option<()>, TeamError> {
        let id = ProjectMembership::id_of(member);
        let Some(membership) = self.runtime.store().load::<ProjectMembership>(tenant, &id).await?
        else {
            return Err(AppError::not_found("agent", &member.agent).into());
        };
        let mut transaction = TeamTransaction::begin(self, tenant).await?;
        transaction.remove(&membership);
        transaction.audit(self, Some(&membership.value), None)?;
        let agent = self.runtime.store().load::<TeamAgent>(tenant, member.agent.as_str()).await?;
        let places = self.memberships_of(tenant, &member.agent).await?;
        if let Some(agent) = agent
            && places.iter().all(|place| place == member)
        {
            transaction.remove(&agent);
            transaction.audit(self, Some(&agent.value), None)?;
        }
        transaction.try_commit(self, ()).await
    }

    pub(super) async fn is_member(
        &self,
        tenant: &TenantId,
        member: &ProjectMember,
    ) -> Result<bool, TeamError> {
        let id = ProjectMembership::id_of(member);
        Ok(self.runtime.store().load::<ProjectMembership>(tenant, &id).await?.is_some())
    }

    /// Whether the server starts this agent in this project when it has work.
    pub(super) async fn can_be_started(
        &self,
        tenant: &TenantId,
        member: &ProjectMember,
    ) -> Result<bool, TeamError> {
        let agent = self.runtime.store().load::<TeamAgent>(tenant, member.agent.as_str()).await?;
        let may_be = agent.is_some_and(|agent| agent.value.can_be_started());
        Ok(may_be && self.is_member(tenant, member).await?)
    }

    /// The projects that an agent works in.
    pub(super) async fn memberships_of(
        &self,
        tenant: &TenantId,
        agent: &AgentId,
    ) -> Result<Vec<ProjectMember>, TeamError> {
        let all: Vec<ProjectMembership> =
            self.runtime.list_all(RecordQuery::of::<ProjectMembership>(tenant)).await?;
        let places = all.into_iter().map(|membership| membership.place);
        Ok(places.filter(|place| place.agent == *agent).collect())
    }

    async fn cancel_dialogues_of(
        &self,
        tenant: &TenantId,
        member: &ProjectMember,
    ) -> Result<(), TeamError> {
        for talk in self.living_dialogues(tenant, member).await? {
            match self.cancel_dialogue(tenant, &member.project, &talk.id).await {
                // It has ended meanwhile.
                Ok(_) | Err(TeamError::App(AppError::NotNow(_))) => {}
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }

    /// Ends the agent's sessions, and cancels the runs that the server has started for it.
    async fn end_all_sessions(
        &self,
        tenant: &TenantId,
        member: &ProjectMember,
    ) -> Result<(), TeamError> {
        for purpose in PURPOSES {
            let (tenant, place) = (tenant.clone(), member.clone());
            let target = SpawnTarget { tenant, place, purpose };
            self.stop_run_of(&target).await?;
            transact("agent", member.agent.as_str(), || async {
                let living = self.live_sessions(&target.tenant, member, purpose).await?;
                for session in &living {
                    self.end_session(&target.tenant, &session.id).await?;
                }
                // A call may have renewed one at the same moment.
                Ok::<_, TeamError>(living.is_empty().then_some(()))
            })
            .await?;
        }
        Ok(())
    }

    async fn stop_run_of(&self, target: &SpawnTarget) -> Result<(), TeamError> {
        let id = SpawnSlot::id_of(target);
        let Some(slot) = self.runtime.store().load::<SpawnSlot>(&target.tenant, &id).await? else {
            return Ok(());
        };
        if let Some(occupant) = &slot.value.occupant {
            if let Some(run) = &occupant.execution {
                // A run that has just ended needs no cancelling. Who follows it removes the slot.
                let _ = self.runtime.cancel_run(&target.tenant, run).await;
            }
            return Ok(());
        }
        self.remove_slot(&slot).await
    }

    /// Forgets the runs of an agent that was removed.
    pub(super) async fn remove_slot(
        &self,
        slot: &StoredDocument<SpawnSlot>,
    ) -> Result<(), TeamError> {
        let mut transaction = TeamTransaction::begin(self, &slot.value.tenant).await?;
        transaction.remove(slot);
        // On a conflict a run has begun or ended: its follower comes here again.
        transaction.try_commit(self, ()).await.map(drop)
    }

    async fn try_fail(
        &self,
        tenant: &TenantId,
        id: &str,
        agent: &AgentId,
    ) -> Result<Option<()>, TeamError> {
        let found = self.runtime.store().load::<Delegation>(tenant, id).await?;
        let Some(mut delegation) = found.filter(|found| found.value.status.is_open()) else {
            return Ok(Some(()));
        };
        let mut transaction = TeamTransaction::begin(self, tenant).await?;
        delegation.value.fail(&format!("agent {agent} was removed"), transaction.now);
        self.put_outcome(&mut transaction, &delegation).await?;
        transaction.try_commit(self, ()).await
    }

    /// Removes what is in an agent's inbox for sessions of one purpose.
    pub(super) async fn clear_inbox(
        &self,
        tenant: &TenantId,
        member: &ProjectMember,
        purpose: SessionPurpose,
    ) -> Result<(), TeamError> {
        for item in self.inbox_items(tenant, member, purpose).await? {
            let gone = self.runtime.delete_record::<InboxItem>(tenant, &item.value.id).await;
            if let Err(error) = gone
                && !matches!(error, AppError::NotFound { .. })
            {
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Deletes the records of a kind that belong to a project.
    async fn delete_all<T: Document>(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
    ) -> Result<(), TeamError> {
        let query = RecordQuery {
            parent: Some(project.to_string()),
            limit: AT_ONCE,
            ..RecordQuery::of::<T>(tenant)
        };
        loop {
            let (page, _) = self.runtime.list_records::<T>(query.clone()).await?;
            if page.is_empty() {
                return Ok(());
            }
            let mut transaction = TeamTransaction::begin(self, tenant).await?;
            for record in &page {
                transaction.remove(record);
            }
            // After a conflict the records are read again.
            transaction.try_commit(self, ()).await?;
        }
    }
}
