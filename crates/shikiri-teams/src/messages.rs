//! Messages outside dialogues.

use shikiri_model::ids::{AgentId, DelegationId, MessageId, ProjectId, TenantId};
use shikiri_model::record::{RecordQuery, StoredDocument};
use shikiri_model::team::{
    Delegation, DelegationOutcome, InboxItemKind, MAX_CONTENT, RefusalCode, TeamAgent, TeamBudget,
    TeamMessage, check_content,
};
use shikiri_runtime::{entropy, transact};
use shikiri_store::{StoreExt, store};

use super::session_handle::AgentSessionHandle;
use super::team_transaction::{TeamTransaction, is_human};
use super::{TeamError, parse_id};
use crate::Teams;

impl AgentSessionHandle {
    /// Sends one message and waits for no answer. With a delegation, the message completes it.
    pub async fn send_message(
        &self,
        target: &str,
        content: &str,
        delegation: Option<&str>,
    ) -> Result<MessageId, TeamError> {
        check_content("content", content, MAX_CONTENT)?;
        transact("team", target, || self.try_send(target, content, delegation, None)).await
    }

    /// Answers a message; without a given id, the newest one that was read.
    pub async fn respond_chat(
        &self,
        message: Option<&str>,
        content: &str,
    ) -> Result<MessageId, TeamError> {
        check_content("content", content, MAX_CONTENT)?;
        let named = message.unwrap_or("the newest message");
        transact("team", named, || self.try_answer(message, content)).await
    }

    async fn try_answer(
        &self,
        message: Option<&str>,
        content: &str,
    ) -> Result<Option<MessageId>, TeamError> {
        let answered = self.received(message).await?;
        let to = answered.value.from.to_string();
        self.try_send(&to, content, None, Some(answered)).await
    }

    async fn try_send(
        &self,
        target: &str,
        content: &str,
        delegation: Option<&str>,
        mut answered: Option<StoredDocument<TeamMessage>>,
    ) -> Result<Option<MessageId>, TeamError> {
        let (partner, membership) = self.partner(target).await?;
        let mut transaction = TeamTransaction::begin(&self.teams, self.tenant()).await?;
        let message = TeamMessage {
            id: MessageId::mint(transaction.now, entropy()?),
            tenant: self.tenant().clone(),
            project: self.place().project.clone(),
            from: self.agent().clone(),
            to: partner.id.clone(),
            content: content.to_owned(),
            in_reply_to: answered.as_ref().map(|answered| answered.value.id.clone()),
            delegation: None,
            hops: None,
            is_answered: false,
            read_at: None,
        };
        let mut left = None;
        if let Some(answered) = &mut answered {
            transaction.remove_inbox_item(&self.teams, answered.value.id.as_str()).await?;
            left = answered.value.answer();
            transaction.put(answered)?;
        }
        transaction.require(&membership);
        let done =
            self.for_delegation(&mut transaction, delegation, &partner.id, &message.id).await?;
        let hops = self.hops(&mut transaction, &partner, done.as_ref(), left).await?;
        let message = TeamMessage { delegation: done.map(|done| done.id), hops, ..message };
        self.teams.deliver(&mut transaction, &message).await?;
        transaction.try_commit(&self.teams, message.id).await
    }

    async fn for_delegation(
        &self,
        transaction: &mut TeamTransaction,
        delegation: Option<&str>,
        target: &AgentId,
        message: &MessageId,
    ) -> Result<Option<Delegation>, TeamError> {
        let Some(id) = delegation else { return Ok(None) };
        let mut delegation = self.own_delegation(id).await?;
        delegation.value.check_use(self.agent(), target)?;
        // A delegation that was never listed goes through the same states.
        delegation.value.claim(&self.session.id, self.limits(), transaction.now);
        delegation.value.complete(&DelegationOutcome::Message(message.clone()), transaction.now);
        self.teams.put_outcome(transaction, &delegation).await?;
        Ok(Some(delegation.value))
    }

