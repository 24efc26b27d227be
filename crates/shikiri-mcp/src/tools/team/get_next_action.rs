//! `get_next_action`: what a task session is to do now.

use shikiri_model::team::SessionRequirement;
use shikiri_teams::{AgentSessionHandle, TeamError};

use super::team_tool::{SessionTool, TeamToolDefinition, ToolAnswer, ToolEffect};
use super::tool_arguments::{WaitSeconds, tool_arguments};
use super::tool_schema::ToolFieldKind::{Any, Choice, List, Object, Text};
use super::tool_schema::{optional, required};
use super::views;

tool_arguments! {
    pub(super) struct GetNextAction {
        wait_seconds: Option<WaitSeconds> = WaitSeconds::DESCRIPTION,
    }
}

impl SessionTool for GetNextAction {
    const DEFINITION: TeamToolDefinition = TeamToolDefinition {
        name: "get_next_action",
        title: "What to do next",
        description: "For task sessions. Tells what to do now. `work`: do the task, then call \
            report_completed. `wait_for_delegation`: your chat session is still talking; call this \
            again with wait_seconds 30, do not ask in other ways. `delegation_result`: what became \
            of a delegation, with the messages; go on with your task. `none`: nothing to do; end, \
            or wait with wait_seconds.",
        requires: SessionRequirement::TaskSession,
        answer: &[
            required(
                "action",
                Choice(&["work", "wait_for_delegation", "delegation_result", "none"]),
                "",
            ),
            optional("task", Object, "With work"),
            optional("delegation_id", Text, "With a delegation"),
            optional("status", Text, "How the delegation ended: completed or failed"),
            optional("result", Any, "What came of it"),
            optional("messages", List, "What was said"),
        ],
        effect: ToolEffect::WritesOnce,
    };

    async fn call(self, session: &mut AgentSessionHandle) -> Result<ToolAnswer, TeamError> {
        let wait = WaitSeconds::duration(self.wait_seconds)?;
        Ok(views::action(session.next_action(wait).await?).into())
    }
}
