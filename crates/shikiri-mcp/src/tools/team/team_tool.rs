//! The frame of every team tool: its definition for models, whose session calls it, and the check
//! of permission and arguments before it runs.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use rmcp::model::{Icon, JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};
use shikiri_app::App;
use shikiri_model::key::SecretToken;
use shikiri_model::team::{CallerSession, RefusalCode, SessionRequirement, ToolPermission};
use shikiri_runtime::AppError;
use shikiri_teams::{AgentSessionHandle, TeamError};

use super::common_fields::SESSION_TOKEN;
use super::tool_arguments::{ArgumentField, ToolArguments, invalid_argument, read_arguments};
use super::tool_schema::{ToolField, object_schema};
use crate::catalogue::BuiltinTool;
use crate::mcp_caller::McpCaller;
use crate::rpc_error::RpcError;
use crate::run_view::{structured_answer, tool_error};
use crate::server::ICON;

/// A tool as models and the permission check see it.
pub(super) struct TeamToolDefinition {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) description: &'static str,
    pub(super) requires: SessionRequirement,
    pub(super) answer: &'static [ToolField],
    pub(super) effect: ToolEffect,
}

/// What a call changes, for the hints to clients.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ToolEffect {
    Reads,
    Writes,
    /// The same call again changes nothing, or is refused.
    WritesOnce,
}

/// A tool for agents that have logged in. The implementing type is the tool's arguments. It runs
/// only after the caller's session was found to fulfil `requires`.
pub(super) trait SessionTool: ToolArguments + Send + 'static {
    const DEFINITION: TeamToolDefinition;

    fn call(
        self,
        session: &mut AgentSessionHandle,
    ) -> impl Future<Output = Result<ToolAnswer, TeamError>> + Send;
}

/// A `CallToolResult` as JSON.
pub(super) struct ToolAnswer(pub(super) Value);

impl From<Value> for ToolAnswer {
    /// The same for people and for programs.
    fn from(value: Value) -> Self {
        Self(structured_answer(value))
    }
}

/// A row of the registration.
pub(super) struct RegisteredTeamTool {
    pub(super) definition: TeamToolDefinition,
    /// Besides the session's token.
    pub(super) arguments: &'static [ArgumentField],
    pub(super) call: TeamToolCall,
}

pub(super) type TeamToolCall = for<'a> fn(
    &'a RegisteredTeamTool,
    &'a App,
    &'a McpCaller,
    &'a JsonObject,
) -> BoxFuture<'a, Result<ToolAnswer, TeamError>>;

impl RegisteredTeamTool {
    pub(super) const fn for_sessions<T: SessionTool>() -> Self {
        Self {
            definition: T::DEFINITION,
            arguments: T::FIELDS,
            call: |tool, app, caller, arguments| {
                Box::pin(call_session_tool::<T>(tool, app, caller, arguments))
            },
        }
    }

    pub(super) fn permission(&self) -> ToolPermission {
        ToolPermission { tool: self.definition.name, requires: self.definition.requires }
    }

    pub(super) fn fields(&self) -> Vec<&ArgumentField> {
        let has_token = self.definition.requires != SessionRequirement::Nothing;
        let token: Option<&ArgumentField> = has_token.then_some(&SESSION_TOKEN);
        token.into_iter().chain(self.arguments).collect()
    }

    pub(super) fn tool(&self) -> Tool {
        let TeamToolDefinition { name, title, description, answer, effect, .. } = &self.definition;
        let fields = self.fields();
        let mut input = object_schema(fields.iter().map(|argument| &argument.field));
        input.insert("additionalProperties".to_owned(), json!(false));
        let mut tool = Tool::new(*name, *description, Arc::new(input));
        tool.title = Some((*title).to_owned());
        tool.output_schema = Some(Arc::new(object_schema(answer.iter())));
        let hints = ToolAnnotations::with_title(*title).open_world(false).destructive(false);
        let hints = hints.idempotent(*effect != ToolEffect::Writes);
        tool.annotations = Some(hints.read_only(*effect == ToolEffect::Reads));
        tool.icons = Some(vec![Icon::new(ICON).with_mime_type("image/svg+xml")]);
        tool
    }
}

async fn call_session_tool<T: SessionTool>(
    tool: &RegisteredTeamTool,
    app: &App,
    caller: &McpCaller,
    arguments: &JsonObject,
) -> Result<ToolAnswer, TeamError> {
    // A caller without permission is told that, and nothing about the arguments.
    let token = find_session_token(caller, tool.permission(), arguments)?;
    let session = app.teams.enter_session(&token, tool.permission()).await?;
    let arguments = read_arguments::<T>(&tool.fields(), arguments)?;
    let mut session = session.until(caller.cancel_token.clone());
    let answer = arguments.call(&mut session).await;
    caller.receipts.add(session.take_receipt());
    answer
}

/// The token in the arguments wins over the header's, within one tenant.
fn find_session_token(
    caller: &McpCaller,
    permission: ToolPermission,
    arguments: &JsonObject,
) -> Result<SecretToken, TeamError> {
    let refused = |message: &str| Err(RefusalCode::NotAuthenticated.because(message).into());
    match arguments.get("session_token") {
        None | Some(Value::Null) => {}
        Some(Value::String(token)) => {
            let token = SecretToken::from_caller(token);
            if token.session_tenant().as_ref() != Some(&caller.connection.tenant) {
                return refused("this session_token opens no session here: call authenticate");
            }
            return Ok(token);
        }
        Some(_) => return Err(invalid_argument("session_token: must be a string").into()),
    }
    match &caller.session {
        Some(session) => Ok(session.token.clone()),
        None => {
            permission.check(CallerSession::Missing)?;
            refused("call authenticate first")
        }
    }
}

/// A registered tool on an app.
pub(super) struct TeamTool {
    pub(super) app: App,
    pub(super) registered: &'static RegisteredTeamTool,
}

#[async_trait]
impl BuiltinTool for TeamTool {
    fn definition(&self) -> Tool {
        self.registered.tool()
    }

    fn permission(&self) -> Option<ToolPermission> {
        Some(self.registered.permission())
    }

    async fn call(&self, caller: &McpCaller, arguments: &JsonObject) -> Result<Value, RpcError> {
        let call = self.registered.call;
        match call(self.registered, &self.app, caller, arguments).await {
            Ok(ToolAnswer(answer)) => Ok(answer),
            Err(error) => refused(error),
        }
    }
}

/// What the calling model can correct is the tool's answer; other errors are the protocol's.
fn refused(error: TeamError) -> Result<Value, RpcError> {
    match error {
        TeamError::Refused(refusal) => Ok(tool_error(refusal.code.as_str(), &refusal.message)),
        TeamError::App(error @ AppError::Invalid { .. }) => {
            Ok(tool_error(RefusalCode::InvalidArgument.as_str(), &error.to_string()))
        }
        TeamError::App(error) => Err(error.into()),
    }
}
