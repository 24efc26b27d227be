//! `send_message`: one message for which no answer is awaited.

use serde_json::json;
use shikiri_model::team::SessionRequirement;
use shikiri_teams::{AgentSessionHandle, TeamError};

use super::common_fields::{CARRIED_OUT, CONTENT, MESSAGE_ID, TARGET_AGENT};
use super::team_tool::{SessionTool, TeamToolDefinition, ToolAnswer, ToolEffect};
use super::tool_arguments::tool_arguments;

tool_arguments! {
    pub(super) struct SendMessage {
        target_agent_id: String = TARGET_AGENT,
        content: String = CONTENT,
        delegation_id: Option<String> = CARRIED_OUT,
    }
}

impl SessionTool for SendMessage {
    const DEFINITION: TeamToolDefinition = TeamToolDefinition {
        name: "send_message",
        title: "Send a message",
        description: "\
            For chat sessions. One message to an agent or a person, for which no answer is waited \
            for. With a delegation_id, that delegation is completed by it.",
        requires: SessionRequirement::ChatSession,
        answer: &[MESSAGE_ID],
        effect: ToolEffect::Writes,
    };

    async fn call(self, session: &mut AgentSessionHandle) -> Result<ToolAnswer, TeamError> {
        let delegation = self.delegation_id.as_deref();
        let sent = session.send_message(&self.target_agent_id, &self.content, delegation).await?;
        Ok(json!({ "message_id": sent }).into())
    }
}
