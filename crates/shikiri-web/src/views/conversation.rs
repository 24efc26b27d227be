use serde::Serialize;
use serde_json::Value;
use shikiri_model::conversation::{Conversation, ConversationStatus};
use shikiri_model::execution::{MessageKind, MessageLog};
use shikiri_model::ids::{ConversationId, ModelId, RunId};
use shikiri_model::record::StoredDocument;
use shikiri_model::time::Timestamp;
use utoipa::ToSchema;

use super::words::{ConversationStatusSchema, MessageKindSchema};

/// A thread of executions. One execution at a time writes to it.
#[derive(Serialize, ToSchema)]
#[schema(as = Conversation)]
pub struct ConversationJson {
    #[schema(value_type = String)]
    pub(crate) id: ConversationId,
    title: Option<String>,
    /// The engine's session that the next execution resumes.
    session_id: Option<String>,
    #[schema(value_type = ConversationStatusSchema)]
    status: ConversationStatus,
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
    #[schema(value_type = MessageKindSchema)]
    kind: MessageKind,
    subtype: Option<String>,
    content: Value,
    /// The call that started the subagent whose message this is.
    parent_tool_use_id: Option<String>,
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
}

impl From<StoredDocument<Conversation>> for ConversationJson {
    fn from(stored: StoredDocument<Conversation>) -> Self {
        let conversation = stored.value;
        Self {
            id: conversation.id,
            title: conversation.title,
            session_id: conversation.session_id,
            status: conversation.status,
            model_id: conversation.model_id,
            workspace_enabled: conversation.workspace_enabled,
            turns: conversation.turns,
            created_at: stored.created_at,
            updated_at: stored.updated_at,
        }
    }
}

impl From<StoredDocument<MessageLog>> for MessageJson {
    fn from(stored: StoredDocument<MessageLog>) -> Self {
        let message = stored.value;
        Self {
            id: message.id,
            execution_id: message.execution,
            turn: message.turn,
            seq: message.seq,
            kind: message.kind,
            subtype: message.subtype,
            content: message.content,
            parent_tool_use_id: message.parent_tool_use_id,
            at: message.at,
        }
    }
}
