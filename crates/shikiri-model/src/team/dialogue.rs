//! A dialogue: a bounded talk between two agents. It always ends.
//!
//! ```text
//! pending → active → ended
//!    └────────────────↗
//! ```
//!
//! One message is one turn, strictly in turn, the initiator's first message among them. It ends
//! when either side says so, at its last turn, or when the time decides.

use serde::{Deserialize, Serialize};

use super::Place;
use super::budget::Budget;
use super::limits::TeamLimits;
use super::message::{MAX_CONTENT, check_content};
use super::refusal::{Refusal, RefusalCode};
use super::waiting::{Utterance, What};
use crate::event::StreamId;
use crate::ids::{AgentId, DelegationId, DialogueId, ProjectId, TenantId};
use crate::record::{Columns, Document};
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dialogue {
    pub id: DialogueId,
    pub tenant: TenantId,
    pub project: ProjectId,
    pub initiator: AgentId,
    pub participant: AgentId,
    #[serde(default)]
    pub purpose: Option<String>,
    pub state: DialogueState,
    /// Who speaks next.
    pub turn: Side,
    /// Messages so far.
    pub messages: u32,
    pub max_turns: u32,
    /// What may still follow from it. Every message takes a turn from it.
    pub budget: Budget,
    #[serde(default)]
    pub delegation: Option<DelegationId>,
    /// It is ended then, if nothing happens.
    pub deadline: Timestamp,
    #[serde(default)]
    pub end: Option<End>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DialogueState {
    /// The participant has not come.
    Pending,
    Active,
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    Initiator,
    Participant,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    pub reason: EndReason,
    /// What the side that ended it said about it.
    #[serde(default)]
    pub note: Option<String>,
    pub at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    InitiatorEnded,
    ParticipantEnded,
    MaxTurns,
    Timeout,
    SessionExpired,
    Cancelled,
}

/// What a dialogue starts with.
#[derive(Clone, Debug)]
pub struct Opening {
    pub id: DialogueId,
    pub tenant: TenantId,
    pub project: ProjectId,
    pub initiator: AgentId,
    pub participant: AgentId,
    pub purpose: Option<String>,
    pub max_turns: Option<i64>,
    pub delegation: Option<DelegationId>,
    pub budget: Budget,
}

/// What follows from a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    /// It was the last that there may be.
    pub is_last: bool,
}

const DEFAULT_TURNS: u32 = 20;
const MIN_TURNS: u32 = 2;

impl EndReason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InitiatorEnded => "initiator_ended",
            Self::ParticipantEnded => "participant_ended",
            Self::MaxTurns => "max_turns",
            Self::Timeout => "timeout",
            Self::SessionExpired => "session_expired",
            Self::Cancelled => "cancelled",
        }
    }
}

impl DialogueState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Active => "active",
            Self::Ended => "ended",
        }
    }
}

impl Side {
    pub fn other(self) -> Self {
        match self {
            Self::Initiator => Self::Participant,
            Self::Participant => Self::Initiator,
        }
    }
}

impl Dialogue {
    /// With its first message said, and the participant invited.
    pub fn open(opening: Opening, limits: &TeamLimits, now: Timestamp) -> Result<Self, Refusal> {
        let asked = opening.max_turns.unwrap_or(i64::from(DEFAULT_TURNS));
        let max_turns = u32::try_from(asked)
            .ok()
            .filter(|turns| (MIN_TURNS..=Budget::MAX_TURNS).contains(turns))
            .ok_or_else(|| {
                let message =
                    format!("max_turns must be {MIN_TURNS} to {}: {asked}", Budget::MAX_TURNS);
                RefusalCode::InvalidArgument.because(message)
            })?
            .min(opening.budget.turns);
        let mut dialogue = Self {
            id: opening.id,
            tenant: opening.tenant,
            project: opening.project,
            initiator: opening.initiator,
            participant: opening.participant,
            purpose: opening.purpose,
            state: DialogueState::Pending,
            turn: Side::Participant,
            messages: 1,
            max_turns,
            budget: opening.budget,
            delegation: opening.delegation,
            deadline: (now + limits.pending).min(opening.budget.ends_at),
            end: None,
        };
        dialogue.budget.turns = dialogue.budget.turns.saturating_sub(1);
        Ok(dialogue)
    }

    /// One event stream with what was said.
    pub fn stream(&self) -> StreamId {
        stream_of(&self.id)
    }

    pub fn turns_left(&self) -> u32 {
        self.max_turns.saturating_sub(self.messages)
    }

    pub fn is_living(&self) -> bool {
        self.state != DialogueState::Ended
    }

    pub fn agent(&self, side: Side) -> &AgentId {
        match side {
            Side::Initiator => &self.initiator,
            Side::Participant => &self.participant,
        }
    }

    pub fn place(&self, side: Side) -> Place {
        Place::new(&self.project, self.agent(side))
    }

