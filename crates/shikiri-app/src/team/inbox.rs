//! What waits for an agent, and that a session has seen it.

use std::time::Duration;

use serde::Serialize;
use shikiri_model::ids::TenantId;
use shikiri_model::record::{Document, RecordQuery, Stored};
use shikiri_model::team::{
    Delegation, Dialogue, EndReason, Message, Place, Purpose, Stay, Waiting, What,
};
use shikiri_model::time::Timestamp;
use shikiri_store::StoreExt;

use super::desk::Desk;
use super::draft::Draft;
use super::{TeamError, until_settled};
use crate::app::App;

/// What a chat session has to deal with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Pending {
    pub pending_messages: Vec<NewMessage>,
    pub pending_delegations: Vec<NewDelegation>,
    pub invitations: Vec<Invitation>,
    pub ended_conversations: Vec<EndedConversation>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NewMessage {
    pub message_id: String,
    pub from_agent_id: String,
    pub content: String,
    /// The dialogue in which it was said: it is this agent's turn there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<String>,
    pub created_at: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NewDelegation {
    pub delegation_id: String,
    pub target_agent_id: String,
    pub purpose: String,
    pub context: Option<String>,
    /// A session before this one began it: go on there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Invitation {
    pub conversation_id: String,
    pub from_agent_id: String,
    pub initial_message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub purpose: Option<String>,
    pub turns_left: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EndedConversation {
    pub conversation_id: String,
    pub reason: EndReason,
}

/// Things that one look hands out; the next look has the others.
const AT_ONCE: u32 = 20;
/// Things that are looked through.
const MOST: usize = 5_000;

impl Pending {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Desk {
    /// What has come since the last look; waits for something if there is nothing.
    pub async fn pending(&mut self, wait: Duration) -> Result<Pending, TeamError> {
        let mut waiter = self.waiter(self.place().bell(self.tenant()), wait);
        loop {
            let pending = self.look_at_inbox().await?;
            if !pending.is_empty() || !waiter.again(self).await? {
                return Ok(pending);
            }
        }
    }

    async fn look_at_inbox(&self) -> Result<Pending, TeamError> {
        until_settled!(self.agent().as_str(), self.try_look().await?)
    }

    async fn try_look(&self) -> Result<Option<Pending>, TeamError> {
        let waiting = self.app.waiting_for(self.tenant(), self.place(), Purpose::Chat).await?;
        let mut pending = Pending::default();
        let mut draft = Draft::begin(&self.app, self.tenant()).await?;
        let (mut changed, mut shown) = (false, 0);
        for one in waiting {
            let is_acknowledged = one.value.what.stays() == Stay::UntilNextLook
                && one.value.is_seen_by(&self.session.id);
            if is_acknowledged {
                draft.remove(&one);
                changed = true;
            } else if shown < AT_ONCE && one.value.is_news(self.limits(), draft.now) {
                shown += u32::from(self.hand_out(&mut draft, one, &mut pending).await?);
            }
        }
        if shown > 0 || changed {
            draft.settle(&self.app, pending).await
        } else {
            Ok(Some(pending))
        }
    }

    /// False if it is left as it is.
    async fn hand_out(
        &self,
        draft: &mut Draft,
        mut one: Stored<Waiting>,
        pending: &mut Pending,
    ) -> Result<bool, TeamError> {
        match &one.value.what {
            What::Message(id) => {
                let found = self.app.store.load::<Message>(self.tenant(), id.as_str()).await?;
                if let Some(mut message) = found {
                    pending.pending_messages.push(plain(&message));
                    message.value.read_at.get_or_insert(draft.now);
                    draft.put(&message)?;
                }
            }
            What::Turn { dialogue, said } => pending.pending_messages.push(NewMessage {
                message_id: said.message_id.to_string(),
                from_agent_id: said.from_agent_id.to_string(),
                content: said.content.clone(),
                conversation_id: Some(dialogue.to_string()),
                created_at: said.created_at,
            }),
            What::Invitation { dialogue, said } => {
                let found = self.app.store.load::<Dialogue>(self.tenant(), dialogue.as_str());
                if let Some(mut dialogue) = found.await? {
                    if dialogue.value.is_overdue(draft.now) {
                        return Ok(false);
                    }
                    if dialogue.value.arrive(self.limits(), draft.now) {
                        draft.put(&dialogue)?;
                        draft.ring(dialogue.value.place(dialogue.value.turn.other()));
                    }
                    pending.invitations.push(Invitation {
                        conversation_id: dialogue.value.id.to_string(),
                        from_agent_id: said.from_agent_id.to_string(),
                        initial_message: said.content.clone(),
                        purpose: dialogue.value.purpose.clone(),
                        turns_left: dialogue.value.turns_left(),
                    });
                }
            }
            What::Ended { dialogue, reason } => {
                let (conversation_id, reason) = (dialogue.to_string(), *reason);
                pending.ended_conversations.push(EndedConversation { conversation_id, reason });
            }
            What::Delegation(id) => {
                let found = self.app.store.load::<Delegation>(self.tenant(), id.as_str()).await?;
                let Some(mut delegation) = found else { return Ok(false) };
                if delegation.value.claim(&self.session.id, self.limits(), draft.now) {
                    draft.put(&delegation)?;
                } else if !delegation.value.is_untouched_by(&self.session.id) {
                    return Ok(false);
                }
                pending.pending_delegations.push(to_take_on(&delegation.value));
            }
            What::Task(_) | What::Outcome(_) => return Ok(false),
        }
        if one.value.what.stays() == Stay::UntilSeen {
            draft.remove(&one);
        } else {
            one.value.see(&self.session.id, draft.now);
            // By then the session has dealt with it, or died of it.
            let later = draft.now + self.limits().claim;
            one.value.due_at = one.value.due_at.map(|_| later);
            draft.put(&one)?;
        }
        Ok(true)
    }
}

impl App {
    /// What waits for an agent's sessions of one purpose, oldest first.
    pub(super) async fn waiting_for(
        &self,
        tenant: &TenantId,
        place: &Place,
        purpose: Purpose,
    ) -> Result<Vec<Stored<Waiting>>, TeamError> {
        let mut query = RecordQuery {
            kind: Waiting::KIND,
            tenant: Some(tenant.clone()),
            state: Some(purpose.as_str().to_owned()),
            owner: Some(place.key()),
            limit: 200,
            ..RecordQuery::default()
        };
        let mut all = Vec::new();
        loop {
            let (page, next) = self.list_records::<Waiting>(query.clone()).await?;
            all.extend(page);
            query.after = next.filter(|_| all.len() < MOST);
            if query.after.is_none() {
                return Ok(all);
            }
        }
    }
}

fn plain(message: &Stored<Message>) -> NewMessage {
    NewMessage {
        message_id: message.value.id.to_string(),
        from_agent_id: message.value.from.to_string(),
        content: message.value.content.clone(),
        conversation_id: None,
        created_at: message.created_at,
    }
}

fn to_take_on(delegation: &Delegation) -> NewDelegation {
    NewDelegation {
        delegation_id: delegation.id.to_string(),
        target_agent_id: delegation.target.to_string(),
        purpose: delegation.purpose.clone(),
        context: delegation.context.clone(),
        conversation_id: delegation.dialogue.as_ref().map(ToString::to_string),
    }
}
