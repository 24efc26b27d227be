//! An agent's inbox: items that are kept until one of its sessions has seen them.
//!
//! One list holds all kinds of items. One query answers `get_pending_messages`, and the coordinator
//! finds the agents that have work in one queue.
//!
//! Showing an item does not remove it, because the answer may be lost. An answer counts as
//! delivered when it was written to the caller ([`DeliveryState`]). Until then the same session is
//! shown the same item again, with the same id.
//!
//! A delivered answer may still be unread: the caller may die with it. Only its next call proves
//! that it was read. The notice of an end therefore stays until that call. If the session ends
//! without one, the next session is shown the notice, marked as possibly shown before. A server
//! cannot do better: between an answer and the next call, a dead reader and a slow one look the
//! same.

use serde::{Deserialize, Serialize};

use super::ProjectMember;
use super::agent_session::SessionPurpose;
use super::dialogue::DialogueEndReason;
use super::team_budget::TeamBudget;
use super::team_limits::TeamLimits;
use crate::ids::{AgentId, AgentSessionId, DelegationId, DialogueId, MessageId, TaskId, TenantId};
use crate::macros::document;
use crate::record::RecordColumns;
use crate::time::Timestamp;

/// The number of sessions that are remembered. An agent never has that many at a time.
const MAX_SEEN: usize = 20;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboxItem {
    pub id: String,
    pub tenant: TenantId,
    pub place: ProjectMember,
    pub what: InboxItemKind,
    /// The session that was last shown the item, and when.
    #[serde(default)]
    pub seen_by: Option<AgentSessionId>,
    #[serde(default)]
    pub seen_at: Option<Timestamp>,
    /// The answer that showed the item to that session was delivered.
    #[serde(default)]
    pub has_come: bool,
    /// Sessions that saw it before. An item for several sessions is shown to each of them once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seen_before: Vec<AgentSessionId>,
    /// When the coordinator should check whether the agent has to be started. None if it cannot be
    /// started.
    #[serde(default)]
    pub due_at: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InboxItemKind {
    /// An unread message.
    Message(MessageId),
    /// An invitation to a dialogue that the agent has not accepted, with its first message.
    Invitation { dialogue: DialogueId, said: DialogueMessage },
    /// The agent's turn in a dialogue, with the last message, and the budget if the agent is the
    /// participant.
    Turn {
        dialogue: DialogueId,
        said: DialogueMessage,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        budget: Option<TeamBudget>,
    },
    /// A dialogue ended, and the agent was not notified yet.
    Ended { dialogue: DialogueId, reason: DialogueEndReason },
    /// A delegation that the agent's chat session should claim.
    Delegation(DelegationId),
    /// A task for a task session.
    Task(TaskId),
    /// The outcome of a delegation, for a task session.
    Outcome(DelegationId),
}

/// How long an item stays in an inbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InboxRetention {
    /// Any call of the session shows that it is alive and has read the item. No action is needed.
    UntilNextCall,
    /// The next inbox query of the session shows that it is alive and has the items of the query
    /// before.
    UntilNextLook,
    UntilDone,
}

/// What is known about the delivery of the answer that showed an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryState {
    /// The answer was lost, or the process that knew is gone.
    Unknown,
    OnItsWay,
    Came,
}

/// What an inbox query does with an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InboxAction {
    Show,
    /// Removes it: the session that queries has read it.
    TakeOff,
    Leave,
}

/// A message of a dialogue, as the event stream stores it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DialogueMessage {
    pub message_id: MessageId,
    pub from_agent_id: AgentId,
    pub content: String,
    pub created_at: Timestamp,
}

impl InboxItemKind {
    /// When the item is removed.
    pub fn retention(&self) -> InboxRetention {
        match self {
            Self::Ended { .. } => InboxRetention::UntilNextCall,
            Self::Message(_) => InboxRetention::UntilNextLook,
            _ => InboxRetention::UntilDone,
        }
    }