    /// Which side an agent is on; those who take no part are refused.
    pub fn side_of(&self, agent: &AgentId) -> Result<Side, Refusal> {
        if *agent == self.initiator {
            return Ok(Side::Initiator);
        }
        if *agent == self.participant {
            return Ok(Side::Participant);
        }
        let message = format!("you take no part in conversation {}", self.id);
        Err(RefusalCode::NotParticipant.because(message))
    }

    pub fn is_turn_of(&self, side: Side) -> bool {
        self.is_living() && self.turn == side
    }

    /// What the other side waits for after this was said. The participant is talked to: what it
    /// undertakes may follow from it.
    pub fn turn_after(&self, said: Utterance) -> What {
        let budget = (self.turn == Side::Participant).then_some(self.budget);
        What::Turn { dialogue: self.id.clone(), said, budget }
    }

    /// Whether this agent was invited and has not come.
    pub fn is_expecting(&self, agent: &AgentId) -> bool {
        self.state == DialogueState::Pending && self.participant == *agent
    }

    /// The participant has seen its invitation. True if that is new.
    pub fn arrive(&mut self, limits: &TeamLimits, now: Timestamp) -> bool {
        if self.state != DialogueState::Pending {
            return false;
        }
        self.state = DialogueState::Active;
        self.deadline = (now + limits.idle).min(self.budget.ends_at);
        true
    }

    pub fn say(
        &mut self,
        by: &AgentId,
        content: &str,
        limits: &TeamLimits,
        now: Timestamp,
    ) -> Result<Said, Refusal> {
        let side = self.side_of(by)?;
        self.check_living()?;
        if self.turn != side {
            let message = format!(
                "it is {}'s turn: wait for its message with get_pending_messages",
                self.agent(self.turn)
            );
            return Err(RefusalCode::NotYourTurn.because(message));
        }
        check_content("content", content, MAX_CONTENT)?;
        self.arrive(limits, now);
        self.messages += 1;
        self.turn = side.other();
        self.budget.turns = self.budget.turns.saturating_sub(1);
        self.deadline = (now + limits.idle).min(self.budget.ends_at);
        let is_last = self.turns_left() == 0;
        if is_last {
            self.close(EndReason::MaxTurns, None, now);
        }
        Ok(Said { is_last })
    }

    /// One side has had enough. It need not be its turn.
    pub fn end_by(
        &mut self,
        by: &AgentId,
        note: Option<String>,
        now: Timestamp,
    ) -> Result<EndReason, Refusal> {
        let reason = match self.side_of(by)? {
            Side::Initiator => EndReason::InitiatorEnded,
            Side::Participant => EndReason::ParticipantEnded,
        };
        self.check_living()?;
        self.close(reason, note, now);
        Ok(reason)
    }

    /// The server ends it. False if it has ended.
    pub fn end_for(&mut self, reason: EndReason, now: Timestamp) -> bool {
        if !self.is_living() {
            return false;
        }
        self.close(reason, None, now);
        true
    }

    /// What the reason of its end does not say: after the first message nobody said anything.
    pub fn remark(&self) -> Option<&'static str> {
        let end = self.end.as_ref().filter(|_| self.messages == 1)?;
        match end.reason {
            EndReason::Timeout => Some("nobody answered the first message in time"),
            EndReason::SessionExpired => Some("a session ended before anybody answered"),
            _ => None,
        }
    }

    pub fn is_overdue(&self, now: Timestamp) -> bool {
        self.is_living() && now >= self.deadline
    }

    fn check_living(&self) -> Result<(), Refusal> {
        match &self.end {
            None => Ok(()),
            Some(end) => {
                let message =
                    format!("conversation {} has ended: {}", self.id, end.reason.as_str());
                Err(RefusalCode::DialogueEnded.because(message))
            }
        }
    }

    fn close(&mut self, reason: EndReason, note: Option<String>, now: Timestamp) {
        self.state = DialogueState::Ended;
        self.end = Some(End { reason, note, at: now });
    }

    /// Two agents of a project have one living dialogue, whoever began it.
    fn pair(&self) -> String {
        let (a, b) = (&self.initiator, &self.participant);
        let (first, second) = if a <= b { (a, b) } else { (b, a) };
        format!("{}/{first}/{second}", self.project)
    }
}

pub fn stream_of(id: &DialogueId) -> StreamId {
    StreamId::new(format!("dialogue/{id}"))
}

impl Document for Dialogue {
    const KIND: &'static str = "dialogue";

    fn tenant(&self) -> TenantId {
        self.tenant.clone()
    }

    fn id(&self) -> &str {
        self.id.as_str()
    }

    fn columns(&self) -> Columns {
        let is_living = self.is_living();
        Columns {
            state: self.state.as_str().to_owned(),
            parent: Some(self.project.to_string()),
            // Those of a project that live are found together.
            owner: is_living.then(|| self.project.to_string()),
            unique: is_living.then(|| self.pair()),
            due_at: is_living.then_some(self.deadline),
        }
    }
}

#[cfg(test)]
#[path = "dialogue_tests.rs"]
mod tests;
