use serde::{Deserialize, Serialize};
use serde_json::Value;
use shikiri_model::conversation::{Conversation, ConversationStatus};
use shikiri_model::execution::{MessageKind, MessageLog};
use shikiri_model::ids::{ConversationId, ModelId, RunId};
use shikiri_model::record::Stored;
use shikiri_model::time::Timestamp;
use utoipa::ToSchema;

/// A thread of executions. One execution at a time writes to it.
#[derive(Serialize, ToSchema)]
#[schema(as = Conversation)]
pub struct ConversationJson {
    #[schema(value_type = String)]
    pub(crate) id: ConversationId,
    title: Option<String>,
    /// The engine's session that the next execution resumes.
    session_id: Option<String>,
    status: ConversationStatusJson,
    /// In place of the tenant's.
    #[schema(value_type = Option<String>)]
    model_id: Option<ModelId>,
    /// In place of the tenant's.
    workspace_enabled: Option<bool>,
    /// Executions that were completed.
    turns: u64,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
}

#[derive(Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = ConversationStatus)]
pub enum ConversationStatusJson {
    Active,
    /// Kept, and no execution can be started in it.
    Archived,
}

/// One message of a conversation.
#[derive(Serialize, ToSchema)]
#[schema(as = Message)]
pub struct MessageJson {
    id: String,
    #[schema(value_type = String)]
    execution_id: RunId,
    turn: u64,
    /// Position in its execution, from 1.
    seq: usize,
    #[serde(rename = "type")]
    kind: MessageKindJson,
    subtype: Option<String>,
    content: Value,
    /// The call that started the subagent whose message this is.
    parent_tool_use_id: Option<String>,
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = MessageType)]
enum MessageKindJson {
    System,
    Assistant,
    User,
    Result,
}

impl From<Stored<Conversation>> for ConversationJson {
    fn from(stored: Stored<Conversation>) -> Self {
        let conversation = stored.value;
        Self {
            id: conversation.id,
            title: conversation.title,
            session_id: conversation.session_id,
            status: match conversation.status {
                ConversationStatus::Active => ConversationStatusJson::Active,
                ConversationStatus::Archived => ConversationStatusJson::Archived,
            },
            model_id: conversation.model_id,
            workspace_enabled: conversation.workspace_enabled,
            turns: conversation.turns,
            created_at: stored.created_at,
            updated_at: stored.updated_at,
        }
    }
}

impl From<ConversationStatusJson> for ConversationStatus {
    fn from(status: ConversationStatusJson) -> Self {
        match status {
            ConversationStatusJson::Active => Self::Active,
            ConversationStatusJson::Archived => Self::Archived,
        }
    }
}

impl From<Stored<MessageLog>> for MessageJson {
    fn from(stored: Stored<MessageLog>) -> Self {
        let message = stored.value;
        Self {
            id: message.id,
            execution_id: message.execution,
            turn: message.turn,
            seq: message.seq,
            kind: match message.kind {
                MessageKind::System => MessageKindJson::System,
                MessageKind::Assistant => MessageKindJson::Assistant,
                MessageKind::User => MessageKindJson::User,
                MessageKind::Result => MessageKindJson::Result,
            },
            subtype: message.subtype,
            content: message.content,
            parent_tool_use_id: message.parent_tool_use_id,
            at: message.at,
        }
    }
}