    /// The hops that are left after a message; None if a person takes part, who is not limited.
    async fn hops(
        &self,
        transaction: &mut TeamTransaction,
        partner: &TeamAgent,
        delegation: Option<&Delegation>,
        answered: Option<u32>,
    ) -> Result<Option<u32>, TeamError> {
        let own = self.teams.team_agent(self.tenant(), self.agent()).await?;
        if is_human(partner) || is_human(&own.value) {
            return Ok(None);
        }
        if let Some(delegation) = delegation {
            return Ok(Some(delegation.budget.hops));
        }
        let budgets = match answered {
            // The message answers a known one.
            Some(hops) => vec![TeamBudget::of_message(hops, self.limits(), transaction.now)],
            None => {
                self.pay(transaction, 1).await?;
                let living = self.teams.living_dialogues(self.tenant(), self.place()).await?;
                self.received_budgets(&living).await?
            }
        };
        Ok(Some(TeamBudget::hops_after(&budgets, self.limits())?))
    }

    /// A message to this agent.
    async fn received(&self, id: Option<&str>) -> Result<StoredDocument<TeamMessage>, TeamError> {
        let found = match id {
            Some(id) => {
                let id: MessageId = parse_id(id, RefusalCode::InvalidArgument)?;
                self.teams.runtime.store().load::<TeamMessage>(self.tenant(), id.as_str()).await?
            }
            None => {
                let query = RecordQuery {
                    // The agent cannot mean a message that it has not seen.
                    state: Some(TeamMessage::READ.to_owned()),
                    owner: Some(self.place().key()),
                    newest_first: true,
                    limit: 1,
                    ..RecordQuery::of::<TeamMessage>(self.tenant())
                };
                let newest = self.teams.runtime.store().list(query).await?;
                newest.first().map(store::decode::<TeamMessage>).transpose()?
            }
        };
        found.filter(|message| message.value.recipient() == *self.place()).ok_or_else(|| {
            let message = "there is no such message to you: messages of a conversation are \
                           answered with respond_conversation_message";
            RefusalCode::InvalidArgument.because(message).into()
        })
    }

    /// A delegation of this agent in this project.
    pub(super) async fn own_delegation(
        &self,
        id: &str,
    ) -> Result<StoredDocument<Delegation>, TeamError> {
        let id: DelegationId = parse_id(id, RefusalCode::NoDelegation)?;
        let found =
            self.teams.runtime.store().load::<Delegation>(self.tenant(), id.as_str()).await?;
        let is_here = |one: &StoredDocument<Delegation>| one.value.project == self.place().project;
        let Some(delegation) = found.filter(is_here) else {
            let message = format!("there is no delegation {id}");
            return Err(RefusalCode::NoDelegation.because(message).into());
        };
        delegation.value.check_owner(self.agent())?;
        Ok(delegation)
    }
}

impl Teams {
    /// Writes a message that does not come from an agent's session, such as a person's.
    pub async fn post_message(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
        from: &AgentId,
        to: &AgentId,
        content: &str,
    ) -> Result<StoredDocument<TeamMessage>, TeamError> {
        check_content("content", content, MAX_CONTENT)?;
        if from == to {
            let message = "a message goes to another agent";
            return Err(RefusalCode::WithSelf.because(message).into());
        }
        transact("team", to.as_str(), || self.try_post(tenant, project, from, to, content)).await
    }

    async fn try_post(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
        from: &AgentId,
        to: &AgentId,
        content: &str,
    ) -> Result<Option<StoredDocument<TeamMessage>>, TeamError> {
        let mut transaction = TeamTransaction::for_active(self, tenant).await?;
        for agent in [from, to] {
            transaction.require(&self.membership(tenant, project, agent).await?);
        }
        let message = TeamMessage {
            id: MessageId::mint(transaction.now, entropy()?),
            tenant: tenant.clone(),
            project: project.clone(),
            from: from.clone(),
            to: to.clone(),
            content: content.to_owned(),
            in_reply_to: None,
            delegation: None,
            hops: None,
            is_answered: false,
            read_at: None,
        };
        self.deliver(&mut transaction, &message).await?;
        let (created_at, updated_at) = (transaction.now, transaction.now);
        let stored =
            StoredDocument { version: 1, attempts: 0, created_at, updated_at, value: message };
        transaction.try_commit(self, stored).await
    }

    async fn deliver(
        &self,
        transaction: &mut TeamTransaction,
        message: &TeamMessage,
    ) -> Result<(), TeamError> {
        transaction.add(message)?;
        transaction
            .add_inbox_item(self, message.recipient(), InboxItemKind::Message(message.id.clone()))
            .await
    }
}
