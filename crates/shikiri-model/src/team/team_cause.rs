//! What set talk between agents off: the person's message, the task or the delegation that it
//! follows from.
//!
//! A cause is passed on with everything that follows from it: each message, dialogue and delegation
//! carries it, and an agent's membership in the project keeps the newest one that reached its inbox,
//! read or unread. So neither a login nor another session loses it. What an agent does of its own
//! accord, with no cause that is known, is a cause itself.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::AgentId;
use crate::macros::text_enum;
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TeamCause {
    pub kind: TeamCauseKind,
    /// The id of the message, task, delegation or dialogue.
    pub id: String,
    pub at: Timestamp,
    /// The person who wrote the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub person: Option<AgentId>,
}

text_enum! {
    pub enum TeamCauseKind {
        /// A message from a person, or one that was posted from outside.
        Posted = "posted",
        Task = "task",
        Delegation = "delegation",
        /// A message that an agent sent of its own accord.
        Message = "message",
        /// A dialogue that an agent began of its own accord.
        Dialogue = "dialogue",
    }
}

impl TeamCause {
    pub fn new(kind: TeamCauseKind, id: impl ToString, at: Timestamp) -> Self {
        Self { kind, id: id.to_string(), at, person: None }
    }

    /// Messages that were sent before the first one is counted: an agent's own message is its
    /// cause.
    pub fn own_messages(&self) -> u32 {
        u32::from(self.kind == TeamCauseKind::Message)
    }

    /// Whether it no longer counts. What a person set off has no end by itself. What an agent began
    /// of its own accord has: nobody could set it off afresh.
    pub fn has_lapsed(&self, longest: Duration, now: Timestamp) -> bool {
        let is_own = matches!(self.kind, TeamCauseKind::Message | TeamCauseKind::Dialogue);
        is_own && now >= self.at + longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_an_agent_began_by_itself_lapses() {
        use TeamCauseKind::{Delegation, Dialogue, Message, Posted, Task};
        let hour = Duration::from_secs(3_600);
        let at = |seconds: i64| Timestamp::from_millis(seconds * 1_000);
        for (kind, lapses, own) in [
            (Posted, false, 0),
            (Task, false, 0),
            (Delegation, false, 0),
            (Message, true, 1),
            (Dialogue, true, 0),
        ] {
            let cause = TeamCause::new(kind, "x", at(0));
            assert!(!cause.has_lapsed(hour, at(3_599)), "{kind:?}");
            assert_eq!(cause.has_lapsed(hour, at(3_600)), lapses, "{kind:?}");
            assert_eq!(cause.own_messages(), own, "{kind:?}");
        }
    }
}
