//! `/v1/tenants/{t}/runs`

use axum::extract::State;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use shikiri_app::run::{NewRun, RunView};
use shikiri_model::ids::{QuestionId, RunId};
use shikiri_model::record::Stored;
use shikiri_model::run::{Answer, AnswerAction, Question, QuestionKind, Run, RunError, RunStatus};
use shikiri_model::tenant::TenantStatus;
use shikiri_model::time::Timestamp;
use utoipa::{IntoParams, ToSchema};

use super::created;
use crate::access::{RunAccess, TenantAccess};
use crate::error::{Code, Problem};
use crate::json::Json;
use crate::openapi::{Failures, Guarded};
use crate::query::{Page, Paging, Query};
use crate::state::Shared;

/// One durable piece of agent work.
#[derive(Serialize, ToSchema)]
#[schema(as = Run)]
pub(crate) struct RunJson {
    #[schema(value_type = String)]
    id: RunId,
    /// The same as `id`.
    #[schema(value_type = String)]
    run_id: RunId,
    agent: String,
    input: Value,
    status: Status,
    /// How far it is, of `total`. Lists leave progress out.
    progress: Value,
    total: Value,
    message: Value,
    /// Open questions.
    questions: Vec<QuestionJson>,
    result: Option<Value>,
    error: Option<ErrorJson>,
    #[schema(value_type = Option<String>)]
    parent_run_id: Option<RunId>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    ended_at: Option<Timestamp>,
}

#[derive(Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = RunStatus)]
pub(crate) enum Status {
    Queued,
    Running,
    Waiting,
    Completed,
    Failed,
    Cancelled,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Question)]
struct QuestionJson {
    #[schema(value_type = String)]
    question_id: QuestionId,
    kind: Kind,
    message: String,
    /// What a good answer looks like.
    schema: Value,
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Timestamp>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = QuestionKind)]
enum Kind {
    Human,
    Model,
}

