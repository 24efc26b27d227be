//! `end_conversation`: ends a conversation, also out of turn.

use serde_json::json;
use shikiri_model::team::{DialogueState, SessionRequirement};
use shikiri_teams::{AgentSessionHandle, TeamError};

use super::common_fields::STATE;
use super::team_tool::{SessionTool, TeamToolDefinition, ToolAnswer, ToolEffect};
use super::tool_arguments::tool_arguments;
use super::tool_schema::ToolFieldKind::Text;
use super::tool_schema::required;

tool_arguments! {
    pub(super) struct EndConversation {
        conversation_id: String = "",
        reason: Option<String> = "Why, in your words",
    }
}

impl SessionTool for EndConversation {
    const DEFINITION: TeamToolDefinition = TeamToolDefinition {
        name: "end_conversation",
        title: "End a conversation",
        description: "\
            For chat sessions. Ends a conversation of yours; it need not be your turn. Both sides \
            are told once. If the server has ended it already, the answer is that end.",
        requires: SessionRequirement::ChatSession,
        answer: &[STATE, required("end_reason", Text, "")],
        effect: ToolEffect::WritesOnce,
    };

    async fn call(self, session: &mut AgentSessionHandle) -> Result<ToolAnswer, TeamError> {
        let reason = session.end_conversation(&self.conversation_id, self.reason).await?;
        let ended = json!({
            "conversation_id": self.conversation_id,
            "state": DialogueState::Ended,
            "end_reason": reason,
        });
        Ok(ended.into())
    }
}
