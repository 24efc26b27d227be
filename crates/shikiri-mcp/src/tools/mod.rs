//! Our own tools, resources and prompts: the runs behind the agents, and teams.

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
use shikiri_app::{App, AppError};

use crate::catalogue::{Extras, object, run_schema};
use crate::fault::Fault;
use crate::run_view::tool_error;
use crate::server::ICON;

/// What the server always offers, with what this one adds.
pub(crate) fn with_ours(app: &App, mut extras: Extras) -> Extras {
    extras.tools.extend([
        Arc::new(lane_info::LaneInfoTool(app.clone())) as _,
        Arc::new(run_agent::RunAgent(app.clone())) as _,
        Arc::new(run_answer::RunAnswer(app.clone())) as _,
        Arc::new(run_cancel::RunCancel(app.clone())) as _,
        Arc::new(run_list::RunList(app.clone())) as _,
        Arc::new(run_status::RunStatusTool(app.clone())) as _,
        Arc::new(run_update::RunUpdate(app.clone())) as _,
        Arc::new(run_wait::RunWait) as _,
    ]);
    extras.tools.extend(team::tools(app));
    extras.resources.push(Arc::new(resources::Runs(app.clone())));
    extras.resources.push(team::resources(app));
    let agents = app.agents().map(|agent| Arc::new(prompts::AgentPrompt(Arc::clone(agent))) as _);
    extras.prompts.extend(agents);
    extras
}

/// A tool about runs: all of them answer with the run's status.
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

/// What the caller may mend is the tool's answer; what it cannot is the protocol's.
fn refused(error: AppError) -> Result<Value, Fault> {
    let code = match &error {
        AppError::NotFound { kind: "run", .. } => "run_not_found",
        AppError::NotFound { .. } => "question_not_found",
        AppError::Invalid { .. } => "invalid_argument",
        AppError::NotNow(_) => "not_now",
        AppError::Inactive { .. } => "tenant_inactive",
        _ => return Err(error.into()),
    };
    Ok(tool_error(code, &error.to_string()))
}
