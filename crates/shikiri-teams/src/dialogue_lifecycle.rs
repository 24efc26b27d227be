//! The lifecycle of a dialogue: opened, spoken in, ended.

use serde::Serialize;
use shikiri_model::event::NewEvent;
use shikiri_model::ids::{DialogueId, MessageId, TenantId};
use shikiri_model::record::{RecordQuery, StoredDocument};
use shikiri_model::run::DialogueEventName;
use shikiri_model::team::{
    Delegation, DelegationOutcome, Dialogue, DialogueEndReason, DialogueMessage, DialogueOpening,
    DialogueSide, DialogueState, InboxItem, InboxItemKind, MAX_CONTENT, ProjectMember, RefusalCode,
    TeamCause, TeamCauseKind, check_content,
};
use shikiri_runtime::{entropy, transact};
use shikiri_store::StoreExt;

use super::session_handle::{AgentSessionHandle, json, optional};
use super::team_transaction::{TeamTransaction, is_human};
use super::{TeamError, parse_id};
use crate::Teams;

/// A request to open a dialogue.
#[derive(Clone, Debug, Default)]
pub struct NewDialogue {
    pub target: String,
    pub initial_message: String,
    pub purpose: Option<String>,
    pub max_turns: Option<i64>,
    pub delegation: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct DialogueStartResult {
    pub conversation_id: DialogueId,
    pub state: DialogueState,
    pub your_turn: bool,
    pub turns_left: u32,
}

#[derive(Clone, Debug, Serialize)]
pub struct DialogueSendResult {
    pub message_id: MessageId,
    pub turns_left: u32,
    pub state: DialogueState,
}

impl AgentSessionHandle {
    pub async fn start_conversation(
        &self,
        wanted: &NewDialogue,
    ) -> Result<DialogueStartResult, TeamError> {
        check_content("initial_message", &wanted.initial_message, MAX_CONTENT)?;
        if let Some(purpose) = optional(wanted.purpose.clone()) {
            check_content("purpose", &purpose, MAX_CONTENT)?;
        }
        transact("team", &wanted.target, || self.try_start(wanted)).await
    }

    async fn try_start(
        &self,
        wanted: &NewDialogue,
    ) -> Result<Option<DialogueStartResult>, TeamError> {
        let (partner, mut membership) = self.partner(&wanted.target).await?;
        let own_membership = self.own_membership().await?;
        let own = self.teams.team_agent(self.tenant(), self.agent()).await?;
        if is_human(&partner) || is_human(&own.value) {
            let message = "conversations are between AI agents: use send_message";
            return Err(RefusalCode::WithHuman.because(message).into());
        }
        let living = self.teams.living_dialogues(self.tenant(), self.place()).await?;
        if living.iter().any(|one| one.side_of(&partner.id).is_ok()) {
            let message = format!("you and {} have a conversation already", partner.id);
            return Err(RefusalCode::AlreadyActive.because(message).into());
        }
        let delegation = match &wanted.delegation {
            Some(id) => Some(self.own_delegation(id).await?),
            None => None,
        };
        let max_turns = Dialogue::check_max_turns(wanted.max_turns)?;
        let mut transaction = TeamTransaction::begin(&self.teams, self.tenant()).await?;
        transaction.require(&own_membership);
        let budget = match &delegation {
            Some(delegation) => {
                delegation.value.check_use(self.agent(), &partner.id)?;
                delegation.value.budget
            }
            None => self.budget(&living, transaction.now).await?,
        };
        let id = DialogueId::mint(transaction.now, entropy()?);
        let action = TeamCause::new(TeamCauseKind::Dialogue, &id, transaction.now);
        let known = delegation.as_ref().and_then(|delegation| delegation.value.cause.as_ref());
        let cause = self.cause_of(known, &own_membership.value, action);
        let turns = (max_turns, Dialogue::MIN_TURNS);
        let taken = self.take_messages(&mut transaction, &partner.id, &cause, turns).await?;
        let Some(max_turns) = taken else { return Ok(None) };
        let opening = DialogueOpening {
            id,
            tenant: self.tenant().clone(),
            project: self.place().project.clone(),
            initiator: self.agent().clone(),
            participant: partner.id.clone(),
            purpose: optional(wanted.purpose.clone()),
            max_turns,
            delegation: delegation.as_ref().map(|delegation| delegation.value.id.clone()),
            budget,
            cause: Some(cause),
        };
        let dialogue = Dialogue::open(opening, self.limits(), transaction.now);
        if let Some(mut delegation) = delegation {
            let session = &self.session.id;
            delegation.value.begin_dialogue(&dialogue.id, session, self.limits(), transaction.now);
            transaction.put(&delegation)?;
        }
        let said = self.utterance(&transaction, &wanted.initial_message)?;
        transaction.set_off(&self.teams, &mut membership, dialogue.cause.as_ref())?;
        transaction.add(&dialogue)?;
        transaction
            .tell(&dialogue, vec![NewEvent::new(DialogueEventName::Message.as_str(), &said)?]);
        let invitation = InboxItemKind::Invitation { dialogue: dialogue.id.clone(), said };
        transaction
            .add_inbox_item(&self.teams, dialogue.place(DialogueSide::Participant), invitation)
            .await?;
        let started = DialogueStartResult {
            state: dialogue.state,
            your_turn: false,
            turns_left: dialogue.turns_left(),
            conversation_id: dialogue.id,
        };
        transaction.try_commit(&self.teams, started).await
    }

