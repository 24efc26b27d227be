//! `send_conversation_message`: the next message of a conversation.

use shikiri_model::team::SessionRequirement;
use shikiri_teams::{AgentSessionHandle, TeamError};

use super::common_fields::{CONTENT, SENT_MESSAGE, to_json};
use super::team_tool::{SessionTool, TeamToolDefinition, ToolAnswer, ToolEffect};
use super::tool_arguments::tool_arguments;

tool_arguments! {
    pub(super) struct SendConversationMessage {
        conversation_id: String = "",
        content: String = CONTENT,
    }
}

impl SessionTool for SendConversationMessage {
    const DEFINITION: TeamToolDefinition = TeamToolDefinition {
        name: "send_conversation_message",
        title: "Say the next message",
        description: "\
            For chat sessions. Your message in a conversation, when it is your turn. Then wait for \
            the other side with get_pending_messages.",
        requires: SessionRequirement::ChatSession,
        answer: SENT_MESSAGE,
        effect: ToolEffect::Writes,
    };

    async fn call(self, session: &mut AgentSessionHandle) -> Result<ToolAnswer, TeamError> {
        let sent = session.send_dialogue_message(&self.conversation_id, &self.content).await?;
        Ok(to_json(&sent)?.into())
    }
}
