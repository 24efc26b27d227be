//! `/v1/tenants/{t}/runs`

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};
use shikiri_model::ids::QuestionId;
use shikiri_model::lane::{CallerIdentity, CallerOrigin, LANE_HEADER, read_lane_handle};
use shikiri_model::run::{AnswerAction, QuestionAnswer, RunStatus};
use shikiri_runtime::run::NewRun;
use utoipa::ToSchema;

use super::created;
use crate::access_extractors::TenantAccess;
use crate::json_extractor::Json;
use crate::openapi::{FailureResponses, GuardedResponses};
use crate::path_items::RunAccess;
use crate::problem_response::ProblemResponse;
use crate::query_extractor::{PageQuery, Query, list_query};
use crate::views::{ListPage, OpenQuestionJson, RunJson, RunStatusSchema};
use crate::web_state::SharedWebState;

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = StartRun)]
pub(crate) struct StartRunBody {
    agent: String,
    /// What the agent gets; `{}` if left out.
    #[serde(default = "empty")]
    input: Value,
    /// A second start with the same key gives the first one's run. With another agent or input it is refused.
    idempotency_key: Option<String>,
}

fn empty() -> Value {
    Value::Object(serde_json::Map::new())
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = AnswerQuestion)]
pub(crate) struct AnswerQuestionBody {
    #[schema(value_type = String)]
    question_id: QuestionId,
    #[serde(default)]
    action: AnswerActionBody,
    /// Needed to accept. `content` is another name for it.
    #[serde(alias = "content")]
    answer: Option<Value>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = UpdateRun)]
pub(crate) struct UpdateRunBody {
    /// What the agent should go by from now on; each agent says what it takes.
    input: Value,
}

#[derive(Clone, Copy, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = AnswerAction)]
enum AnswerActionBody {
    #[default]
    Accept,
    Decline,
    Cancel,
}

list_query!(RunsQuery {
    /// Only runs with this status.
    #[param(inline, value_type = Option<RunStatusSchema>)]
    status: Option<RunStatus>,
});

