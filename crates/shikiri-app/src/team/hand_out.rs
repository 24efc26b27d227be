//! Showing a session what waits for its agent.

use shikiri_model::record::Stored;
use shikiri_model::team::{
    AgentSession, Budget, Delegation, Dialogue, Message, Stay, Waiting, What,
};
use shikiri_model::time::Timestamp;
use shikiri_store::StoreExt;

use super::TeamError;
use super::desk::{Desk, session_over};
use super::draft::Draft;
use super::inbox::{EndedConversation, Invitation, NewDelegation, NewMessage, Pending};

/// What one look shows.
#[derive(Default)]
pub(super) struct Shown {
    pub(super) pending: Pending,
    /// On the agent's list.
    pub(super) ids: Vec<String>,
    /// What may follow from it.
    pub(super) told: Vec<Budget>,
    /// Those of the ids that the session's next call proves to be heard.
    pub(super) handed: Vec<String>,
    /// Whether it has a delegation to turn to, once that is known.
    has_turned_to: Option<bool>,
}

impl Desk {
    /// Shows it, unless it is not to be shown now.
    pub(super) async fn hand_out(
        &self,
        draft: &mut Draft,
        mut one: Stored<Waiting>,
        shown: &mut Shown,
    ) -> Result<(), TeamError> {
        let Shown { pending, ids, told, handed, has_turned_to } = shown;
        match &one.value.what {
            What::Message(id) => {
                let found = self.app.store.load::<Message>(self.tenant(), id.as_str()).await?;
                if let Some(mut message) = found {
                    pending.pending_messages.push(plain(&message));
                    let hops = message.value.hops;
                    told.extend(hops.map(|h| Budget::of_message(h, self.limits(), draft.now)));
                    message.value.read_at.get_or_insert(draft.now);
                    draft.put(&message)?;
                }
            }
            What::Turn { dialogue, said, budget } => {
                told.extend(*budget);
                pending.pending_messages.push(NewMessage {
                    message_id: said.message_id.to_string(),
                    from_agent_id: said.from_agent_id.to_string(),
                    content: said.content.clone(),
                    conversation_id: Some(dialogue.to_string()),
                    created_at: said.created_at,
                });
            }
            What::Invitation { dialogue, said } => {
                let found = self.app.store.load::<Dialogue>(self.tenant(), dialogue.as_str());
                if let Some(mut dialogue) = found.await? {
                    if dialogue.value.is_overdue(draft.now) {
                        return Ok(());
                    }
                    told.push(dialogue.value.budget);
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
                let told_before = one.value.was_shown();
                let ended = EndedConversation { conversation_id, reason, told_before };
                pending.ended_conversations.push(ended);
            }
            What::Delegation(id) => {
                let found = self.app.store.load::<Delegation>(self.tenant(), id.as_str()).await?;
                let Some(mut delegation) = found else { return Ok(()) };
                if self.take_on(&mut delegation.value, has_turned_to, draft.now).await? {
                    draft.put(&delegation)?;
                } else if !delegation.value.is_untouched_by(&self.session.id) {
                    return Ok(());
                }
                told.push(delegation.value.budget.to_carry_out());
                pending.pending_delegations.push(to_take_on(&delegation.value));
            }
            What::Task(_) | What::Outcome(_) => return Ok(()),
        }
        one.value.see(&self.session.id, draft.now);
        // By then the session has dealt with it, or died of it.
        let later = draft.now + self.limits().claim;
        one.value.due_at = one.value.due_at.map(|_| later);
        draft.put(&one)?;
        if one.value.what.stays() == Stay::UntilNextCall {
            handed.push(one.value.id.clone());
        }
        ids.push(one.value.id);
        Ok(())
    }

    /// Takes on a delegation. Only the first that can be begun is what the session turns to: should
    /// it die, that is not held against those beside it. False if another session has it.
    async fn take_on(
        &self,
        delegation: &mut Delegation,
        has_turned_to: &mut Option<bool>,
        now: Timestamp,
    ) -> Result<bool, TeamError> {
        if delegation.claim.is_some() {
            return Ok(false);
        }
        let (id, limits) = (&self.session.id, self.limits());
        let living = self.app.living_dialogues(self.tenant(), self.place()).await?;
        let can_begin = |one: &Delegation| !living.iter().any(|talk| one.is_barred_by(talk));
        let is_busy = match *has_turned_to {
            Some(is_busy) => is_busy,
            None => {
                let open = self.app.open_delegations(self.tenant(), &self.place().project).await?;
                open.iter().any(|one| one.is_untouched_by(id) && can_begin(one))
            }
        };
        let turns_to_it = !is_busy && can_begin(delegation);
        *has_turned_to = Some(is_busy || turns_to_it);
        Ok(if turns_to_it {
            delegation.claim(id, limits, now)
        } else {
            delegation.claim_beside(id, limits, now)
        })
    }

    /// Writes down with the session what may follow from what it is shown, which is not to be
    /// forgotten when the talk is over, and what its next call proves to be heard.
    pub(super) async fn remember(&self, draft: &mut Draft, shown: &Shown) -> Result<(), TeamError> {
        let add_to = |session: &mut AgentSession| {
            let is_less = shown.told.iter().fold(false, |is, one| session.hear(*one) | is);
            shown.handed.iter().fold(is_less, |is, id| session.hand(id) | is)
        };
        if !add_to(&mut self.session.clone()) {
            return Ok(());
        }
        let id = self.session.id.as_str();
        let found = self.app.store.load::<AgentSession>(self.tenant(), id).await?;
        let Some(mut session) = found else { return Err(session_over().into()) };
        add_to(&mut session.value);
        draft.put(&session)
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
