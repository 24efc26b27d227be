//! A message from one agent to another outside a dialogue.

use serde::{Deserialize, Serialize};

use super::ProjectMember;
use super::team_cause::TeamCause;
use super::team_refusal::{RefusalCode, TeamRefusal};
use crate::ids::{AgentId, DelegationId, MessageId, ProjectId, TenantId};
use crate::macros::document;
use crate::record::RecordColumns;
use crate::time::Timestamp;

/// The most characters in a message.
pub const MAX_CONTENT: usize = 4_000;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TeamMessage {
    pub id: MessageId,
    pub tenant: TenantId,
    pub project: ProjectId,
    pub from: AgentId,
    pub to: AgentId,
    pub content: String,
    /// The message that it answers.
    #[serde(default)]
    pub in_reply_to: Option<MessageId>,
    #[serde(default)]
    pub delegation: Option<DelegationId>,
    /// Messages and dialogues that may still follow. Only for messages between AI agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hops: Option<u32>,
    /// What set it off. Only for messages to AI agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<TeamCause>,
    /// The server tells something. Nothing is to be answered.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_notice: bool,
    #[serde(default)]
    pub is_answered: bool,
    #[serde(default)]
    pub read_at: Option<Timestamp>,
}

impl TeamMessage {
    /// The state of messages that their recipient has seen.
    pub const READ: &'static str = "read";

    /// Marks the message as answered and returns the hops for its first answer. Later answers may
    /// have another cause and get none.
    pub fn answer(&mut self) -> Option<u32> {
        let hops = self.hops.filter(|_| !self.is_answered);
        self.is_answered = true;
        hops
    }

    pub fn recipient(&self) -> ProjectMember {
        ProjectMember::new(&self.project, &self.to)
    }
}

/// Checks the length of a text.
pub fn check_content(field: &str, text: &str, longest: usize) -> Result<(), TeamRefusal> {
    if text.trim().is_empty() {
        return Err(RefusalCode::InvalidArgument.because(format!("{field} must not be empty")));
    }
    let length = text.chars().count();
    if length > longest {
        let message = format!("{field} has {length} characters: {longest} are the most");
        return Err(RefusalCode::ContentTooLong.because(message));
    }
    Ok(())
}

document!(TeamMessage, "message", tenant, id, |message| RecordColumns {
    state: if message.read_at.is_some() { TeamMessage::READ } else { "unread" }.to_owned(),
    parent: Some(message.project.to_string()),
    owner: Some(message.recipient().key()),
    ..RecordColumns::default()
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_one_to_four_thousand_characters() {
        let code = |text: &str| check_content("content", text, MAX_CONTENT).map_err(|r| r.code);
        assert_eq!(code(&"語".repeat(4_000)), Ok(()));
        assert_eq!(code(&"語".repeat(4_001)), Err(RefusalCode::ContentTooLong));
        assert_eq!(code(" \n\t"), Err(RefusalCode::InvalidArgument));
    }
}
