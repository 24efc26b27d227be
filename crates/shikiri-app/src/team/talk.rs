//! Dialogues: begun, spoken in, ended, read.

use std::time::Duration;

use serde::Serialize;
use shikiri_model::event::NewEvent;
use shikiri_model::ids::{DialogueId, MessageId, TenantId};
use shikiri_model::record::{Document, RecordQuery, Stored};
use shikiri_model::team::{
    AgentSession, Budget, Delegation, Dialogue, DialogueState, EndReason, MAX_CONTENT, Opening,
    Outcome, Place, Refusal, RefusalCode, Side, Utterance, Waiting, What, check_content,
    dialogue_stream,
};
use shikiri_model::time::Timestamp;
use shikiri_store::{StoreError, StoreExt};

use super::desk::{Desk, json, optional, session_over};
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

/// What was said, from some point on.
#[derive(Clone, Debug, Serialize)]
pub struct Transcript {
    pub conversation_id: DialogueId,
    pub messages: Vec<Line>,
    pub state: DialogueState,
    pub your_turn: bool,
    pub turns_left: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_reason: Option<EndReason>,
}

/// One message of a dialogue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    pub seq: u64,
    #[serde(flatten)]
    pub said: Utterance,
}

/// The longest transcript has forty messages of four thousand characters.
const WHOLE: usize = 4 * 1024 * 1024;

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

    /// What was said after a message; waits for more if there is nothing yet.
    pub async fn conversation_messages(
        &mut self,
        conversation: &str,
        after: Option<&str>,
        wait: Duration,
    ) -> Result<Transcript, TeamError> {
        let dialogue = self.dialogue(conversation).await?;
        let side = dialogue.value.side_of(self.agent())?;
        let mut waiter = self.waiter(dialogue.value.stream(), wait);
        loop {
            let dialogue = self.dialogue(conversation).await?.value;
            let mut messages = self.app.transcript(self.tenant(), &dialogue.id).await?;
            let known = after.map_or(Ok(0), |after| place_of(&messages, after))?;
            messages.retain(|line| line.seq > known);
            let has_news = !messages.is_empty() || !dialogue.is_living();
            if has_news || !waiter.again(self).await? {
                return Ok(Transcript {
                    messages,
                    state: dialogue.state,
                    your_turn: dialogue.is_turn_of(side),
                    turns_left: dialogue.turns_left(),
                    end_reason: dialogue.end.as_ref().map(|end| end.reason),
                    conversation_id: dialogue.id,
                });
            }
        }
    }

    /// A dialogue of this project.
    async fn dialogue(&self, id: &str) -> Result<Stored<Dialogue>, TeamError> {
        let id: DialogueId = parse_id(id, RefusalCode::NoDialogue)?;
        let found = self.app.store.load::<Dialogue>(self.tenant(), id.as_str()).await?;
        found.filter(|one| one.value.project == self.place().project).ok_or_else(|| {
            RefusalCode::NoDialogue.because(format!("there is no conversation {id}")).into()
        })
    }

    /// For something new of this agent.
    pub(super) async fn budget(
        &self,
        living: &[Dialogue],
        now: Timestamp,
    ) -> Result<Budget, TeamError> {
        Ok(Budget::for_undertaking(&self.told(living).await?, self.limits(), now)?)
    }

    /// All that something new of this agent may follow from: what its session was shown, and those
    /// who talk to it now.
    pub(super) async fn told(&self, living: &[Dialogue]) -> Result<Vec<Budget>, TeamError> {
        let talked_to = living.iter().filter(|one| one.participant == *self.agent());
        let mut told: Vec<Budget> = talked_to.map(|one| one.budget).collect();
        let open = self.app.open_delegations(self.tenant(), &self.place().project).await?;
        let for_it = open.iter().filter(|one| one.target == *self.agent());
        told.extend(for_it.filter(|one| one.dialogue.is_none()).map(|one| one.budget));
        told.extend(self.session.told);
        Ok(told)
    }

    /// A session pays for what it begins of its own accord from what it was told.
    pub(super) async fn pay(&self, draft: &mut Draft, turns: u32) -> Result<(), TeamError> {
        if self.session.told.is_none() {
            return Ok(());
        }
        let id = self.session.id.as_str();
        let found = self.app.store.load::<AgentSession>(self.tenant(), id).await?;
        let Some(mut session) = found else { return Err(session_over().into()) };
        if let Some(told) = &mut session.value.told {
            told.spend(turns);
            draft.put(&session)?;
        }
        Ok(())
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
        let (dialogue, end_reason) = (talk.id.clone(), end.reason.as_str());
        let outcome = Outcome::Dialogue { dialogue, end_reason, messages: json(&messages) };
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

    /// What was said in a dialogue, from its first message.
    pub async fn transcript(
        &self,
        tenant: &TenantId,
        id: &DialogueId,
    ) -> Result<Vec<Line>, TeamError> {
        let page = match self.store.read(tenant, &dialogue_stream(id), 0, WHOLE).await {
            Ok(page) => page,
            // It is so old that what was said is not kept any more.
            Err(StoreError::Cursor(_) | StoreError::NoStream(_)) => return Ok(Vec::new()),
            Err(other) => return Err(other.into()),
        };
        let events = page.chunks.iter().flat_map(|chunk| chunk.events());
        events
            .filter(|event| event.kind == "message")
            .map(|event| Ok(Line { seq: event.seq, said: serde_json::from_str(event.data)? }))
            .collect()
    }

    /// Those of a project that live and that an agent takes part in.
    pub(super) async fn living_dialogues(
        &self,
        tenant: &TenantId,
        place: &Place,
    ) -> Result<Vec<Dialogue>, TeamError> {
        let query = RecordQuery {
            kind: Dialogue::KIND,
            tenant: Some(tenant.clone()),
            owner: Some(place.project.to_string()),
            ..RecordQuery::default()
        };
        let mut living: Vec<Dialogue> = self.list_all(query).await?;
        living.retain(|one| one.side_of(&place.agent).is_ok());
        Ok(living)
    }
}

/// Where a message stands that is named by its id or its number.
fn place_of(messages: &[Line], named: &str) -> Result<u64, Refusal> {
    let by_id = messages.iter().find(|line| line.said.message_id.as_str() == named);
    match (by_id, named.parse()) {
        (Some(line), _) => Ok(line.seq),
        (None, Ok(seq)) => Ok(seq),
        (None, Err(_)) => {
            let message = "after must be the message_id or seq of a message of this conversation";
            Err(RefusalCode::InvalidArgument.because(message))
        }
    }
}
