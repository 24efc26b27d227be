//! `delegate_to_chat_session`: a task session has its chat session talk to another agent.

use shikiri_model::team::SessionRequirement;
use shikiri_teams::{AgentSessionHandle, TeamError};

use super::common_fields::{DELEGATION_ID, TARGET_AGENT};
use super::team_tool::{SessionTool, TeamToolDefinition, ToolAnswer, ToolEffect};
use super::tool_arguments::tool_arguments;
use super::tool_schema::ToolFieldKind::{Flag, Text};
use super::tool_schema::required;
use super::views;

tool_arguments! {
    pub(super) struct DelegateToChatSession {
        target_agent_id: String = TARGET_AGENT,
        purpose: String = "What the talk is for, as you would tell a colleague: what to say \
            or ask, how many rounds, what to bring back",
        context: Option<String> = "What your chat session should know besides",
    }
}

impl SessionTool for DelegateToChatSession {
    const DEFINITION: TeamToolDefinition = TeamToolDefinition {
        name: "delegate_to_chat_session",
        title: "Have your chat session talk",
        description: "\
            For task sessions, which cannot send messages or converse. Says whom to talk to and \
            what for; your own chat session does it, in the way that fits. Answers at once. Then \
            call get_next_action with wait_seconds 30 until it gives the result.",
        requires: SessionRequirement::TaskSession,
        answer: &[required("success", Flag, ""), DELEGATION_ID, required("message", Text, "")],
        effect: ToolEffect::Writes,
    };

    async fn call(self, session: &mut AgentSessionHandle) -> Result<ToolAnswer, TeamError> {
        let delegation =
            session.delegate(&self.target_agent_id, &self.purpose, self.context).await?;
        Ok(views::delegated(&delegation).into())
    }
}
