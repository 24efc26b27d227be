//! `respond_chat`: answers a message that came outside a conversation.

use serde_json::json;
use shikiri_model::team::SessionRequirement;
use shikiri_teams::{AgentSessionHandle, TeamError};

use super::common_fields::{CONTENT, MESSAGE_ID};
use super::team_tool::{SessionTool, TeamToolDefinition, ToolAnswer, ToolEffect};
use super::tool_arguments::tool_arguments;

tool_arguments! {
    pub(super) struct RespondChat {
        message_id: Option<String> = "Which one; the last that came, if left out",
        content: String = CONTENT,
    }
}

impl SessionTool for RespondChat {
    const DEFINITION: TeamToolDefinition = TeamToolDefinition {
        name: "respond_chat",
        title: "Answer a message",
        description: "\
            For chat sessions. Answers a message that came outside a conversation, also a \
            person's.",
        requires: SessionRequirement::ChatSession,
        answer: &[MESSAGE_ID],
        effect: ToolEffect::Writes,
    };

    async fn call(self, session: &mut AgentSessionHandle) -> Result<ToolAnswer, TeamError> {
        let sent = session.respond_chat(self.message_id.as_deref(), &self.content).await?;
        Ok(json!({ "message_id": sent }).into())
    }
}
