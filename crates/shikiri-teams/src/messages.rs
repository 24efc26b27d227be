//! Messages outside dialogues.

use shikiri_model::ids::{AgentId, DelegationId, MessageId, ProjectId, TenantId};
use shikiri_model::record::{RecordQuery, StoredDocument};
use shikiri_model::team::{
    Delegation, DelegationOutcome, InboxItemKind, MAX_CONTENT, RefusalCode, TeamAgent, TeamBudget,
    TeamCause, TeamCauseKind, TeamMessage, check_content,
};
use shikiri_model::time::Timestamp;
use shikiri_runtime::{entropy, transact};
use shikiri_store::{StoreExt, store};

use super::session_handle::AgentSessionHandle;
use super::team_transaction::{TeamTransaction, is_human};
use super::{TeamError, parse_id};
use crate::Teams;

/// Messages among which the newest one that can be answered is looked for.
const NEWEST: u32 = 20;

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
        if answered.value.is_notice {
            let message = "a notice of the server is not answered";
            return Err(RefusalCode::InvalidArgument.because(message).into());
        }
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
        let (partner, mut membership) = self.partner(target).await?;
        let own = self.own_membership().await?;
        let mut transaction = TeamTransaction::begin(&self.teams, self.tenant()).await?;
        transaction.require(&own);
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
            cause: None,
            is_notice: false,
            is_answered: false,
            read_at: None,
        };
        let mut left = None;
        if let Some(answered) = &mut answered {
            transaction.remove_inbox_item(&self.teams, answered.value.id.as_str()).await?;
            left = answered.value.answer();
            transaction.put(answered)?;
        }
        let done =
            self.for_delegation(&mut transaction, delegation, &partner.id, &message.id).await?;
        let sender = self.teams.team_agent(self.tenant(), self.agent()).await?.value;
        let mut message =
            TeamMessage { delegation: done.as_ref().map(|it| it.id.clone()), ..message };
        if is_human(&sender) {
            message.cause = Some(posted(&message.id, &sender, transaction.now));
        } else if !is_human(&partner) {
            let known = match (&done, &answered) {
                (Some(done), _) => done.cause.as_ref(),
                (None, Some(answered)) => answered.value.cause.as_ref(),
                (None, None) => None,
            };
            let action = TeamCause::new(TeamCauseKind::Message, &message.id, transaction.now);
            let cause = self.cause_of(known, &own.value, action);
            message.hops = Some(self.hops(&transaction, done.as_ref(), left).await?);
            let is_first = cause.id == message.id.as_str();
            if !is_first
                && self
                    .take_messages(&mut transaction, &partner.id, &cause, (1, 1))
                    .await?
                    .is_none()
            {
                return Ok(None);
            }
            message.cause = Some(cause);
        }
        transaction.set_off(&self.teams, &mut membership, message.cause.as_ref())?;
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

    /// The hops that are left after a message to another AI agent.
    async fn hops(
        &self,
        transaction: &TeamTransaction,
        delegation: Option<&Delegation>,
        answered: Option<u32>,
    ) -> Result<u32, TeamError> {
        if let Some(delegation) = delegation {
            return Ok(delegation.budget.hops);
        }
        let budgets = match answered {
            // The message answers a known one.
            Some(hops) => vec![TeamBudget::of_message(hops, self.limits(), transaction.now)],
            None => {
                let living = self.teams.living_dialogues(self.tenant(), self.place()).await?;
                self.received_budgets(&living).await?
            }
        };
        Ok(TeamBudget::hops_after(&budgets, self.limits())?)
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
                    limit: NEWEST,
                    ..RecordQuery::of::<TeamMessage>(self.tenant())
                };
                let newest = self.teams.runtime.store().list(query).await?;
                let newest: Vec<_> =
                    newest.iter().map(store::decode::<TeamMessage>).collect::<Result<_, _>>()?;
                newest.into_iter().find(|message| !message.value.is_notice)
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
        transaction.require(&self.membership(tenant, project, from).await?);
        let mut recipient = self.membership(tenant, project, to).await?;
        let sender = self.team_agent(tenant, from).await?.value;
        let mut message = TeamMessage {
            id: MessageId::mint(transaction.now, entropy()?),
            tenant: tenant.clone(),
            project: project.clone(),
            from: from.clone(),
            to: to.clone(),
            content: content.to_owned(),
            in_reply_to: None,
            delegation: None,
            hops: None,
            cause: None,
            is_notice: false,
            is_answered: false,
            read_at: None,
        };
        message.cause = Some(posted(&message.id, &sender, transaction.now));
        transaction.set_off(self, &mut recipient, message.cause.as_ref())?;
        self.deliver(&mut transaction, &message).await?;
        transaction.try_create(self, message).await
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

/// A message from a person, or from outside, as the cause of what follows from it.
fn posted(id: &MessageId, sender: &TeamAgent, now: Timestamp) -> TeamCause {
    let person = is_human(sender).then(|| sender.id.clone());
    TeamCause { person, ..TeamCause::new(TeamCauseKind::Posted, id, now) }
}