    /// Sends a message in a dialogue, if it is this agent's turn.
    pub async fn send_dialogue_message(
        &self,
        conversation: &str,
        content: &str,
    ) -> Result<DialogueSendResult, TeamError> {
        transact("team", conversation, || self.try_send_dialogue_message(conversation, content))
            .await
    }

    async fn try_send_dialogue_message(
        &self,
        id: &str,
        content: &str,
    ) -> Result<Option<DialogueSendResult>, TeamError> {
        let mut dialogue = self.dialogue(id).await?;
        let mut transaction = TeamTransaction::begin(&self.teams, self.tenant()).await?;
        if dialogue.value.is_overdue(transaction.now) {
            // The time limit has passed, but the end is not recorded yet.
            dialogue.value.end_for(DialogueEndReason::Timeout, transaction.now);
            self.teams.put_end(&mut transaction, &dialogue, None).await?;
            transaction.try_commit(&self.teams, ()).await?;
            return Ok(None);
        }
        let side = dialogue.value.side_of(self.agent())?;
        let said = dialogue.value.say(self.agent(), content, self.limits(), transaction.now)?;
        let utterance = self.utterance(&transaction, content)?;
        let spoken = DialogueSendResult {
            message_id: utterance.message_id.clone(),
            turns_left: dialogue.value.turns_left(),
            state: dialogue.value.state,
        };
        if said.is_last {
            self.teams.put_end(&mut transaction, &dialogue, Some(&utterance)).await?;
            return transaction.try_commit(&self.teams, spoken).await;
        }
        transaction.put(&dialogue)?;
        transaction.tell(
            &dialogue.value,
            vec![NewEvent::new(DialogueEventName::Message.as_str(), &utterance)?],
        );
        let own_turn = InboxItem::turn_id(&dialogue.value.id, self.agent());
        transaction.remove_inbox_item(&self.teams, &own_turn).await?;
        let turn = dialogue.value.turn_after(utterance);
        transaction.add_inbox_item(&self.teams, dialogue.value.place(side.other()), turn).await?;
        transaction.try_commit(&self.teams, spoken).await
    }

    pub async fn end_conversation(
        &self,
        conversation: &str,
        note: Option<String>,
    ) -> Result<DialogueEndReason, TeamError> {
        let note = optional(note);
        if let Some(note) = &note {
            check_content("reason", note, MAX_CONTENT)?;
        }
        transact("team", conversation, || self.try_end(conversation, note.clone())).await
    }

    async fn try_end(
        &self,
        conversation: &str,
        note: Option<String>,
    ) -> Result<Option<DialogueEndReason>, TeamError> {
        let mut dialogue = self.dialogue(conversation).await?;
        let mut transaction = TeamTransaction::begin(&self.teams, self.tenant()).await?;
        let was_living = dialogue.value.is_living();
        let reason = dialogue.value.end_by(self.agent(), note, transaction.now)?;
        if !was_living {
            return Ok(Some(reason));
        }
        self.teams.put_end(&mut transaction, &dialogue, None).await?;
        transaction.try_commit(&self.teams, reason).await
    }

