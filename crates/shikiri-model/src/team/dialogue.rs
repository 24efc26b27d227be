//! A dialogue: a bounded conversation between two agents. Every dialogue ends.
//!
//! ```text
//! pending → active → ended
//!    └────────────────↗
//! ```
//!
//! Each message is one turn, and the sides alternate; the initiator's first message counts. A
//! dialogue ends when either side ends it, after its last turn, or at its deadline.

use serde::{Deserialize, Serialize};

use super::ProjectMember;
use super::inbox_item::{DialogueMessage, InboxItemKind};
use super::team_budget::TeamBudget;
use super::team_cause::TeamCause;
use super::team_limits::TeamLimits;
use super::team_message::{MAX_CONTENT, check_content};
use super::team_refusal::{RefusalCode, TeamRefusal};
use crate::event::StreamId;
use crate::ids::{AgentId, DelegationId, DialogueId, ProjectId, TenantId};
use crate::macros::{document, text_enum};
use crate::record::RecordColumns;
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
    /// The side that speaks next.
    pub turn: DialogueSide,
    /// The number of messages so far.
    pub messages: u32,
    pub max_turns: u32,
    /// The budget for work that follows from the dialogue.
    pub budget: TeamBudget,
    /// What set the dialogue off. Its turns are taken from the budget of the pair and this cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<TeamCause>,
    #[serde(default)]
    pub delegation: Option<DelegationId>,
    /// The dialogue is ended at this time if nothing happens before.
    pub deadline: Timestamp,
    #[serde(default)]
    pub end: Option<DialogueEnd>,
}

