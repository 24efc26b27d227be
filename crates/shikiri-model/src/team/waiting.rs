//! What waits for an agent until one of its sessions has seen it.
//!
//! One list for everything, so that one look answers `get_pending_messages`, and the coordinator
//! finds in one queue who has something to do.
//!
//! Showing something is not enough to take it off: the answer may be lost on its way. It has come
//! when it was written to whoever asked (`Arrival`). Until that is known, the same session is shown
//! the same again, and it is told by its id that it is the same.
//!
//! Not even what has come was read: a caller may die with the answer in its hands. Only its next
//! call proves that. So the notice of an end stays until that call, and if the session ends without
//! one, the next session is shown it, with the word that it may have been told before. Nobody can do
//! better: between an answer and the next call a server cannot tell a reader that died from one
//! that read.

use serde::{Deserialize, Serialize};

use super::Place;
use super::budget::Budget;
use super::dialogue::EndReason;
use super::limits::TeamLimits;
use super::session::Purpose;
use crate::ids::{AgentId, AgentSessionId, DelegationId, DialogueId, MessageId, TaskId, TenantId};
use crate::record::{Columns, Document};
use crate::time::Timestamp;

/// More sessions of one agent than live at a time.
const MAX_SEEN: usize = 20;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    pub id: String,
    pub tenant: TenantId,
    pub place: Place,
    pub what: What,
    /// The session that it was shown to, and when.
    #[serde(default)]
    pub seen_by: Option<AgentSessionId>,
    #[serde(default)]
    pub seen_at: Option<Timestamp>,
    /// The answer that showed it to that session has come.
    #[serde(default)]
    pub has_come: bool,
    /// Sessions that saw it before that one: what several may hear, each hears once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seen_before: Vec<AgentSessionId>,
    /// When somebody should look whether the agent has to be started; never, if it cannot be.
    #[serde(default)]
    pub due_at: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// Unread.
    Message(MessageId),
    /// To a dialogue that it has not answered in, with what was said.
    Invitation { dialogue: DialogueId, said: Utterance },
    /// It is to speak, after this was said; with what may follow from it, if it is talked to.
    Turn {
        dialogue: DialogueId,
        said: Utterance,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        budget: Option<Budget>,
    },
    /// It has not been told yet.
    Ended { dialogue: DialogueId, reason: EndReason },
    /// That its chat session should take on.
    Delegation(DelegationId),
    /// Work for a task session.
    Task(TaskId),
    /// What became of a delegation, for a task session.
    Outcome(DelegationId),
}

/// How long something is on an agent's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stay {
    /// By calling anything a session shows that it lives and has heard it. Nothing is to be done
    /// about it.
    UntilNextCall,
    /// By looking again a session shows that it lives and has what it saw before.
    UntilNextLook,
    UntilDone,
}

/// What is known of the answer that showed something to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It was lost, or whoever knew is gone.
    Unknown,
    OnItsWay,
    Came,
}

/// What a look does about something on the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    Show,
    /// It goes off the list: whoever looks has got it.
    TakeOff,
    Leave,
}

/// A message of a dialogue, as it lies in the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Utterance {
    pub message_id: MessageId,
    pub from_agent_id: AgentId,
    pub content: String,
    pub created_at: Timestamp,
}

impl What {
    /// When it goes off the list.
    pub fn stays(&self) -> Stay {
        match self {
            Self::Ended { .. } => Stay::UntilNextCall,
            Self::Message(_) => Stay::UntilNextLook,
            _ => Stay::UntilDone,
        }
    }

    /// Whose sessions see it.
    pub fn purpose(&self) -> Purpose {
        match self {
            Self::Task(_) | Self::Outcome(_) => Purpose::Task,
            _ => Purpose::Chat,
        }
    }
}

impl Waiting {
    pub fn new(tenant: TenantId, place: Place, what: What, due_at: Option<Timestamp>) -> Self {
        Self {
            id: Self::id_of(&place, &what),
            tenant,
            place,
            what,
            seen_by: None,
            seen_at: None,
            has_come: false,
            seen_before: Vec::new(),
            due_at,
        }
    }