/// Starts a run; it goes on whether or not anybody listens
#[utoipa::path(post, path = "/v1/tenants/{t}/runs", tag = "runs",
    params(
        ("t" = String, Path),
        ("Shikiri-Lane" = Option<String>, Header, description = "Whose chats the lane tools use, \
            of several callers with one key: 1 to 64 characters"),
    ),
    request_body = StartRunBody,
    responses((status = 201, description = "The run", body = RunJson), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn start_run(
    access: TenantAccess,
    State(web): State<SharedWebState>,
    headers: HeaderMap,
    Json(new): Json<StartRunBody>,
) -> Result<Response, ProblemResponse> {
    let tenant = access.tenant;
    let StartRunBody { agent, input, idempotency_key } = new;
    // A key's chats are its own, unless its callers name themselves.
    let handle = lane_handle(&headers)?;
    let origin = shikiri_lanes::is_tool(&agent).then(|| {
        let way = CallerOrigin::Token { principal: access.caller.key.to_string(), handle };
        json!({ "door": "rest", "lane": CallerIdentity::of(&way, "rest") })
    });
    let new = NewRun { agent, input, idempotency_key, origin };
    let view = web.app.runtime.start_run(&tenant, new).await?;
    let location = format!("/v1/tenants/{tenant}/runs/{}", view.run.id);
    Ok(created(&location, &RunJson::from(view)))
}

fn lane_handle(headers: &HeaderMap) -> Result<Option<String>, ProblemResponse> {
    let Some(value) = headers.get(LANE_HEADER) else { return Ok(None) };
    let handle = std::str::from_utf8(value.as_bytes()).ok().and_then(read_lane_handle);
    let bad = || ProblemResponse::invalid("Shikiri-Lane", "must be 1 to 64 characters");
    handle.ok_or_else(bad).map(Some)
}

/// Lists a tenant's runs, newest first
#[utoipa::path(get, path = "/v1/tenants/{t}/runs", tag = "runs",
    params(("t" = String, Path), RunsQuery),
    responses((status = 200, description = "A page of runs", body = ListPage<RunJson>), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn list_runs(
    access: TenantAccess,
    State(web): State<SharedWebState>,
    Query(query): Query<RunsQuery>,
) -> Result<axum::Json<ListPage<RunJson>>, ProblemResponse> {
    let (after, limit) = query.position_and_limit()?;
    let status = query.status;
    Ok(axum::Json(ListPage::new(
        web.app.runtime.list_runs(&access.tenant, status, after, limit).await?,
    )))
}

/// Shows a run
#[utoipa::path(get, path = "/v1/tenants/{t}/runs/{r}", tag = "runs",
    params(("t" = String, Path), ("r" = String, Path)),
    responses((status = 200, description = "The run", body = RunJson), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn show_run(
    RunAccess { access, id: run }: RunAccess,
    State(web): State<SharedWebState>,
) -> Result<axum::Json<RunJson>, ProblemResponse> {
    Ok(axum::Json(web.app.runtime.run(&access.tenant, &run).await?.into()))
}

/// Asks a run, and the runs that it called, to stop
#[utoipa::path(post, path = "/v1/tenants/{t}/runs/{r}/cancel", tag = "runs",
    params(("t" = String, Path), ("r" = String, Path)),
    responses((status = 200, description = "The run", body = RunJson), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn cancel_run(
    RunAccess { access, id: run }: RunAccess,
    State(web): State<SharedWebState>,
) -> Result<axum::Json<RunJson>, ProblemResponse> {
    Ok(axum::Json(web.app.runtime.cancel_run(&access.tenant, &run).await?.into()))
}

/// Answers an open question of a run
#[utoipa::path(post, path = "/v1/tenants/{t}/runs/{r}/answers", tag = "runs",
    params(("t" = String, Path), ("r" = String, Path)), request_body = AnswerQuestionBody,
    responses((status = 200, description = "The run", body = RunJson), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn answer_run(
    RunAccess { access, id: run }: RunAccess,
    State(web): State<SharedWebState>,
    Json(body): Json<AnswerQuestionBody>,
) -> Result<axum::Json<RunJson>, ProblemResponse> {
    let action = match body.action {
        AnswerActionBody::Accept if body.answer.is_none() => {
            return Err(ProblemResponse::invalid(
                "answer",
                "is needed unless `action` is decline or cancel",
            ));
        }
        AnswerActionBody::Accept => AnswerAction::Accept,
        AnswerActionBody::Decline => AnswerAction::Decline,
        AnswerActionBody::Cancel => AnswerAction::Cancel,
    };
    let answer = QuestionAnswer::new(action, body.answer.unwrap_or_default());
    let view = web.app.runtime.answer_run(&access.tenant, &run, &body.question_id, answer).await?;
    Ok(axum::Json(view.into()))
}

/// Lists the questions of a tenant's runs that wait for an answer, of the oldest run first
///
/// A person answers one with `POST …/runs/{r}/answers`.
#[utoipa::path(get, path = "/v1/tenants/{t}/questions", tag = "runs",
    params(("t" = String, Path), PageQuery),
    responses((status = 200, description = "A page of open questions", body = ListPage<OpenQuestionJson>), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn list_questions(
    access: TenantAccess,
    State(web): State<SharedWebState>,
    Query(paging): Query<PageQuery>,
) -> Result<axum::Json<ListPage<OpenQuestionJson>>, ProblemResponse> {
    let (after, limit) = paging.position_and_limit()?;
    let page = web.app.runtime.list_open_questions(&access.tenant, after, limit).await?;
    Ok(axum::Json(ListPage::new(page)))
}

/// Redirects a run that has not ended: its agent takes the new input up where it can
#[utoipa::path(post, path = "/v1/tenants/{t}/runs/{r}/input", tag = "runs",
    params(("t" = String, Path), ("r" = String, Path)), request_body = UpdateRunBody,
    responses((status = 200, description = "The run", body = RunJson), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn update_run(
    RunAccess { access, id: run }: RunAccess,
    State(web): State<SharedWebState>,
    Json(body): Json<UpdateRunBody>,
) -> Result<axum::Json<RunJson>, ProblemResponse> {
    Ok(axum::Json(web.app.runtime.update_run(&access.tenant, &run, body.input).await?.into()))
}
