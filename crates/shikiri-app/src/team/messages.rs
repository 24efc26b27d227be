//! Messages outside dialogues.

use shikiri_model::ids::{AgentId, DelegationId, MessageId, ProjectId, TenantId};
use shikiri_model::record::{RecordQuery, Stored};
use shikiri_model::team::{
    Budget, Delegation, MAX_CONTENT, Message, Outcome, RefusalCode, TeamAgent, What, check_content,
};
use shikiri_store::{StoreExt, store};

use super::desk::Desk;
use super::draft::{Draft, is_human};
use super::{TeamError, parse_id, until_settled};
use crate::app::{App, entropy};

impl Desk {
    /// One message, for which no answer is waited for. With a delegation, that is what it asked for.
    pub async fn send_message(
        &self,
        target: &str,
        content: &str,
        delegation: Option<&str>,
    ) -> Result<MessageId, TeamError> {
        check_content("content", content, MAX_CONTENT)?;
        until_settled!(target, self.try_send(target, content, delegation, None).await?)
    }

    /// Answers a message; without one named, the newest that was read.
    pub async fn respond_chat(
        &self,
        message: Option<&str>,
        content: &str,
    ) -> Result<MessageId, TeamError> {
        check_content("content", content, MAX_CONTENT)?;
        let named = message.unwrap_or("the newest message");
        until_settled!(named, self.try_answer(message, content).await?)
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
        mut answered: Option<Stored<Message>>,
    ) -> Result<Option<MessageId>, TeamError> {
        let (partner, membership) = self.partner(target).await?;
        let mut draft = Draft::begin(&self.app, self.tenant()).await?;
        let message = Message {
            id: MessageId::mint(draft.now, entropy()?),
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
            draft.stop_waiting(&self.app, answered.value.id.as_str()).await?;
            left = answered.value.answer();
            draft.put(answered)?;
        }
        draft.require(&membership);
        let done = self.for_delegation(&mut draft, delegation, &partner.id, &message.id).await?;
        let hops = self.hops(&mut draft, &partner, done.as_ref(), left).await?;
        let message = Message { delegation: done.map(|done| done.id), hops, ..message };
        self.app.deliver(&mut draft, &message).await?;
        draft.settle(&self.app, message.id).await
    }

    async fn for_delegation(
        &self,
        draft: &mut Draft,
        delegation: Option<&str>,
        target: &AgentId,
        message: &MessageId,
    ) -> Result<Option<Delegation>, TeamError> {
        let Some(id) = delegation else { return Ok(None) };
        let mut delegation = self.own_delegation(id).await?;
        delegation.value.check_use(self.agent(), target)?;
        // What was never listed goes through the same states.
        delegation.value.claim(&self.session.id, self.limits(), draft.now);
        delegation.value.complete(&Outcome::Message(message.clone()), draft.now);
        self.app.put_outcome(draft, &delegation).await?;
        Ok(Some(delegation.value))
    }

    /// What may follow from a message. Persons say what they like, and are told all.
    async fn hops(
        &self,
        draft: &mut Draft,
        partner: &TeamAgent,
        delegation: Option<&Delegation>,
        answered: Option<u32>,
    ) -> Result<Option<u32>, TeamError> {
        let own = self.app.team_agent(self.tenant(), self.agent()).await?;
        if is_human(partner) || is_human(&own.value) {
            return Ok(None);
        }
        if let Some(delegation) = delegation {
            return Ok(Some(delegation.budget.hops));
        }
        let told = match answered {
            // What it follows from is known.
            Some(hops) => vec![Budget::of_message(hops, self.limits(), draft.now)],
            None => {
                self.pay(draft, 1).await?;
                let living = self.app.living_dialogues(self.tenant(), self.place()).await?;
                self.told(&living).await?
            }
        };
        Ok(Some(Budget::hops_after(&told, self.limits())?))
    }

    /// A message to this agent.
    async fn received(&self, id: Option<&str>) -> Result<Stored<Message>, TeamError> {
        let found = match id {
            Some(id) => {
                let id: MessageId = parse_id(id, RefusalCode::InvalidArgument)?;
                self.app.store.load::<Message>(self.tenant(), id.as_str()).await?
            }
            None => {
                let query = RecordQuery {
                    // What it has not seen it cannot mean.
                    state: Some(Message::READ.to_owned()),
                    owner: Some(self.place().key()),
                    newest_first: true,
                    limit: 1,
                    ..RecordQuery::of::<Message>(self.tenant())
                };
                let newest = self.app.store.list(query).await?;
                newest.first().map(store::decode::<Message>).transpose()?
            }
        };
        found.filter(|message| message.value.recipient() == *self.place()).ok_or_else(|| {
            let message = "there is no such message to you: messages of a conversation are \
                           answered with respond_conversation_message";
            RefusalCode::InvalidArgument.because(message).into()
        })
    }

    /// A delegation of this agent in this project.
    pub(super) async fn own_delegation(&self, id: &str) -> Result<Stored<Delegation>, TeamError> {
        let id: DelegationId = parse_id(id, RefusalCode::NoDelegation)?;
        let found = self.app.store.load::<Delegation>(self.tenant(), id.as_str()).await?;
        let is_here = |one: &Stored<Delegation>| one.value.project == self.place().project;
        let Some(delegation) = found.filter(is_here) else {
            let message = format!("there is no delegation {id}");
            return Err(RefusalCode::NoDelegation.because(message).into());
        };
        delegation.value.check_owner(self.agent())?;
        Ok(delegation)
    }
}

impl App {
    /// A message that somebody writes through another door, such as a person.
    pub async fn post_message(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
        from: &AgentId,
        to: &AgentId,
        content: &str,
    ) -> Result<Stored<Message>, TeamError> {
        check_content("content", content, MAX_CONTENT)?;
        if from == to {
            let message = "a message goes to another agent";
            return Err(RefusalCode::WithSelf.because(message).into());
        }
        until_settled!(to.as_str(), self.try_post(tenant, project, from, to, content).await?)
    }

    async fn try_post(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
        from: &AgentId,
        to: &AgentId,
        content: &str,
    ) -> Result<Option<Stored<Message>>, TeamError> {
        let mut draft = Draft::for_active(self, tenant).await?;
        for agent in [from, to] {
            draft.require(&self.membership(tenant, project, agent).await?);
        }
        let message = Message {
            id: MessageId::mint(draft.now, entropy()?),
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
        self.deliver(&mut draft, &message).await?;
        let (created_at, updated_at) = (draft.now, draft.now);
        let stored = Stored { version: 1, attempts: 0, created_at, updated_at, value: message };
        draft.settle(self, stored).await
    }

    async fn deliver(&self, draft: &mut Draft, message: &Message) -> Result<(), TeamError> {
        draft.add(message)?;
        draft.await_agent(self, message.recipient(), What::Message(message.id.clone())).await
    }
}
