//! Dialogues: begun, spoken in, ended.

use serde::Serialize;
use shikiri_model::event::NewEvent;
use shikiri_model::ids::{DialogueId, MessageId, TenantId};
use shikiri_model::record::{RecordQuery, Stored};
use shikiri_model::team::{
    Delegation, Dialogue, DialogueState, EndReason, MAX_CONTENT, Opening, Outcome, Place,
    RefusalCode, Side, Utterance, Waiting, What, check_content,
};
use shikiri_store::StoreExt;

use super::desk::{Desk, json, optional};
use super::draft::{Draft, is_human};
use super::{TeamError, parse_id, until_settled};
use crate::app::{App, entropy};

/// What an agent wants to begin.
#[derive(Clone, Debug, Default)]
pub struct Conversation {
    pub target: String,
    pub initial_message: String,
    pub purpose: Option<String>,
    pub max_turns: Option<i64>,
    pub delegation: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Started {
    pub conversation_id: DialogueId,
    pub state: DialogueState,
    pub your_turn: bool,
    pub turns_left: u32,
}

#[derive(Clone, Debug, Serialize)]
pub struct Spoken {
    pub message_id: MessageId,
    pub turns_left: u32,
    pub state: DialogueState,
}

impl Desk {
    pub async fn start_conversation(&self, wanted: &Conversation) -> Result<Started, TeamError> {
        check_content("initial_message", &wanted.initial_message, MAX_CONTENT)?;
        if let Some(purpose) = optional(wanted.purpose.clone()) {
            check_content("purpose", &purpose, MAX_CONTENT)?;
        }
        until_settled!(&wanted.target, self.try_start(wanted).await?)
    }

    async fn try_start(&self, wanted: &Conversation) -> Result<Option<Started>, TeamError> {
        let (partner, membership) = self.partner(&wanted.target).await?;
        let own = self.app.team_agent(self.tenant(), self.agent()).await?;
        if is_human(&partner) || is_human(&own.value) {
            let message = "conversations are between AI agents: use send_message";
            return Err(RefusalCode::WithHuman.because(message).into());
        }
        let living = self.app.living_dialogues(self.tenant(), self.place()).await?;
        if living.iter().any(|one| one.side_of(&partner.id).is_ok()) {
            let message = format!("you and {} have a conversation already", partner.id);
            return Err(RefusalCode::AlreadyActive.because(message).into());
        }
        let delegation = match &wanted.delegation {
            Some(id) => Some(self.own_delegation(id).await?),
            None => None,
        };
        let mut draft = Draft::begin(&self.app, self.tenant()).await?;
        let budget = match &delegation {
            Some(delegation) => {
                delegation.value.check_use(self.agent(), &partner.id)?;
                delegation.value.budget
            }
            None => self.budget(&living, draft.now).await?,
        };
        let opening = Opening {
            id: DialogueId::mint(draft.now, entropy()?),
            tenant: self.tenant().clone(),
            project: self.place().project.clone(),
            initiator: self.agent().clone(),
            participant: partner.id.clone(),
            purpose: optional(wanted.purpose.clone()),
            max_turns: wanted.max_turns,
            delegation: delegation.as_ref().map(|delegation| delegation.value.id.clone()),
            budget,
        };
        let dialogue = Dialogue::open(opening, self.limits(), draft.now)?;
        if let Some(mut delegation) = delegation {
            let session = &self.session.id;
            delegation.value.begin_dialogue(&dialogue.id, session, self.limits(), draft.now);
            draft.put(&delegation)?;
        } else {
            self.pay(&mut draft, dialogue.max_turns).await?;
        }
        let said = self.utterance(&draft, &wanted.initial_message)?;
        draft.require(&membership);
        draft.add(&dialogue)?;
        draft.tell(&dialogue, vec![NewEvent::new("message", &said)?]);
        let invitation = What::Invitation { dialogue: dialogue.id.clone(), said };
        draft.await_agent(&self.app, dialogue.place(Side::Participant), invitation).await?;
        let started = Started {
            state: dialogue.state,
            your_turn: false,
            turns_left: dialogue.turns_left(),
            conversation_id: dialogue.id,
        };
        draft.settle(&self.app, started).await
    }

    /// A message in a dialogue, in turn.
    pub async fn say(&self, conversation: &str, content: &str) -> Result<Spoken, TeamError> {
        until_settled!(conversation, self.try_say(conversation, content).await?)
    }

    async fn try_say(&self, id: &str, content: &str) -> Result<Option<Spoken>, TeamError> {
        let mut dialogue = self.dialogue(id).await?;
        let mut draft = Draft::begin(&self.app, self.tenant()).await?;
        if dialogue.value.is_overdue(draft.now) {
            // Its time is over, only nobody has written that yet.
            dialogue.value.end_for(EndReason::Timeout, draft.now);
            self.app.put_end(&mut draft, &dialogue, None).await?;
            draft.settle(&self.app, ()).await?;
            return Ok(None);
        }
        let side = dialogue.value.side_of(self.agent())?;
        let said = dialogue.value.say(self.agent(), content, self.limits(), draft.now)?;
        let utterance = self.utterance(&draft, content)?;
        let spoken = Spoken {
            message_id: utterance.message_id.clone(),
            turns_left: dialogue.value.turns_left(),
            state: dialogue.value.state,
        };
        if said.is_last {
            self.app.put_end(&mut draft, &dialogue, Some(&utterance)).await?;
            return draft.settle(&self.app, spoken).await;
        }
        draft.put(&dialogue)?;
        draft.tell(&dialogue.value, vec![NewEvent::new("message", &utterance)?]);
        let own_turn = Waiting::turn_id(&dialogue.value.id, self.agent());
        draft.stop_waiting(&self.app, &own_turn).await?;
        let turn = dialogue.value.turn_after(utterance);
        draft.await_agent(&self.app, dialogue.value.place(side.other()), turn).await?;
        draft.settle(&self.app, spoken).await
    }

