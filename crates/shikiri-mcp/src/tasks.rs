//! The Tasks extension: a task is a run, seen by the principal that called it.

use serde_json::{Value, json};
use shikiri_app::App;
use shikiri_model::ids::QuestionId;
use shikiri_model::run::{Run, RunStatus};
use shikiri_runtime::AppError;
use shikiri_runtime::run::RunView;

use crate::mcp_caller::McpCaller;
use crate::message::RpcRequest;
use crate::rpc_error::RpcError;
use crate::run_follower::parse_run;
use crate::run_questions::{QuestionEventData, unsupported};
use crate::run_view::RunEnding;
use crate::server::McpService;

/// How often a client should look.
const POLL_MS: u64 = 1_000;

/// What a client has to declare.
pub(crate) fn required() -> Value {
    json!({ "extensions": { rmcp::model::TASKS_EXTENSION_ID: {} } })
}

/// The answer to a call: the run is durable, and its id is the task's.
pub(crate) fn created(view: &RunView, app: &App) -> Value {
    let mut task = described(view, app);
    task["resultType"] = json!("task");
    task
}

pub(crate) async fn get(
    mcp: &McpService,
    caller: &McpCaller,
    request: &RpcRequest,
) -> Result<Value, RpcError> {
    let view = find(mcp, caller, request).await?;
    let view = answer_unanswerable(mcp, view).await?;
    Ok(detailed(&view, &mcp.app))
}

pub(crate) async fn update(
    mcp: &McpService,
    caller: &McpCaller,
    request: &RpcRequest,
) -> Result<Value, RpcError> {
    let view = find(mcp, caller, request).await?;
    let responses = match request.params.get("inputResponses") {
        Some(Value::Object(responses)) => responses,
        _ => return Err(RpcError::params("inputResponses: must be an object")),
    };
    let by_id = |id: &QuestionId| responses.get(id.as_str());
    let answers = view.run.questions.iter().filter_map(|q| Some((&q.id, by_id(&q.id)?)));
    mcp.answer_questions(&view.run, answers).await?;
    Ok(json!({}))
}

pub(crate) async fn cancel(
    mcp: &McpService,
    caller: &McpCaller,
    request: &RpcRequest,
) -> Result<Value, RpcError> {
    let view = find(mcp, caller, request).await?;
    match mcp.app.runtime.cancel_run(&view.run.tenant, &view.run.id).await {
        // What has ended needs no stopping.
        Ok(_) | Err(AppError::NotNow(_)) => Ok(json!({})),
        Err(error) => Err(error.into()),
    }
}

async fn find(
    mcp: &McpService,
    caller: &McpCaller,
    request: &RpcRequest,
) -> Result<RunView, RpcError> {
    if !caller.has_tasks() {
        return Err(RpcError::capability(&required()));
    }
    let id = request.text("taskId")?;
    let missing = || RpcError::params(format!("there is no task {id:?}"));
    let run = parse_run(id).map_err(|_| missing())?;
    let view = match mcp.app.runtime.run(&caller.connection.tenant, &run).await {
        Ok(view) => view,
        Err(AppError::NotFound { .. }) => return Err(missing()),
        Err(error) => return Err(error.into()),
    };
    if is_task_owner(&view, caller) { Ok(view) } else { Err(missing()) }
}

/// Only the caller that started it has the task; others of the tenant can look at the run.
pub(crate) fn is_task_owner(view: &RunView, caller: &McpCaller) -> bool {
    let origin = view.run.origin.as_ref();
    origin.is_some_and(|origin| origin["principal"] == json!(caller.connection.principal))
}

/// A caller that could not be asked has not agreed. What a later request says it can do changes
/// nothing: a caller that looks must not decide.
async fn answer_unanswerable(mcp: &McpService, view: RunView) -> Result<RunView, RpcError> {
    let run = &view.run;
    let mut changed = false;
    let cannot = run.origin.as_ref().map(|origin| origin["cannot_answer"].clone());
    let cannot = cannot.as_ref().and_then(Value::as_array).cloned().unwrap_or_default();
    for question in run.questions.iter().filter(|q| cannot.contains(&json!(q.kind))) {
        let answer = unsupported(question.kind);
        match mcp.app.runtime.answer_run(&run.tenant, &run.id, &question.id, answer).await {
            Ok(_) => changed = true,
            Err(AppError::NotFound { .. } | AppError::NotNow(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    if changed { Ok(mcp.app.runtime.run(&run.tenant, &run.id).await?) } else { Ok(view) }
}

/// The task with what its state brings along.
pub(crate) fn detailed(view: &RunView, app: &App) -> Value {
    let run = &view.run;
    let mut task = described(view, app);
    if run.status == RunStatus::Cancelled {
        return task;
    }
    match RunEnding::of(run).map(|ending| ending.tool_result(&run.id, &run.agent)) {
        Some(Ok(result)) => task["result"] = result,
        Some(Err(fault)) => {
            task["status"] = json!("failed");
            task["error"] = fault.to_json();
        }
        None if run.questions.is_empty() => {}
        None => task["inputRequests"] = input_requests(run),
    }
    task
}

/// By the questions' ids: a key must never come again while a task lives, as an agent's names may.
fn input_requests(run: &Run) -> Value {
    let asked =
        run.questions.iter().map(|question| (&question.id, QuestionEventData::from(question)));
    asked.map(|(id, asked)| (id.to_string(), asked.input_request())).collect()
}

fn described(view: &RunView, app: &App) -> Value {
    let run = &view.run;
    let status =
        match run.status {
            RunStatus::Cancelled => "cancelled",
            // A tool that failed has completed; what is a failure of ours is found by the ending.
            RunStatus::Completed | RunStatus::Failed => "completed",
            RunStatus::Queued | RunStatus::Running | RunStatus::Waiting => {
                if run.questions.is_empty() { "working" } else { "input_required" }
            }
        };
    let ttl = u64::try_from(app.options().runtime.retention.as_millis()).unwrap_or(u64::MAX);
    let mut task = json!({
        "taskId": run.id,
        "status": status,
        "createdAt": view.created_at,
        "lastUpdatedAt": view.updated_at,
        "ttlMs": ttl,
        "pollIntervalMs": POLL_MS,
    });
    if let Some(message) = view.progress.as_ref().and_then(|note| note["message"].as_str()) {
        task["statusMessage"] = json!(message);
    }
    // The protocol has no progress for tasks: for hosts that know where to look.
    if let Some(note) = &view.progress {
        let progress = json!({ "progress": note["progress"], "total": note["total"] });
        task["_meta"] = json!({ "shikiri/progress": progress });
    }
    task
}