    /// The purpose of the sessions that see it.
    pub fn purpose(&self) -> SessionPurpose {
        match self {
            Self::Task(_) | Self::Outcome(_) => SessionPurpose::Task,
            _ => SessionPurpose::Chat,
        }
    }
}

impl InboxItem {
    pub fn new(
        tenant: TenantId,
        place: ProjectMember,
        what: InboxItemKind,
        due_at: Option<Timestamp>,
    ) -> Self {
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

    /// One id per subject and agent, so that the same item is never added twice.
    fn id_of(place: &ProjectMember, what: &InboxItemKind) -> String {
        match what {
            InboxItemKind::Message(id) => id.to_string(),
            InboxItemKind::Invitation { dialogue, .. } | InboxItemKind::Turn { dialogue, .. } => {
                Self::turn_id(dialogue, &place.agent)
            }
            InboxItemKind::Ended { dialogue, .. } => format!("{dialogue}-ended-{}", place.agent),
            InboxItemKind::Delegation(id) => id.to_string(),
            InboxItemKind::Task(id) => id.to_string(),
            InboxItemKind::Outcome(id) => Self::outcome_id(id),
        }
    }

    /// The id of the item that waits for an agent's message: an invitation first, a turn later.
    pub fn turn_id(dialogue: &DialogueId, agent: &AgentId) -> String {
        format!("{dialogue}-turn-{agent}")
    }

    pub fn outcome_id(delegation: &DelegationId) -> String {
        format!("{delegation}-outcome")
    }

    /// What an inbox query of a session does with the item. `is_attended`: another session that was
    /// shown it is alive and may be working on it.
    pub fn action_for(
        &self,
        session: &AgentSessionId,
        arrival: DeliveryState,
        is_attended: bool,
        limits: &TeamLimits,
        now: Timestamp,
    ) -> InboxAction {
        let arrival = if self.has_come { DeliveryState::Came } else { arrival };
        let is_late = self.seen_at.is_none_or(|seen| now >= seen + limits.reminder());
        match (&self.seen_by, arrival) {
            (None, _) => InboxAction::Show,
            (Some(by), _) if by != session => {
                if is_attended {
                    InboxAction::Leave
                } else {
                    InboxAction::Show
                }
            }
            (_, DeliveryState::OnItsWay) => InboxAction::Leave,
            (_, DeliveryState::Unknown) => InboxAction::Show,
            (_, DeliveryState::Came) if self.what.retention() != InboxRetention::UntilDone => {
                InboxAction::TakeOff
            }
            // The session has not acted on it. It may not have been able to.
            (_, DeliveryState::Came) if is_late => InboxAction::Show,
            (_, DeliveryState::Came) => InboxAction::Leave,
        }
    }

    pub fn is_seen_by(&self, session: &AgentSessionId) -> bool {
        self.seen_by.as_ref() == Some(session)
    }

    /// Whether an answer showed it. The item may have been read or not.
    pub fn was_shown(&self) -> bool {
        self.seen_by.is_some()
    }

    /// Whether a call of this session proves that it has read the item.
    pub fn is_confirmed_by(&self, session: &AgentSessionId, arrival: DeliveryState) -> bool {
        let has_come = self.has_come || arrival == DeliveryState::Came;
        self.what.retention() == InboxRetention::UntilNextCall
            && self.is_seen_by(session)
            && has_come
    }

    /// Whether this session saw it, even if another one saw it later.
    pub fn was_seen_by(&self, session: &AgentSessionId) -> bool {
        self.is_seen_by(session) || self.seen_before.contains(session)
    }

    pub fn mark_seen(&mut self, session: &AgentSessionId, now: Timestamp) {
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

    /// Makes the item new to every session again.
    pub fn reset_seen(&mut self) {
        (self.seen_by, self.seen_at, self.has_come) = (None, None, false);
    }
}

document!(InboxItem, "waiting", tenant, id, |item| RecordColumns {
    state: item.what.purpose().as_str().to_owned(),
    owner: Some(item.place.key()),
    due_at: item.due_at,
    ..RecordColumns::default()
});

#[cfg(test)]
#[path = "inbox_item_tests.rs"]
mod tests;
