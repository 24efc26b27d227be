//! `get_delegation`: how far a delegation is.

use shikiri_model::team::SessionRequirement;
use shikiri_teams::{AgentSessionHandle, TeamError};

use super::common_fields::DELEGATION;
use super::team_tool::{SessionTool, TeamToolDefinition, ToolAnswer, ToolEffect};
use super::tool_arguments::tool_arguments;
use super::views;

tool_arguments! {
    pub(super) struct GetDelegation {
        delegation_id: String = "",
    }
}

impl SessionTool for GetDelegation {
    const DEFINITION: TeamToolDefinition = TeamToolDefinition {
        name: "get_delegation",
        title: "Look at a delegation",
        description: "\
            Tells how far a delegation of yours is, and its result. To wait for one, call \
            get_next_action instead.",
        requires: SessionRequirement::Session,
        answer: DELEGATION,
        effect: ToolEffect::Reads,
    };

    async fn call(self, session: &mut AgentSessionHandle) -> Result<ToolAnswer, TeamError> {
        Ok(views::delegation(&session.delegation(&self.delegation_id).await?).into())
    }
}