    pub async fn end_conversation(
        &self,
        conversation: &str,
        note: Option<String>,
    ) -> Result<EndReason, TeamError> {
        let note = optional(note);
        if let Some(note) = &note {
            check_content("reason", note, MAX_CONTENT)?;
        }
        until_settled!(conversation, self.try_end(conversation, note.clone()).await?)
    }

    async fn try_end(
        &self,
        conversation: &str,
        note: Option<String>,
    ) -> Result<Option<EndReason>, TeamError> {
        let mut dialogue = self.dialogue(conversation).await?;
        let mut draft = Draft::begin(&self.app, self.tenant()).await?;
        let reason = dialogue.value.end_by(self.agent(), note, draft.now)?;
        self.app.put_end(&mut draft, &dialogue, None).await?;
        draft.settle(&self.app, reason).await
    }

    /// A dialogue of this project.
    pub(super) async fn dialogue(&self, id: &str) -> Result<Stored<Dialogue>, TeamError> {
        let id: DialogueId = parse_id(id, RefusalCode::NoDialogue)?;
        let found = self.app.store.load::<Dialogue>(self.tenant(), id.as_str()).await?;
        found.filter(|one| one.value.project == self.place().project).ok_or_else(|| {
            RefusalCode::NoDialogue.because(format!("there is no conversation {id}")).into()
        })
    }

    fn utterance(&self, draft: &Draft, content: &str) -> Result<Utterance, TeamError> {
        Ok(Utterance {
            message_id: MessageId::mint(draft.now, entropy()?),
            from_agent_id: self.agent().clone(),
            content: content.to_owned(),
            created_at: draft.now,
        })
    }
}

impl App {
    /// Writes the end of a dialogue, with all that follows: nothing waits for a turn any more, both
    /// sides are to be told, once each, and its delegation is completed.
    pub(super) async fn put_end(
        &self,
        draft: &mut Draft,
        dialogue: &Stored<Dialogue>,
        last: Option<&Utterance>,
    ) -> Result<(), TeamError> {
        let talk = &dialogue.value;
        let Some(end) = &talk.end else { return Ok(()) };
        draft.put(dialogue)?;
        let mut events = Vec::new();
        if let Some(last) = last {
            events.push(NewEvent::new("message", last)?);
        }
        events.push(NewEvent::new("conversation_ended", end)?);
        draft.tell(talk, events);
        for side in [Side::Initiator, Side::Participant] {
            let turn = Waiting::turn_id(&talk.id, talk.agent(side));
            draft.stop_waiting(self, &turn).await?;
            let ended = What::Ended { dialogue: talk.id.clone(), reason: end.reason };
            draft.await_agent(self, talk.place(side), ended).await?;
        }
        self.offer_what_waited(draft, talk).await?;
        let Some(delegation) = &talk.delegation else { return Ok(()) };
        let found = self.store.load::<Delegation>(&talk.tenant, delegation.as_str()).await?;
        let Some(mut delegation) = found else { return Ok(()) };
        let lines = self.transcript(&talk.tenant, &talk.id).await?;
        let messages: Vec<_> =
            lines.into_iter().map(|line| line.said).chain(last.cloned()).collect();
        let outcome = Outcome::Dialogue {
            dialogue: talk.id.clone(),
            end_reason: end.reason,
            messages: json(&messages),
            remark: talk.remark(),
        };
        let was_open = delegation.value.status.is_open();
        delegation.value.complete(&outcome, draft.now);
        if was_open { self.put_outcome(draft, &delegation).await } else { draft.put(&delegation) }
    }

    /// Delegations between the two could not be begun while this talk lived: now they can.
    async fn offer_what_waited(&self, draft: &mut Draft, talk: &Dialogue) -> Result<(), TeamError> {
        for delegation in self.open_delegations(&talk.tenant, &talk.project).await? {
            if delegation.is_held_up_by(talk) {
                self.offer_again(draft, &delegation).await?;
            }
        }
        Ok(())
    }

    /// Those of a project that live and that an agent takes part in.
    pub(super) async fn living_dialogues(
        &self,
        tenant: &TenantId,
        place: &Place,
    ) -> Result<Vec<Dialogue>, TeamError> {
        let query = RecordQuery {
            owner: Some(place.project.to_string()),
            ..RecordQuery::of::<Dialogue>(tenant)
        };
        let mut living: Vec<Dialogue> = self.list_all(query).await?;
        living.retain(|one| one.side_of(&place.agent).is_ok());
        Ok(living)
    }
}
