//! Messages outside dialogues.

use shikiri_model::ids::{AgentId, DelegationId, MessageId, ProjectId, TenantId};
use shikiri_model::record::{Document, RecordQuery, Stored};
use shikiri_model::team::{
    Delegation, MAX_CONTENT, Message, Outcome, RefusalCode, What, check_content,
};
use shikiri_store::{StoreExt, store};

use super::desk::Desk;
use super::draft::Draft;
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
        let answered = self.received(message).await?;
        let (to, id) = (answered.value.from.to_string(), answered.value.id);
        until_settled!(&to, self.try_send(&to, content, None, Some(id.clone())).await?)
    }

    async fn try_send(
        &self,
        target: &str,
        content: &str,
        delegation: Option<&str>,
        in_reply_to: Option<MessageId>,
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
            in_reply_to,
            delegation: None,
            read_at: None,
        };
        if let Some(answered) = &message.in_reply_to {
            draft.stop_waiting(&self.app, answered.as_str()).await?;
        }
        draft.require(&membership);
        let done = self.for_delegation(&mut draft, delegation, &partner.id, &message.id).await?;
        let message = Message { delegation: done, ..message };
        self.app.deliver(&mut draft, &message).await?;
        draft.settle(&self.app, message.id).await
    }

    async fn for_delegation(
        &self,
        draft: &mut Draft,
        delegation: Option<&str>,
        target: &AgentId,
        message: &MessageId,
    ) -> Result<Option<DelegationId>, TeamError> {
        let Some(id) = delegation else { return Ok(None) };
        let mut delegation = self.own_delegation(id).await?;
        delegation.value.check_use(self.agent(), target)?;
        // What was never listed goes through the same states.
        delegation.value.claim(&self.session.id, self.limits(), draft.now);
        delegation.value.complete(&Outcome::Message(message.clone()), draft.now);
        self.app.put_outcome(draft, &delegation).await?;
        Ok(Some(delegation.value.id))
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
                    kind: Message::KIND,
                    tenant: Some(self.tenant().clone()),
                    // What it has not seen it cannot mean.
                    state: Some(Message::READ.to_owned()),
                    owner: Some(self.place().key()),
                    newest_first: true,
                    limit: 1,
                    ..RecordQuery::default()
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
