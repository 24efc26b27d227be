//! The tools, resources and prompts that every server has: of runs, lanes and teams.

mod arguments;
mod lane_info;
mod prompts;
mod resources;
mod run_agent;
mod run_answer;
mod run_cancel;
mod run_list;
mod run_status;
mod run_update;
mod run_wait;
mod team;

use std::sync::Arc;

use rmcp::model::{Icon, Tool, ToolAnnotations};
use serde_json::Value;
use shikiri_app::App;
use shikiri_model::documented_enum;
use shikiri_runtime::AppError;

use crate::catalogue::{McpExtras, object, run_schema};
use crate::rpc_error::RpcError;
use crate::run_view::tool_error;
use crate::server::ICON;

documented_enum! {
    /// Why a tool about runs was refused. The comments are the reference page of errors.
    pub enum RunToolErrorCode {
        /// The tenant has no such run.
        ///
        /// Take the id from the call that started it, or from `run_list`.
        RunNotFound = "run_not_found",
        /// The tenant has no such conversation.
        ///
        /// `shikiri conversations list`
        ConversationNotFound = "conversation_not_found",
        /// The run has no such open question: it was answered, is over, or never was.
        ///
        /// Read the open questions with `run_status`.
        QuestionNotFound = "question_not_found",
        /// The question is for a person, and the agent does not let a tool answer it.
        ///
        /// Ask a person to answer: `shikiri runs answer RUN`, `POST /v1/tenants/{t}/runs/{r}/answers` with a key, or a client that can be asked (elicitation).
        PersonRequired = "person_required",
        /// The idempotency key belongs to a run that was asked for something else.
        ///
        /// Use a new key for a new run.
        IdempotencyConflict = "idempotency_conflict",
        /// What the call names is not there. The message says what.
        ///
        /// Correct the name.
        NotFound = "not_found",
        /// An argument is missing or wrong.
        ///
        /// Correct it. The message names it.
        InvalidArgument = "invalid_argument",
        /// The state of the run does not allow it, such as an answer to a run that has ended.
        ///
        /// Look at it with `run_status`.
        NotNow = "not_now",
        /// The tenant is inactive.
        ///
        /// An admin makes it active: `shikiri tenants set ID --status active`.
        TenantInactive = "tenant_inactive",
    }
}

/// Adds the built-in tools, resources and prompts to those of this server.
pub(crate) fn with_builtin_tools(app: &App, mut extras: McpExtras) -> McpExtras {
    extras.tools.extend([
        Arc::new(lane_info::LaneInfoTool(app.clone())) as _,
        Arc::new(run_agent::RunAgentTool(app.clone())) as _,
        Arc::new(run_answer::RunAnswerTool(app.clone())) as _,
        Arc::new(run_cancel::RunCancelTool(app.clone())) as _,
        Arc::new(run_list::RunListTool(app.clone())) as _,
        Arc::new(run_status::RunStatusTool(app.clone())) as _,
        Arc::new(run_update::RunUpdateTool(app.clone())) as _,
        Arc::new(run_wait::RunWaitTool) as _,
    ]);
    extras.tools.extend(team::tools(app));
    extras.resources.push(Arc::new(resources::RunResources(app.clone())));
    extras.resources.push(team::resources(app));
    let agents =
        app.runtime.agents().map(|agent| Arc::new(prompts::AgentPrompt(Arc::clone(agent))) as _);
    extras.prompts.extend(agents);
    extras
}

/// A tool about runs, which answers with the run's status.
fn run_tool(
    name: &'static str,
    title: &'static str,
    description: &'static str,
    input: Value,
    hints: ToolAnnotations,
) -> Tool {
    let mut tool = Tool::new(name, description, Arc::new(object(input)));
    tool.title = Some(title.to_owned());
    tool.output_schema = Some(Arc::new(object(run_schema())));
    tool.annotations = Some(hints);
    tool.icons = Some(vec![Icon::new(ICON).with_mime_type("image/svg+xml")]);
    tool
}

/// An error that the caller can correct is the tool's answer; others are the protocol's.
fn answer_or_refuse(outcome: Result<Value, AppError>) -> Result<Value, RpcError> {
    let error = match outcome {
        Ok(answer) => return Ok(answer),
        Err(error) => error,
    };
    let code = match &error {
        AppError::NotFound { kind: "run", .. } => RunToolErrorCode::RunNotFound,
        AppError::NotFound { kind: "conversation", .. } => RunToolErrorCode::ConversationNotFound,
        AppError::NotFound { kind: "open question", .. } => RunToolErrorCode::QuestionNotFound,
        AppError::NotFound { .. } => RunToolErrorCode::NotFound,
        AppError::Invalid { .. } => RunToolErrorCode::InvalidArgument,
        AppError::KeyReused { .. } => RunToolErrorCode::IdempotencyConflict,
        AppError::NotNow(_) => RunToolErrorCode::NotNow,
        AppError::Inactive { .. } => RunToolErrorCode::TenantInactive,
        _ => return Err(error.into()),
    };
    Ok(tool_error(code.as_str(), &error.to_string()))
}
