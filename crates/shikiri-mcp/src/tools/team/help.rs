//! `help`: the tools that the session may use.

use shikiri_model::team::{CallerSession, SessionRequirement};
use shikiri_teams::{AgentSessionHandle, TeamError};

use super::team_tool::{
    RegisteredTeamTool, SessionTool, TeamToolDefinition, ToolAnswer, ToolEffect,
};
use super::tool_arguments::tool_arguments;
use super::tool_schema::ToolFieldKind::{List, Text};
use super::tool_schema::{optional, required};
use super::{TEAM_TOOLS, views};

tool_arguments! {
    pub(super) struct Help {}
}

impl SessionTool for Help {
    const DEFINITION: TeamToolDefinition = TeamToolDefinition {
        name: "help",
        title: "What can I do?",
        description: "Lists the tools that your session may use, and how to go about it.",
        requires: SessionRequirement::Session,
        answer: &[required("tools", List, "Names of tools"), optional("next_step", Text, "")],
        effect: ToolEffect::Reads,
    };

    async fn call(self, session: &mut AgentSessionHandle) -> Result<ToolAnswer, TeamError> {
        let caller = CallerSession::Session(session.session.purpose);
        let permissions = TEAM_TOOLS.iter().map(RegisteredTeamTool::permission);
        let names: Vec<_> =
            permissions.filter(|one| one.allows(caller)).map(|one| one.tool).collect();
        Ok(views::help(&session.session, &names).into())
    }
}