    /// A dialogue of this project.
    pub(super) async fn dialogue(&self, id: &str) -> Result<StoredDocument<Dialogue>, TeamError> {
        let id: DialogueId = parse_id(id, RefusalCode::NoDialogue)?;
        let found = self.teams.runtime.store().load::<Dialogue>(self.tenant(), id.as_str()).await?;
        found.filter(|one| one.value.project == self.place().project).ok_or_else(|| {
            RefusalCode::NoDialogue.because(format!("there is no conversation {id}")).into()
        })
    }

    fn utterance(
        &self,
        transaction: &TeamTransaction,
        content: &str,
    ) -> Result<DialogueMessage, TeamError> {
        Ok(DialogueMessage {
            message_id: MessageId::mint(transaction.now, entropy()?),
            from_agent_id: self.agent().clone(),
            content: content.to_owned(),
            created_at: transaction.now,
        })
    }
}

impl Teams {
    /// Records the end of a dialogue and its consequences: no inbox item waits for a turn any more,
    /// both sides are notified once, and the delegation is completed.
    pub(super) async fn put_end(
        &self,
        transaction: &mut TeamTransaction,
        dialogue: &StoredDocument<Dialogue>,
        last: Option<&DialogueMessage>,
    ) -> Result<(), TeamError> {
        let talk = &dialogue.value;
        let Some(end) = &talk.end else { return Ok(()) };
        transaction.put(dialogue)?;
        let mut events = Vec::new();
        if let Some(last) = last {
            events.push(NewEvent::new(DialogueEventName::Message.as_str(), last)?);
        }
        events.push(NewEvent::new(DialogueEventName::ConversationEnded.as_str(), end)?);
        transaction.tell(talk, events);
        for side in [DialogueSide::Initiator, DialogueSide::Participant] {
            let turn = InboxItem::turn_id(&talk.id, talk.agent(side));
            transaction.remove_inbox_item(self, &turn).await?;
            let ended = InboxItemKind::Ended { dialogue: talk.id.clone(), reason: end.reason };
            transaction.add_inbox_item(self, talk.place(side), ended).await?;
        }
        self.requeue_waiting_delegations(transaction, talk).await?;
        self.give_turns_back(transaction, talk).await?;
        let Some(delegation) = &talk.delegation else { return Ok(()) };
        let found =
            self.runtime.store().load::<Delegation>(&talk.tenant, delegation.as_str()).await?;
        let Some(mut delegation) = found else { return Ok(()) };
        let lines = self.transcript(&talk.tenant, &talk.id).await?;
        let messages: Vec<_> =
            lines.into_iter().map(|line| line.said).chain(last.cloned()).collect();
        let outcome = DelegationOutcome::Dialogue {
            dialogue: talk.id.clone(),
            end_reason: end.reason,
            messages: json(&messages),
            failure: talk.failure(),
        };
        let was_open = delegation.value.status.is_open();
        delegation.value.complete(&outcome, transaction.now);
        if was_open {
            self.put_outcome(transaction, &delegation).await
        } else {
            transaction.put(&delegation)
        }
    }

    /// Offers delegations again that waited for this dialogue between the two agents to end.
    async fn requeue_waiting_delegations(
        &self,
        transaction: &mut TeamTransaction,
        talk: &Dialogue,
    ) -> Result<(), TeamError> {
        for delegation in self.open_delegations(&talk.tenant, &talk.project).await? {
            if delegation.is_blocked_by(talk) {
                self.requeue_delegation(transaction, &delegation).await?;
            }
        }
        Ok(())
    }

    /// Open dialogues of a project in which the agent takes part.
    pub(super) async fn living_dialogues(
        &self,
        tenant: &TenantId,
        member: &ProjectMember,
    ) -> Result<Vec<Dialogue>, TeamError> {
        let query = RecordQuery {
            owner: Some(member.project.to_string()),
            ..RecordQuery::of::<Dialogue>(tenant)
        };
        let mut living: Vec<Dialogue> = self.runtime.list_all(query).await?;
        living.retain(|one| one.side_of(&member.agent).is_ok());
        Ok(living)
    }
}
