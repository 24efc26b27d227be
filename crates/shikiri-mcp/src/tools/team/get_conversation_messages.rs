//! `get_conversation_messages`: what was said in a conversation.

use serde_json::Value;
use shikiri_model::team::{SessionRequirement, TeamRefusal};
use shikiri_teams::{AgentSessionHandle, TeamError};

use super::common_fields::{STATE, to_json};
use super::team_tool::{SessionTool, TeamToolDefinition, ToolAnswer, ToolEffect};
use super::tool_arguments::{WaitSeconds, invalid_argument, tool_arguments};
use super::tool_schema::ToolFieldKind::{Flag, List};
use super::tool_schema::required;

tool_arguments! {
    pub(super) struct GetConversationMessages {
        conversation_id: String = "",
        after: Option<Value> = "Only what follows this message: its message_id or its seq",
        wait_seconds: Option<WaitSeconds> = WaitSeconds::DESCRIPTION,
    }
}

impl SessionTool for GetConversationMessages {
    const DEFINITION: TeamToolDefinition = TeamToolDefinition {
        name: "get_conversation_messages",
        title: "Read a conversation",
        description: "What was said in a conversation of yours, now or after it ended.",
        requires: SessionRequirement::Session,
        answer: &[required("messages", List, ""), STATE, required("your_turn", Flag, "")],
        effect: ToolEffect::Reads,
    };

    async fn call(self, session: &mut AgentSessionHandle) -> Result<ToolAnswer, TeamError> {
        let after = self.after.map(message_position).transpose()?;
        let wait = WaitSeconds::duration(self.wait_seconds)?;
        let conversation = &self.conversation_id;
        let read = session.conversation_messages(conversation, after.as_deref(), wait).await?;
        Ok(to_json(&read)?.into())
    }
}

/// A message's id or its number.
fn message_position(after: Value) -> Result<String, TeamRefusal> {
    match after {
        Value::String(id) => Ok(id),
        Value::Number(seq) if seq.is_u64() => Ok(seq.to_string()),
        _ => Err(invalid_argument("after: must be a message_id or a seq")),
    }
}