text_enum! {
    pub enum DialogueState {
        /// The participant has not accepted the invitation yet.
        Pending = "pending",
        Active = "active",
        Ended = "ended",
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DialogueSide {
    Initiator,
    Participant,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DialogueEnd {
    pub reason: DialogueEndReason,
    /// The note of the side that ended it.
    #[serde(default)]
    pub note: Option<String>,
    pub at: Timestamp,
}

text_enum! {
    pub enum DialogueEndReason {
        InitiatorEnded = "initiator_ended",
        ParticipantEnded = "participant_ended",
        MaxTurns = "max_turns",
        Timeout = "timeout",
        SessionExpired = "session_expired",
        Cancelled = "cancelled",
    }
}

/// The data that a dialogue is opened with.
#[derive(Clone, Debug)]
pub struct DialogueOpening {
    pub id: DialogueId,
    pub tenant: TenantId,
    pub project: ProjectId,
    pub initiator: AgentId,
    pub participant: AgentId,
    pub purpose: Option<String>,
    pub max_turns: u32,
    pub delegation: Option<DelegationId>,
    pub budget: TeamBudget,
    pub cause: Option<TeamCause>,
}

/// The result of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DialogueTurnResult {
    /// It was the last message that the limit allows.
    pub is_last: bool,
}

const DEFAULT_TURNS: u32 = 20;
const MAX_TURNS: u32 = 40;

impl DialogueEndReason {
    /// Whether one of the two sides ended it.
    fn is_of_a_side(self) -> bool {
        matches!(self, Self::InitiatorEnded | Self::ParticipantEnded)
    }
}

impl DialogueSide {
    pub fn other(self) -> Self {
        match self {
            Self::Initiator => Self::Participant,
            Self::Participant => Self::Initiator,
        }
    }
}

impl Dialogue {
    /// The fewest messages that a dialogue is opened for.
    pub const MIN_TURNS: u32 = 2;

    /// The number of messages that a caller asks for, of both sides together.
    pub fn check_max_turns(asked: Option<i64>) -> Result<u32, TeamRefusal> {
        let asked = asked.unwrap_or(i64::from(DEFAULT_TURNS));
        let fits = |turns: &u32| (Self::MIN_TURNS..=MAX_TURNS).contains(turns);
        u32::try_from(asked).ok().filter(fits).ok_or_else(|| {
            let message = format!("max_turns must be {} to {MAX_TURNS}: {asked}", Self::MIN_TURNS);
            RefusalCode::InvalidArgument.because(message)
        })
    }

    /// Opens a dialogue with its first message and invites the participant.
    pub fn open(opening: DialogueOpening, limits: &TeamLimits, now: Timestamp) -> Self {
        Self {
            id: opening.id,
            tenant: opening.tenant,
            project: opening.project,
            initiator: opening.initiator,
            participant: opening.participant,
            purpose: opening.purpose,
            state: DialogueState::Pending,
            turn: DialogueSide::Participant,
            messages: 1,
            max_turns: opening.max_turns,
            budget: opening.budget,
            cause: opening.cause,
            delegation: opening.delegation,
            deadline: (now + limits.dialogue_pending).min(opening.budget.ends_at),
            end: None,
        }
    }

    /// The event stream with its messages.
    pub fn stream(&self) -> StreamId {
        stream_of(&self.id)
    }

    pub fn turns_left(&self) -> u32 {
        self.max_turns.saturating_sub(self.messages)
    }

    pub fn is_living(&self) -> bool {
        self.state != DialogueState::Ended
    }

    pub fn agent(&self, side: DialogueSide) -> &AgentId {
        match side {
            DialogueSide::Initiator => &self.initiator,
            DialogueSide::Participant => &self.participant,
        }
    }

    pub fn place(&self, side: DialogueSide) -> ProjectMember {
        ProjectMember::new(&self.project, self.agent(side))
    }

    /// The side of an agent. Other agents are refused.
    pub fn side_of(&self, agent: &AgentId) -> Result<DialogueSide, TeamRefusal> {
        if *agent == self.initiator {
            return Ok(DialogueSide::Initiator);
        }
        if *agent == self.participant {
            return Ok(DialogueSide::Participant);
        }
        let message = format!("you take no part in conversation {}", self.id);
        Err(RefusalCode::NotParticipant.because(message))
    }

    pub fn is_turn_of(&self, side: DialogueSide) -> bool {
        self.is_living() && self.turn == side
    }

    /// The inbox item for the other side after this message. The participant gets the budget,
    /// because its own work may follow from the message.
    pub fn turn_after(&self, said: DialogueMessage) -> InboxItemKind {
        let budget = (self.turn == DialogueSide::Participant).then_some(self.budget);
        InboxItemKind::Turn { dialogue: self.id.clone(), said, budget }
    }

    /// Whether this agent is invited and has not accepted yet.
    pub fn is_expecting(&self, agent: &AgentId) -> bool {
        self.state == DialogueState::Pending && self.participant == *agent
    }

    /// Records that the participant has seen its invitation. Returns true if that is new.
    pub fn activate(&mut self, limits: &TeamLimits, now: Timestamp) -> bool {
        if self.state != DialogueState::Pending {
            return false;
        }
        self.state = DialogueState::Active;
        self.deadline = (now + limits.dialogue_idle).min(self.budget.ends_at);
        true
    }

    pub fn say(
        &mut self,
        by: &AgentId,
        content: &str,
        limits: &TeamLimits,
        now: Timestamp,
    ) -> Result<DialogueTurnResult, TeamRefusal> {
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
        self.activate(limits, now);
        self.messages += 1;
        self.turn = side.other();
        self.deadline = (now + limits.dialogue_idle).min(self.budget.ends_at);
        let is_last = self.turns_left() == 0;
        if is_last {
            self.close(DialogueEndReason::MaxTurns, None, now);
        }
        Ok(DialogueTurnResult { is_last })
    }

    /// Ends the dialogue for one side. It need not be that side's turn. A side that crosses an end
    /// which neither of them made is told of that end.
    pub fn end_by(
        &mut self,
        by: &AgentId,
        note: Option<String>,
        now: Timestamp,
    ) -> Result<DialogueEndReason, TeamRefusal> {
        let reason = match self.side_of(by)? {
            DialogueSide::Initiator => DialogueEndReason::InitiatorEnded,
            DialogueSide::Participant => DialogueEndReason::ParticipantEnded,
        };
        if let Some(end) = self.end.as_ref().filter(|end| !end.reason.is_of_a_side()) {
            return Ok(end.reason);
        }
        self.check_living()?;
        self.close(reason, note, now);
        Ok(reason)
    }

    /// Ends the dialogue for the server. Returns false if it had ended before.
    pub fn end_for(&mut self, reason: DialogueEndReason, now: Timestamp) -> bool {
        if !self.is_living() {
            return false;
        }
        self.close(reason, None, now);
        true
    }

    /// Why a dialogue came to nothing: it ended before its participant said anything.
    pub fn failure(&self) -> Option<&'static str> {
        let end = self.end.as_ref().filter(|_| self.messages == 1)?;
        Some(match end.reason {
            DialogueEndReason::Timeout => "nobody answered the first message in time",
            DialogueEndReason::SessionExpired => "a session ended before anybody answered",
            DialogueEndReason::ParticipantEnded => "the partner ended it without a message",
            DialogueEndReason::InitiatorEnded
            | DialogueEndReason::MaxTurns
            | DialogueEndReason::Cancelled => "it was ended before the partner had answered",
        })
    }

    pub fn is_overdue(&self, now: Timestamp) -> bool {
        self.is_living() && now >= self.deadline
    }

    fn check_living(&self) -> Result<(), TeamRefusal> {
        match &self.end {
            None => Ok(()),
            Some(end) => {
                let message =
                    format!("conversation {} has ended: {}", self.id, end.reason.as_str());
                Err(RefusalCode::DialogueEnded.because(message))
            }
        }
    }

    fn close(&mut self, reason: DialogueEndReason, note: Option<String>, now: Timestamp) {
        self.state = DialogueState::Ended;
        self.end = Some(DialogueEnd { reason, note, at: now });
    }

    /// The same key for both orders of the agents, so that two agents of a project have at most one
    /// open dialogue.
    fn pair(&self) -> String {
        let (a, b) = (&self.initiator, &self.participant);
        let (first, second) = if a <= b { (a, b) } else { (b, a) };
        format!("{}/{first}/{second}", self.project)
    }
}

pub fn stream_of(id: &DialogueId) -> StreamId {
    StreamId::new(format!("dialogue/{id}"))
}

document!(Dialogue, "dialogue", tenant, id, |dialogue| {
    let is_living = dialogue.is_living();
    RecordColumns {
        state: dialogue.state.as_str().to_owned(),
        parent: Some(dialogue.project.to_string()),
        // The column that finds the open dialogues of a project.
        owner: is_living.then(|| dialogue.project.to_string()),
        unique: is_living.then(|| dialogue.pair()),
        due_at: is_living.then_some(dialogue.deadline),
    }
});

#[cfg(test)]
#[path = "dialogue_tests.rs"]
mod tests;