#[derive(Serialize, ToSchema)]
#[schema(as = RunError)]
struct ErrorJson {
    code: String,
    message: String,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StartRun {
    agent: String,
    /// What the agent gets; `{}` if left out.
    #[serde(default = "empty")]
    input: Value,
    /// A second start with the same key gives the first one's run.
    idempotency_key: Option<String>,
}

fn empty() -> Value {
    Value::Object(serde_json::Map::new())
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AnswerQuestion {
    #[schema(value_type = String)]
    question_id: QuestionId,
    #[serde(default)]
    action: Action,
    /// Needed to accept. `content` is another name for it.
    #[serde(alias = "content")]
    answer: Option<Value>,
}

#[derive(Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = AnswerAction)]
enum Action {
    #[default]
    Accept,
    Decline,
    Cancel,
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct RunsQuery {
    /// Only runs with this status.
    #[param(inline)]
    status: Option<Status>,
    /// At most this many items, 1 to 200.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

impl From<RunView> for RunJson {
    fn from(view: RunView) -> Self {
        let part = |name| view.progress.as_ref().and_then(|note| note.get(name)).cloned();
        let (progress, total, message) = (part("progress"), part("total"), part("message"));
        Self {
            progress: progress.unwrap_or_default(),
            total: total.unwrap_or_default(),
            message: message.unwrap_or_default(),
            ..run_json(view.run, view.created_at, view.updated_at)
        }
    }
}

impl From<Stored<Run>> for RunJson {
    fn from(stored: Stored<Run>) -> Self {
        run_json(stored.value, stored.created_at, stored.updated_at)
    }
}

fn run_json(run: Run, created_at: Timestamp, updated_at: Timestamp) -> RunJson {
    RunJson {
        id: run.id.clone(),
        run_id: run.id,
        agent: run.agent,
        input: run.input,
        status: run.status.into(),
        progress: Value::Null,
        total: Value::Null,
        message: Value::Null,
        questions: run.questions.into_iter().map(QuestionJson::from).collect(),
        result: run.result,
        error: run.error.map(|RunError { code, message }| ErrorJson { code, message }),
        parent_run_id: run.parent.map(|parent| parent.run),
        created_at,
        updated_at,
        ended_at: run.ended_at,
    }
}

impl From<Question> for QuestionJson {
    fn from(question: Question) -> Self {
        Self {
            question_id: question.id,
            kind: match question.kind {
                QuestionKind::Human => Kind::Human,
                QuestionKind::Model => Kind::Model,
            },
            message: question.message,
            schema: question.schema,
            expires_at: question.expires_at,
        }
    }
}

impl From<RunStatus> for Status {
    fn from(status: RunStatus) -> Self {
        match status {
            RunStatus::Queued => Self::Queued,
            RunStatus::Running => Self::Running,
            RunStatus::Waiting => Self::Waiting,
            RunStatus::Completed => Self::Completed,
            RunStatus::Failed => Self::Failed,
            RunStatus::Cancelled => Self::Cancelled,
        }
    }
}

impl From<Status> for RunStatus {
    fn from(status: Status) -> Self {
        match status {
            Status::Queued => Self::Queued,
            Status::Running => Self::Running,
            Status::Waiting => Self::Waiting,
            Status::Completed => Self::Completed,
            Status::Failed => Self::Failed,
            Status::Cancelled => Self::Cancelled,
        }
    }
}

/// Starts a run; it goes on whether or not anybody listens
#[utoipa::path(post, path = "/v1/tenants/{t}/runs", tag = "runs", params(("t" = String, Path)),
    request_body = StartRun,
    responses((status = 201, description = "The run", body = RunJson), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn start_run(
    access: TenantAccess,
    State(web): State<Shared>,
    Json(new): Json<StartRun>,
) -> Result<Response, Problem> {
    let tenant = access.tenant;
    if web.app.tenant(&tenant).await?.value.status == TenantStatus::Inactive {
        let detail = format!("tenant {tenant} is inactive: its admin can activate it");
        return Err(Problem::new(Code::TenantInactive, detail));
    }
    let StartRun { agent, input, idempotency_key } = new;
    let view = web.app.start_run(&tenant, NewRun { agent, input, idempotency_key }).await?;
    let location = format!("/v1/tenants/{tenant}/runs/{}", view.run.id);
    Ok(created(&location, &RunJson::from(view)))
}

/// Lists a tenant's runs, newest first
#[utoipa::path(get, path = "/v1/tenants/{t}/runs", tag = "runs",
    params(("t" = String, Path), RunsQuery),
    responses((status = 200, description = "A page of runs", body = Page<RunJson>), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn list_runs(
    access: TenantAccess,
    State(web): State<Shared>,
    Query(query): Query<RunsQuery>,
) -> Result<axum::Json<Page<RunJson>>, Problem> {
    let (after, limit) = Paging { limit: query.limit, cursor: query.cursor }.read()?;
    let status = query.status.map(RunStatus::from);
    Ok(axum::Json(Page::new(web.app.list_runs(&access.tenant, status, after, limit).await?)))
}

/// Shows a run
#[utoipa::path(get, path = "/v1/tenants/{t}/runs/{r}", tag = "runs",
    params(("t" = String, Path), ("r" = String, Path)),
    responses((status = 200, description = "The run", body = RunJson), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn show_run(
    RunAccess { access, run }: RunAccess,
    State(web): State<Shared>,
) -> Result<axum::Json<RunJson>, Problem> {
    Ok(axum::Json(web.app.run(&access.tenant, &run).await?.into()))
}

/// Asks a run, and the runs that it called, to stop
#[utoipa::path(post, path = "/v1/tenants/{t}/runs/{r}/cancel", tag = "runs",
    params(("t" = String, Path), ("r" = String, Path)),
    responses((status = 200, description = "The run", body = RunJson), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn cancel_run(
    RunAccess { access, run }: RunAccess,
    State(web): State<Shared>,
) -> Result<axum::Json<RunJson>, Problem> {
    Ok(axum::Json(web.app.cancel_run(&access.tenant, &run).await?.into()))
}

/// Answers an open question of a run
#[utoipa::path(post, path = "/v1/tenants/{t}/runs/{r}/answers", tag = "runs",
    params(("t" = String, Path), ("r" = String, Path)), request_body = AnswerQuestion,
    responses((status = 200, description = "The run", body = RunJson), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn answer_run(
    RunAccess { access, run }: RunAccess,
    State(web): State<Shared>,
    Json(body): Json<AnswerQuestion>,
) -> Result<axum::Json<RunJson>, Problem> {
    let action = match body.action {
        Action::Accept if body.answer.is_none() => {
            return Err(Problem::invalid(
                "answer",
                "is needed unless `action` is decline or cancel",
            ));
        }
        Action::Accept => AnswerAction::Accept,
        Action::Decline => AnswerAction::Decline,
        Action::Cancel => AnswerAction::Cancel,
    };
    let answer = Answer { action, content: body.answer.unwrap_or_default() };
    let view = web.app.answer_run(&access.tenant, &run, &body.question_id, answer).await?;
    Ok(axum::Json(view.into()))
}
