//! `/v1/tenants/{t}/runs`

use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};
use shikiri_app::lane;
use shikiri_app::run::NewRun;
use shikiri_model::ids::QuestionId;
use shikiri_model::lane::{Identity, Way};
use shikiri_model::run::{Answer, AnswerAction, RunStatus};
use utoipa::{IntoParams, ToSchema};

use super::created;
use crate::access::{RunAccess, TenantAccess};
use crate::error::Problem;
use crate::json::Json;
use crate::openapi::{Failures, Guarded};
use crate::query::{Paging, Query};
use crate::state::Shared;
use crate::views::{Page, RunJson, RunStatusJson};

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

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UpdateRun {
    /// What the agent should go by from now on; each agent says what it takes.
    input: Value,
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
    status: Option<RunStatusJson>,
    /// At most this many items, 1 to 200. A page also ends after 4 MiB of them.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
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
    let StartRun { agent, input, idempotency_key } = new;
    // A key's chats are its own: here it is all that tells callers apart.
    let origin = lane::is_tool(&agent).then(|| {
        let way = Way::Token { principal: access.caller.key.to_string(), handle: None };
        json!({ "door": "rest", "lane": Identity::of(&way, "rest") })
    });
    let new = NewRun { agent, input, idempotency_key, origin };
    let view = web.app.start_run(&tenant, new).await?;
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
    let answer = Answer::new(action, body.answer.unwrap_or_default());
    let view = web.app.answer_run(&access.tenant, &run, &body.question_id, answer).await?;
    Ok(axum::Json(view.into()))
}

/// Redirects a run that has not ended: its agent takes the new input up where it can
#[utoipa::path(post, path = "/v1/tenants/{t}/runs/{r}/input", tag = "runs",
    params(("t" = String, Path), ("r" = String, Path)), request_body = UpdateRun,
    responses((status = 200, description = "The run", body = RunJson), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn update_run(
    RunAccess { access, run }: RunAccess,
    State(web): State<Shared>,
    Json(body): Json<UpdateRun>,
) -> Result<axum::Json<RunJson>, Problem> {
    Ok(axum::Json(web.app.update_run(&access.tenant, &run, body.input).await?.into()))
}
