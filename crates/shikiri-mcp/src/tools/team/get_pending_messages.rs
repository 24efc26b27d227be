//! `get_pending_messages`: everything that waits for a chat session.

use shikiri_model::team::SessionRequirement;
use shikiri_teams::{AgentSessionHandle, TeamError};

use super::common_fields::to_json;
use super::team_tool::{SessionTool, TeamToolDefinition, ToolAnswer, ToolEffect};
use super::tool_arguments::{WaitSeconds, tool_arguments};
use super::tool_schema::ToolFieldKind::List;
use super::tool_schema::required;

tool_arguments! {
    pub(super) struct GetPendingMessages {
        wait_seconds: Option<WaitSeconds> = WaitSeconds::DESCRIPTION,
    }
}

impl SessionTool for GetPendingMessages {
    const DEFINITION: TeamToolDefinition = TeamToolDefinition {
        name: "get_pending_messages",
        title: "What has come",
        description: "\
            For chat sessions. Everything that waits for you, each thing once. pending_messages: \
            one with a conversation_id is your turn there, so answer with \
            send_conversation_message; one without is answered with respond_chat; one with notice is the server's and is not \
            answered. \
            pending_delegations: yours to carry out now, by start_conversation if several \
            exchanges are wanted, by send_message for a notice, with the delegation_id. \
            invitations: answer with respond_conversation_message. ended_conversations: nothing \
            more can be said there; told_before marks one that an earlier answer told, which you \
            may have missed. Call it again with wait_seconds 30 after you have dealt with \
            everything, until nothing comes any more and no conversation of yours is open.",
        requires: SessionRequirement::ChatSession,
        answer: &[
            required(
                "pending_messages",
                List,
                "message_id, from_agent_id, content, conversation_id?, notice?",
            ),
            required(
                "pending_delegations",
                List,
                "delegation_id, target_agent_id, purpose, context",
            ),
            required("invitations", List, "conversation_id, from_agent_id, initial_message"),
            required("ended_conversations", List, "conversation_id, reason, told_before?"),
        ],
        effect: ToolEffect::Writes,
    };

    async fn call(self, session: &mut AgentSessionHandle) -> Result<ToolAnswer, TeamError> {
        let wait = WaitSeconds::duration(self.wait_seconds)?;
        Ok(to_json(&session.pending(wait).await?)?.into())
    }
}
