//! `authenticate`: opens an agent's session. The only team tool that needs none.

use rmcp::model::JsonObject;
use shikiri_app::App;
use shikiri_model::key::SecretToken;
use shikiri_model::team::{SessionPurpose, SessionRequirement};
use shikiri_teams::{AgentLoginRequest, TeamError};

use super::team_tool::{RegisteredTeamTool, TeamToolDefinition, ToolAnswer, ToolEffect};
use super::tool_arguments::{ToolArguments, read_arguments, tool_arguments};
use super::tool_schema::ToolFieldKind::{Choice, Text};
use super::tool_schema::{optional, required};
use super::views;
use crate::mcp_caller::{McpCaller, ProtocolEra};
use crate::tool_visibility;

tool_arguments! {
    struct Authenticate {
        agent_id: String = "Who you are",
        passkey: String = "What proves it",
        project_id: String = "Where you work",
        purpose: Option<SessionPurpose> = "What the session is for",
    }
}

pub(super) const AUTHENTICATE: RegisteredTeamTool = RegisteredTeamTool {
    definition: TeamToolDefinition {
        name: "authenticate",
        title: "Log in as an agent",
        description: "\
            Opens a session in a project and answers with its session_token, to be given with \
            every other team tool. A task session works: get_next_action, do the work, \
            report_completed; it cannot talk, and hands what is to be said to \
            delegate_to_chat_session. A chat session talks: get_pending_messages, then answer each \
            thing in it. Without a purpose, what waits for you decides, tasks first. You may have \
            a session of each purpose at once.",
        requires: SessionRequirement::Nothing,
        answer: &[
            required("session_token", Text, "Shown once"),
            required("purpose", Choice(&["task", "chat"]), ""),
            required("expires_at", Text, "RFC 3339"),
            optional("next_step", Text, "What to call now"),
        ],
        effect: ToolEffect::Writes,
    },
    arguments: Authenticate::FIELDS,
    call: |tool, app, caller, arguments| Box::pin(authenticate(tool, app, caller, arguments)),
};

async fn authenticate(
    tool: &RegisteredTeamTool,
    app: &App,
    caller: &McpCaller,
    arguments: &JsonObject,
) -> Result<ToolAnswer, TeamError> {
    // Some clients give their token with every call, also with the one that needs none.
    let mut arguments = arguments.clone();
    arguments.remove("session_token");
    let wanted: Authenticate = read_arguments(&tool.fields(), &arguments)?;
    let login = AgentLoginRequest {
        agent_id: wanted.agent_id,
        passkey: SecretToken::from_caller(&wanted.passkey),
        project_id: wanted.project_id,
        purpose: wanted.purpose,
        by: throttled_principal(caller),
    };
    let connection = &caller.connection;
    let (session, token) = app.teams.authenticate(&connection.tenant, login).await?;
    // The connection's list of tools follows its sessions. If this fails, the login still counts.
    if caller.era == ProtocolEra::Legacy
        && let Err(error) = app
            .tenancy
            .note_on_connection(connection, tool_visibility::session_opened_event(&session.id))
            .await
    {
        tracing::debug!(%error, "a login was not noted on its connection");
    }
    Ok(views::login(&session, &token).into())
}

/// Against whom wrong passkeys count: the key, or the agent whose session it is, however many
/// sessions it opens.
fn throttled_principal(caller: &McpCaller) -> String {
    match &caller.session {
        Some(own) => format!("agent {}", own.session.place.agent),
        None => format!("key {}", caller.connection.principal),
    }
}
