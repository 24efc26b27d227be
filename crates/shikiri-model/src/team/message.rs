//! What one agent said to another outside a dialogue.

use serde::{Deserialize, Serialize};

use super::Place;
use super::refusal::{Refusal, RefusalCode};
use crate::ids::{AgentId, DelegationId, MessageId, ProjectId, TenantId};
use crate::record::{Columns, Document};
use crate::time::Timestamp;

/// Characters of a message.
pub const MAX_CONTENT: usize = 4_000;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    pub id: MessageId,
    pub tenant: TenantId,
    pub project: ProjectId,
    pub from: AgentId,
    pub to: AgentId,
    pub content: String,
    /// What it answers.
    #[serde(default)]
    pub in_reply_to: Option<MessageId>,
    #[serde(default)]
    pub delegation: Option<DelegationId>,
    /// Messages and talks that may still follow from it; between agents that are no persons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hops: Option<u32>,
    #[serde(default)]
    pub is_answered: bool,
    #[serde(default)]
    pub read_at: Option<Timestamp>,
}

impl Message {
    /// The state of those that their recipient has seen.
    pub const READ: &'static str = "read";

    /// It is answered: the hops that its first answer has to go by. Whoever answers it again may do
    /// so because of something that came later.
    pub fn answer(&mut self) -> Option<u32> {
        let hops = self.hops.filter(|_| !self.is_answered);
        self.is_answered = true;
        hops
    }

    pub fn recipient(&self) -> Place {
        Place::new(&self.project, &self.to)
    }
}

/// A text that can be said.
pub fn check_content(field: &str, text: &str, longest: usize) -> Result<(), Refusal> {
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

impl Document for Message {
    const KIND: &'static str = "message";

    fn tenant(&self) -> TenantId {
        self.tenant.clone()
    }

    fn id(&self) -> &str {
        self.id.as_str()
    }

    fn columns(&self) -> Columns {
        Columns {
            state: if self.read_at.is_some() { Self::READ } else { "unread" }.to_owned(),
            parent: Some(self.project.to_string()),
            owner: Some(self.recipient().key()),
            ..Columns::default()
        }
    }
}

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
