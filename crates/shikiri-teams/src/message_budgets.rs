//! What an agent's action follows from, and the budget of messages that this leaves to it and its
//! partner.

use shikiri_model::ids::{AgentId, MessageId, ProjectId, TenantId};
use shikiri_model::record::{RecordQuery, StoredDocument};
use shikiri_model::team::{
    AgentKind, Dialogue, InboxItemKind, MessageBudget, ProjectMember, ProjectMembership, TeamAgent,
    TeamCause, TeamMessage, TeamRefusal,
};
use shikiri_model::time::Timestamp;
use shikiri_runtime::entropy;
use shikiri_store::StoreExt;

use super::TeamError;
use super::session_handle::{AgentSessionHandle, session_over};
use super::team_transaction::TeamTransaction;
use crate::Teams;

impl AgentSessionHandle {
    /// The membership of this session's own agent. A write that requires it is refused once the
    /// agent is removed.
    pub(super) async fn own_membership(
        &self,
    ) -> Result<StoredDocument<ProjectMembership>, TeamError> {
        let id = ProjectMembership::id_of(self.place());
        let found =
            self.teams.runtime.store().load::<ProjectMembership>(self.tenant(), &id).await?;
        found.ok_or_else(|| session_over().into())
    }

    /// What an action of this agent follows from: a known cause, else the newest one that reached
    /// the agent, else the action itself.
    pub(super) fn cause_of(
        &self,
        known: Option<&TeamCause>,
        own: &ProjectMembership,
        action: TeamCause,
    ) -> TeamCause {
        let newest = || own.cause(self.limits().delegation_wall, action.at).cloned();
        known.cloned().or_else(newest).unwrap_or(action)
    }

    /// Takes up to `wanted` messages to and from a partner out of the budget of the pair, and no
    /// fewer than `least`. `None` if another writer was first. The first refusal is told to both
    /// agents and to a person.
    pub(super) async fn take_messages(
        &self,
        transaction: &mut TeamTransaction,
        partner: &AgentId,
        cause: &TeamCause,
        (wanted, least): (u32, u32),
    ) -> Result<Option<u32>, TeamError> {
        let (project, pair) = (&self.place().project, (self.agent(), partner));
        let mut budget =
            self.teams.message_budget(self.tenant(), project, pair, cause, transaction.now).await?;
        match budget.value.take(wanted, least, self.limits(), transaction.now) {
            Ok(granted) => {
                transaction.put(&budget)?;
                Ok(Some(granted))
            }
            Err(refusal) if budget.value.is_told => Err(refusal.into()),
            Err(refusal) => match self.teams.tell_spent(budget, &refusal).await? {
                true => Err(refusal.into()),
                false => Ok(None),
            },
        }
    }
}

impl Teams {
    /// The budget of a pair of agents and a cause; with version 0 if it is new.
    async fn message_budget(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
        pair: (&AgentId, &AgentId),
        cause: &TeamCause,
        now: Timestamp,
    ) -> Result<StoredDocument<MessageBudget>, TeamError> {
        let id = MessageBudget::id_of(project, pair, cause);
        if let Some(found) = self.runtime.store().load::<MessageBudget>(tenant, &id).await? {
            return Ok(found);
        }
        let value = MessageBudget::new(tenant, project, pair, cause, now);
        Ok(StoredDocument { version: 0, attempts: 0, created_at: now, updated_at: now, value })
    }

    /// Returns the turns that an ended dialogue has not used.
    pub(super) async fn give_turns_back(
        &self,
        transaction: &mut TeamTransaction,
        talk: &Dialogue,
    ) -> Result<(), TeamError> {
        let Some(cause) = talk.cause.as_ref().filter(|_| talk.turns_left() > 0) else {
            return Ok(());
        };
        let id = MessageBudget::id_of(&talk.project, (&talk.initiator, &talk.participant), cause);
        if let Some(mut budget) =
            self.runtime.store().load::<MessageBudget>(&talk.tenant, &id).await?
        {
            budget.value.give_back(talk.turns_left());
            transaction.put(&budget)?;
        }
        Ok(())
    }

    /// Tells both agents and a person that a budget is spent. False on a conflict.
    async fn tell_spent(
        &self,
        mut budget: StoredDocument<MessageBudget>,
        refusal: &TeamRefusal,
    ) -> Result<bool, TeamError> {
        let MessageBudget { tenant, project, agents: (first, second), cause, .. } =
            budget.value.clone();
        let mut transaction = TeamTransaction::begin(self, &tenant).await?;
        budget.value.is_told = true;
        transaction.put(&budget)?;
        let mut told = vec![first.clone(), second.clone()];
        match cause.person {
            Some(person) => told.push(person),
            None => told.extend(self.people_of(&tenant, &project).await?),
        }
        for agent in &told {
            self.add_notice(&mut transaction, &project, agent, &refusal.message).await?;
        }
        tracing::warn!(%project, %first, %second, cause = cause.id, "a message budget is spent");
        Ok(transaction.try_commit(self, ()).await?.is_some())
    }

    /// A message of the server. No agent is started for it.
    async fn add_notice(
        &self,
        transaction: &mut TeamTransaction,
        project: &ProjectId,
        to: &AgentId,
        content: &str,
    ) -> Result<(), TeamError> {
        let tenant = transaction.tenant().clone();
        let notice = TeamMessage {
            id: MessageId::mint(transaction.now, entropy()?),
            tenant,
            project: project.clone(),
            from: AgentId::server(),
            to: to.clone(),
            content: content.to_owned(),
            in_reply_to: None,
            delegation: None,
            hops: None,
            cause: None,
            is_notice: true,
            is_answered: false,
            read_at: None,
        };
        transaction.add(&notice)?;
        let what = InboxItemKind::Message(notice.id.clone());
        transaction.add_unstarted_item(ProjectMember::new(project, to), what)
    }

    /// The people of a project.
    async fn people_of(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
    ) -> Result<Vec<AgentId>, TeamError> {
        let query = RecordQuery {
            parent: Some(project.to_string()),
            ..RecordQuery::of::<ProjectMembership>(tenant)
        };
        let mut people = Vec::new();
        for member in self.runtime.list_all::<ProjectMembership>(query).await? {
            let agent = member.place.agent;
            let found = self.runtime.store().load::<TeamAgent>(tenant, agent.as_str()).await?;
            if found.is_some_and(|found| found.value.kind == AgentKind::Human) {
                people.push(agent);
            }
        }
        Ok(people)
    }
}
