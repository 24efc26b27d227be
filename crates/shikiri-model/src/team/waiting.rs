//! What waits for an agent until one of its sessions has seen it.
//!
//! One list for everything, so that one look answers `get_pending_messages`, and the coordinator
//! finds in one queue who has something to do.

use serde::{Deserialize, Serialize};

use super::Place;
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
    /// The session that has seen it, and when. If it is still here a while later it is shown again,
    /// to that session or another: the answer may have been lost, or the session died of it.
    #[serde(default)]
    pub seen_by: Option<AgentSessionId>,
    #[serde(default)]
    pub seen_at: Option<Timestamp>,
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
    /// It is to speak, after this was said.
    Turn { dialogue: DialogueId, said: Utterance },
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
    /// It is told once, whatever becomes of whoever heard it.
    UntilSeen,
    /// By looking again a session shows that it lives and has what it saw before.
    UntilNextLook,
    UntilDone,
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
            Self::Ended { .. } => Stay::UntilSeen,
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

    /// Whether a look shows it.
    pub fn is_news(&self, limits: &TeamLimits, now: Timestamp) -> bool {
        self.seen_by.is_none() || self.seen_at.is_none_or(|seen| now >= seen + limits.reminder())
    }

    pub fn is_seen_by(&self, session: &AgentSessionId) -> bool {
        self.seen_by.as_ref() == Some(session)
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
