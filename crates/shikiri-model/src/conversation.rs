//! Conversations: what executions of one thread have in common. One execution at a time writes to
//! one, under the conversation's lease.

use serde::{Deserialize, Serialize};

use crate::ids::{ConversationId, ModelId, TenantId};
use crate::record::{Columns, Document};

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
    /// In place of the tenant's.
    #[serde(default)]
    pub model_id: Option<ModelId>,
    /// In place of the tenant's.
    #[serde(default)]
    pub workspace_enabled: Option<bool>,
    /// Executions that were completed.
    #[serde(default)]
    pub turns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConversationStatus {
    Active,
    Archived,
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

    /// The lease of whoever writes to it.
    pub fn lock(&self) -> String {
        lock_of(&self.id)
    }
}

pub fn lock_of(conversation: &ConversationId) -> String {
    format!("conversation/{conversation}")
}

/// A title on one line of at most 50 characters; None if nothing is left of the text.
pub fn title_from(text: &str) -> Option<String> {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let quotes = ['"', '\'', '“', '”', '「', '」', '『', '』'];
    let title: String = line.trim_matches(quotes).chars().take(MAX_TITLE).collect();
    let title = title.trim().to_owned();
    (!title.is_empty()).then_some(title)
}

impl ConversationStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Archived => "archived",
        }
    }
}

impl Document for Conversation {
    const KIND: &'static str = "conversation";

    fn tenant(&self) -> TenantId {
        self.tenant.clone()
    }

    fn id(&self) -> &str {
        self.id.as_str()
    }

    fn columns(&self) -> Columns {
        Columns { state: self.status.as_str().to_owned(), ..Columns::default() }
    }
}

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
