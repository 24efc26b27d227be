//! `respond_conversation_message`: the answer to an invitation or a message of a conversation.

use shikiri_model::team::SessionRequirement;
use shikiri_teams::{AgentSessionHandle, TeamError};

use super::common_fields::{CONTENT, SENT_MESSAGE, to_json};
use super::team_tool::{SessionTool, TeamToolDefinition, ToolAnswer, ToolEffect};
use super::tool_arguments::tool_arguments;

tool_arguments! {
    pub(super) struct RespondConversationMessage {
        conversation_id: String = "",
        content: String = CONTENT,
    }
}

impl SessionTool for RespondConversationMessage {
    const DEFINITION: TeamToolDefinition = TeamToolDefinition {
        name: "respond_conversation_message",
        title: "Answer in a conversation",
        description: "\
            For chat sessions. Your answer to an invitation or a message of a conversation, when \
            it is your turn. Then wait for the other side with get_pending_messages.",
        requires: SessionRequirement::ChatSession,
        answer: SENT_MESSAGE,
        effect: ToolEffect::Writes,
    };

    async fn call(self, session: &mut AgentSessionHandle) -> Result<ToolAnswer, TeamError> {
        let sent = session.send_dialogue_message(&self.conversation_id, &self.content).await?;
        Ok(to_json(&sent)?.into())
    }
}
