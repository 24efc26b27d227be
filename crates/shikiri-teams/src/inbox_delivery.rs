//! Delivers inbox items to a session.

use shikiri_model::record::StoredDocument;
use shikiri_model::team::{
    AgentSession, Delegation, Dialogue, InboxItem, InboxItemKind, InboxRetention, TeamBudget,
    TeamMessage,
};
use shikiri_model::time::Timestamp;
use shikiri_store::StoreExt;

use super::TeamError;
use super::inbox::{
    DialogueInvitation, EndedConversation, InboxDelegation, InboxMessage, PendingInbox,
};
use super::session_handle::{AgentSessionHandle, session_over};
use super::team_transaction::TeamTransaction;

/// What one look delivers.
#[derive(Default)]
pub(super) struct InboxDelivery {
    pub(super) pending: PendingInbox,
    /// Ids of the inbox items.
    pub(super) ids: Vec<String>,
    /// Budgets of everything that the session may react to.
    pub(super) budgets: Vec<TeamBudget>,
    /// Ids whose delivery is proved by the session's next call.
    pub(super) handed: Vec<String>,
    /// Whether the session has a delegation in hand, once that is known.
    has_turned_to: Option<bool>,
}

impl AgentSessionHandle {
    /// Adds the item to the answer, unless it is not to be shown now.
    pub(super) async fn deliver_inbox_item(
        &self,
        transaction: &mut TeamTransaction,
        mut one: StoredDocument<InboxItem>,
        shown: &mut InboxDelivery,
    ) -> Result<(), TeamError> {
        let InboxDelivery { pending, ids, budgets, handed, has_turned_to } = shown;
        match &one.value.what {
            InboxItemKind::Message(id) => {
                let found = self
                    .teams
                    .runtime
                    .store()
                    .load::<TeamMessage>(self.tenant(), id.as_str())
                    .await?;
                if let Some(mut message) = found {
                    pending.pending_messages.push(plain(&message));
                    let hops = message.value.hops;
                    budgets.extend(
                        hops.map(|h| TeamBudget::of_message(h, self.limits(), transaction.now)),
                    );
                    message.value.read_at.get_or_insert(transaction.now);
                    transaction.put(&message)?;
                }
            }
            InboxItemKind::Turn { dialogue, said, budget } => {
                budgets.extend(*budget);
                pending.pending_messages.push(InboxMessage {
                    message_id: said.message_id.to_string(),
                    from_agent_id: said.from_agent_id.to_string(),
                    content: said.content.clone(),
                    conversation_id: Some(dialogue.to_string()),
                    created_at: said.created_at,
                    notice: false,
                });
            }
            InboxItemKind::Invitation { dialogue, said } => {
                let found =
                    self.teams.runtime.store().load::<Dialogue>(self.tenant(), dialogue.as_str());
                if let Some(mut dialogue) = found.await? {
                    if dialogue.value.is_overdue(transaction.now) {
                        return Ok(());
                    }
                    budgets.push(dialogue.value.budget);
                    if dialogue.value.activate(self.limits(), transaction.now) {
                        transaction.put(&dialogue)?;
                        transaction.wake_agent(dialogue.value.place(dialogue.value.turn.other()));
                    }
                    pending.invitations.push(DialogueInvitation {
                        conversation_id: dialogue.value.id.to_string(),
                        from_agent_id: said.from_agent_id.to_string(),
                        initial_message: said.content.clone(),
                        purpose: dialogue.value.purpose.clone(),
                        turns_left: dialogue.value.turns_left(),
                    });
                }
            }
            InboxItemKind::Ended { dialogue, reason } => {
                let (conversation_id, reason) = (dialogue.to_string(), *reason);
                let told_before = one.value.was_shown();
                let ended = EndedConversation { conversation_id, reason, told_before };
                pending.ended_conversations.push(ended);
            }
            InboxItemKind::Delegation(id) => {
                let found = self
                    .teams
                    .runtime
                    .store()
                    .load::<Delegation>(self.tenant(), id.as_str())
                    .await?;
                let Some(mut delegation) = found else { return Ok(()) };
                if self
                    .claim_delegation(&mut delegation.value, has_turned_to, transaction.now)
                    .await?
                {
                    transaction.put(&delegation)?;
                } else if !delegation.value.is_untouched_by(&self.session.id) {
                    return Ok(());
                }
                budgets.push(delegation.value.budget.with_extra_hop());
                pending.pending_delegations.push(to_take_on(&delegation.value));
            }
            InboxItemKind::Task(_) | InboxItemKind::Outcome(_) => return Ok(()),
        }
        one.value.mark_seen(&self.session.id, transaction.now);
        // By then the session has handled the item, or has died.
        let later = transaction.now + self.limits().delegation_claim;
        one.value.due_at = one.value.due_at.map(|_| later);
        transaction.put(&one)?;
        if one.value.what.retention() == InboxRetention::UntilNextCall {
            handed.push(one.value.id.clone());
        }
        ids.push(one.value.id);
        Ok(())
    }

