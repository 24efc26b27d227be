//! Conversations: the shared state of a thread's executions. One execution at a time writes to a
//! conversation, under the conversation's lease.

use serde::{Deserialize, Serialize};

use crate::ids::{ConversationId, ModelId, TenantId};
use crate::macros::{document, text_enum};
use crate::record::RecordColumns;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conversation {
    pub id: ConversationId,
    pub tenant: TenantId,
    #[serde(default)]
    pub title: Option<String>,
    /// The engine's session that the next execution resumes.
    #[serde(default)]
    pub session_id: Option<String>,
    pub status: ConversationStatus,
    /// Overrides the tenant's model.
    #[serde(default)]
    pub model_id: Option<ModelId>,
    /// Overrides the tenant's setting.
    #[serde(default)]
    pub workspace_enabled: Option<bool>,
    /// The number of completed executions.
    #[serde(default)]
    pub turns: u64,
}

text_enum! {
    pub enum ConversationStatus {
        Active = "active",
        Archived = "archived",
    }
}

/// The longest title.
pub const MAX_TITLE: usize = 50;

impl Conversation {
    pub fn new(id: ConversationId, tenant: TenantId) -> Self {
        Self {
            id,
            tenant,
            title: None,
            session_id: None,
            status: ConversationStatus::Active,
            model_id: None,
            workspace_enabled: None,
            turns: 0,
        }
    }

    /// The name of the lease that a writer holds.
    pub fn lock(&self) -> String {
        conversation_lock(&self.id)
    }
}

pub fn conversation_lock(conversation: &ConversationId) -> String {
    format!("conversation/{conversation}")
}

/// A title on one line of at most 50 characters; None for an empty text.
pub fn title_from(text: &str) -> Option<String> {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let quotes = ['"', '\'', '“', '”', '「', '」', '『', '』'];
    let title: String = line.trim_matches(quotes).chars().take(MAX_TITLE).collect();
    let title = title.trim().to_owned();
    (!title.is_empty()).then_some(title)
}

document!(Conversation, "conversation", tenant, id, |conversation| RecordColumns::in_state(
    conversation.status.as_str()
));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_have_one_line_and_at_most_fifty_characters() {
        assert_eq!(title_from("  「旅行の\n計画」 "), Some("旅行の 計画".to_owned()));
        assert_eq!(title_from(&"長".repeat(60)).unwrap().chars().count(), 50);
        assert_eq!(title_from(" \n\"\" "), None);
    }
}