    /// One for each thing and agent: the same is never put twice.
    fn id_of(place: &Place, what: &What) -> String {
        match what {
            What::Message(id) => id.to_string(),
            What::Invitation { dialogue, .. } | What::Turn { dialogue, .. } => {
                Self::turn_id(dialogue, &place.agent)
            }
            What::Ended { dialogue, .. } => format!("{dialogue}-ended-{}", place.agent),
            What::Delegation(id) => id.to_string(),
            What::Task(id) => id.to_string(),
            What::Outcome(id) => Self::outcome_id(id),
        }
    }

    /// What waits for an agent to speak: an invitation at first, a turn later.
    pub fn turn_id(dialogue: &DialogueId, agent: &AgentId) -> String {
        format!("{dialogue}-turn-{agent}")
    }

    pub fn outcome_id(delegation: &DelegationId) -> String {
        format!("{delegation}-outcome")
    }

    /// What a session's look does about it. `is_attended`: whether another session that it was shown
    /// to is there and may be thinking about it.
    pub fn look(
        &self,
        session: &AgentSessionId,
        arrival: Arrival,
        is_attended: bool,
        limits: &TeamLimits,
        now: Timestamp,
    ) -> Look {
        let arrival = if self.has_come { Arrival::Came } else { arrival };
        let is_late = self.seen_at.is_none_or(|seen| now >= seen + limits.reminder());
        match (&self.seen_by, arrival) {
            (None, _) => Look::Show,
            (Some(by), _) if by != session => {
                if is_attended {
                    Look::Leave
                } else {
                    Look::Show
                }
            }
            (_, Arrival::OnItsWay) => Look::Leave,
            (_, Arrival::Unknown) => Look::Show,
            (_, Arrival::Came) if self.what.stays() != Stay::UntilDone => Look::TakeOff,
            // It has not dealt with it: maybe it could not yet.
            (_, Arrival::Came) if is_late => Look::Show,
            (_, Arrival::Came) => Look::Leave,
        }
    }

    pub fn is_seen_by(&self, session: &AgentSessionId) -> bool {
        self.seen_by.as_ref() == Some(session)
    }

    /// Whether some answer showed it: it may have been read, or not.
    pub fn was_shown(&self) -> bool {
        self.seen_by.is_some()
    }

    /// Whether a session that calls something proves by it that it has heard this.
    pub fn is_proven_heard(&self, session: &AgentSessionId, arrival: Arrival) -> bool {
        let has_come = self.has_come || arrival == Arrival::Came;
        self.what.stays() == Stay::UntilNextCall && self.is_seen_by(session) && has_come
    }

    /// Whether this session saw it, whoever did later.
    pub fn was_seen_by(&self, session: &AgentSessionId) -> bool {
        self.is_seen_by(session) || self.seen_before.contains(session)
    }

    pub fn see(&mut self, session: &AgentSessionId, now: Timestamp) {
        if let Some(before) = self.seen_by.replace(session.clone()).filter(|it| it != session) {
            self.seen_before.retain(|known| *known != before);
            self.seen_before.push(before);
            if self.seen_before.len() > MAX_SEEN {
                self.seen_before.remove(0);
            }
        }
        self.seen_at = Some(now);
        self.has_come = false;
    }

    /// Makes it news to every session again.
    pub fn forget(&mut self) {
        (self.seen_by, self.seen_at, self.has_come) = (None, None, false);
    }
}

impl Document for Waiting {
    const KIND: &'static str = "waiting";

    fn tenant(&self) -> TenantId {
        self.tenant.clone()
    }

    fn id(&self) -> &str {
        &self.id
    }

    fn columns(&self) -> Columns {
        Columns {
            state: self.what.purpose().as_str().to_owned(),
            owner: Some(self.place.key()),
            due_at: self.due_at,
            ..Columns::default()
        }
    }
}

#[cfg(test)]
#[path = "waiting_tests.rs"]
mod tests;