    /// Claims a delegation. Only the first one that can begin counts as in hand: if the session
    /// dies, the others are not charged with a failure. False if another session has it.
    async fn claim_delegation(
        &self,
        delegation: &mut Delegation,
        has_turned_to: &mut Option<bool>,
        now: Timestamp,
    ) -> Result<bool, TeamError> {
        if delegation.claim.is_some() {
            return Ok(false);
        }
        let (id, limits) = (&self.session.id, self.limits());
        let living = self.teams.living_dialogues(self.tenant(), self.place()).await?;
        let can_begin = |one: &Delegation| !living.iter().any(|talk| one.conflicts_with(talk));
        let is_busy = match *has_turned_to {
            Some(is_busy) => is_busy,
            None => {
                let open =
                    self.teams.open_delegations(self.tenant(), &self.place().project).await?;
                open.iter().any(|one| one.is_untouched_by(id) && can_begin(one))
            }
        };
        let turns_to_it = !is_busy && can_begin(delegation);
        *has_turned_to = Some(is_busy || turns_to_it);
        Ok(if turns_to_it {
            delegation.claim(id, limits, now)
        } else {
            delegation.claim_without_attempt(id, limits, now)
        })
    }

    /// Stores two things with the session: the budgets of what it is shown, which must outlive the
    /// dialogue, and the ids whose delivery its next call proves.
    pub(super) async fn remember(
        &self,
        transaction: &mut TeamTransaction,
        shown: &InboxDelivery,
    ) -> Result<(), TeamError> {
        let add_to = |session: &mut AgentSession| {
            let is_less =
                shown.budgets.iter().fold(false, |is, one| session.add_told_budget(*one) | is);
            shown.handed.iter().fold(is_less, |is, id| session.mark_handed(id) | is)
        };
        if !add_to(&mut self.session.clone()) {
            return Ok(());
        }
        let id = self.session.id.as_str();
        let found = self.teams.runtime.store().load::<AgentSession>(self.tenant(), id).await?;
        let Some(mut session) = found else { return Err(session_over().into()) };
        add_to(&mut session.value);
        transaction.put(&session)
    }
}

fn plain(message: &StoredDocument<TeamMessage>) -> InboxMessage {
    InboxMessage {
        message_id: message.value.id.to_string(),
        from_agent_id: message.value.from.to_string(),
        content: message.value.content.clone(),
        conversation_id: None,
        created_at: message.created_at,
        notice: message.value.is_notice,
    }
}

fn to_take_on(delegation: &Delegation) -> InboxDelegation {
    InboxDelegation {
        delegation_id: delegation.id.to_string(),
        target_agent_id: delegation.target.to_string(),
        purpose: delegation.purpose.clone(),
        context: delegation.context.clone(),
        conversation_id: delegation.dialogue.as_ref().map(ToString::to_string),
    }
}
