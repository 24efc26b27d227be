//! `/v1/tenants/{t}/conversations/{c}/executions` and `/v1/tenants/{t}/executions`

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use shikiri_executions::execution::{ExecutionFilter, ExecutionStart, NewExecution};
use shikiri_model::execution::{Cost, ExecutionUser};
use shikiri_model::ids::{ConversationId, ModelId};
use shikiri_model::native::ExecutionLimits;
use shikiri_model::run::RunStatus;
use shikiri_tenancy::usage::ReportPeriod;
use utoipa::ToSchema;

use super::execution_answer::{ExecutionAnswer, wait_for_end};
use super::run_events::RunEventsQuery;
use crate::access_extractors::TenantAccess;
use crate::json_extractor::{Json, JsonObject};
use crate::openapi::{FailureResponses, GuardedResponses};
use crate::path_items::{ConversationAccess, ExecutionAccess};
use crate::problem_response::{ProblemResponse, ProblemSchema};
use crate::query_extractor::{PageQuery, Query, list_query};
use crate::sse::{self, SseEventFeed, SseEventSource};
use crate::views::{
    ExecutionJson, ListPage, RunStatusSchema, ToolCallJson, UnpagedList, UsageRowJson,
};
use crate::web_state::SharedWebState;

const IDEMPOTENCY_KEY: &str = "Idempotency-Key";

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Execute)]
pub(crate) struct StartExecutionBody {
    /// At most 1 MiB.
    user_input: String,
    #[schema(value_type = ExecutorBody)]
    executor: JsonObject<ExecutorBody>,
    /// Secrets for the headers of MCP servers: kept in memory until the execution has ended.
    #[serde(default)]
    tokens: BTreeMap<String, String>,
    /// Names of active skills.
    #[serde(default)]
    preferred_skills: Vec<String>,
    /// In place of the conversation's or the tenant's.
    #[schema(value_type = Option<String>)]
    model_id: Option<ModelId>,
    /// What it may use up. `anthropic` and `bedrock` keep all of them, `claude-code` keeps `max_turns`
    /// and `max_cost_usd`, counted by Claude Code itself.
    #[schema(value_type = Option<ExecutionLimitsBody>)]
    limits: Option<JsonObject<ExecutionLimitsBody>>,
}

/// Checked before each request to the model, against what is spent and set aside by then. An
/// execution that a limit ended has `limit` in its `result`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = LimitsBody)]
pub(crate) struct ExecutionLimitsBody {
    /// Replies of the model, without those to subagents.
    #[schema(minimum = 1)]
    max_turns: Option<u64>,
    /// Tokens of all kinds, in and out, with those of subagents.
    #[schema(minimum = 1)]
    max_tokens: Option<u64>,
    /// Dollars, with what subagents cost. The model's record must have prices.
    #[schema(exclusive_minimum = 0)]
    max_cost_usd: Option<f64>,
    /// The same of each subagent, with the subagents that it has itself.
    #[schema(value_type = Option<SubagentLimitsBody>)]
    subagent: Option<JsonObject<SubagentLimitsBody>>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SubagentLimitsBody {
    #[schema(minimum = 1)]
    max_turns: Option<u64>,
    #[schema(minimum = 1)]
    max_tokens: Option<u64>,
    #[schema(exclusive_minimum = 0)]
    max_cost_usd: Option<f64>,
}

impl ExecutionLimitsBody {
    fn read(self) -> Result<ExecutionLimits, ProblemResponse> {
        let of_each = |JsonObject(own): JsonObject<SubagentLimitsBody>| {
            let max_cost_usd = parse_dollars("limits.subagent.max_cost_usd", own.max_cost_usd)?;
            let (max_turns, max_tokens) = (own.max_turns, own.max_tokens);
            let own = ExecutionLimits { max_turns, max_tokens, max_cost_usd, subagent: None };
            Ok::<_, ProblemResponse>(Box::new(own))
        };
        Ok(ExecutionLimits {
            max_turns: self.max_turns,
            max_tokens: self.max_tokens,
            max_cost_usd: parse_dollars("limits.max_cost_usd", self.max_cost_usd)?,
            subagent: self.subagent.map(of_each).transpose()?,
        })
    }
}

fn parse_dollars(
    field: &'static str,
    dollars: Option<f64>,
) -> Result<Option<Cost>, ProblemResponse> {
    let wrong = || ProblemResponse::invalid(field, "must be an amount of dollars");
    dollars.map(|dollars| Cost::from_dollars(dollars).ok_or_else(wrong)).transpose()
}

/// On whose behalf.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExecutorBody {
    user_id: String,
    name: Option<String>,
    email: Option<String>,
}

/// Does one turn of a conversation, and answers with the stream of what happens
///
/// It goes on whether or not anybody listens. With `Accept: application/json` the answer is the
/// execution once it has ended, however it ended. With `Prefer: respond-async` the answer is 202 and
/// the place to look; with `Prefer: respond-async, queue` also while another turn of the conversation
/// is under way: the execution is `queued` and starts after those that came before. `Prefer` wins over
/// `Accept`. With an `Idempotency-Key` that was used for this conversation before, the answer is about
/// the first execution of that key, and its stream goes on after `Last-Event-ID`; another input with
/// the same key is refused (422). The events are those of `…/executions/{e}/events`.
#[utoipa::path(post, path = "/v1/tenants/{t}/conversations/{c}/executions", tag = "executions",
    params(
        ("t" = String, Path), ("c" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 200 characters"),
        ("Prefer" = Option<String>, Header, description = "`respond-async`: do not wait for the stream; `respond-async, queue`: nor for the conversation"),
        ("Last-Event-ID" = Option<u64>, Header, description = "With a key that was used before: the last event that was seen"),
    ),
    request_body = StartExecutionBody,
    responses(
        (status = 200, description = "The stream, or the execution once it has ended", content(
            (String = "text/event-stream"), (ExecutionJson = "application/json"),
        )),
        (status = 202, description = "The execution", body = ExecutionJson),
        (status = 422, description = "The idempotency key belongs to another request", body = ProblemSchema, content_type = "application/problem+json"),
        GuardedResponses, FailureResponses,
    ),
    security(("key" = [])))]
pub(crate) async fn execute(
    ConversationAccess { access, id: conversation }: ConversationAccess,
    State(web): State<SharedWebState>,
    headers: HeaderMap,
    Json(body): Json<StartExecutionBody>,
) -> Result<Response, ProblemResponse> {
    let JsonObject(ExecutorBody { user_id, name, email }) = body.executor;
    let request = NewExecution {
        conversation,
        user_input: body.user_input,
        executor: ExecutionUser { user_id, name, email },
        tokens: body.tokens,
        preferred_skills: body.preferred_skills,
        model_id: body.model_id,
        idempotency_key: idempotency_key(&headers)?,
        limits: body
            .limits
            .map(|JsonObject(limits)| limits.read())
            .transpose()?
            .unwrap_or_default(),
    };
    let answer = ExecutionAnswer::wanted_by(&headers);
    let seen = sse::cursor(&headers, None)?;
    let executions = &web.app.executions;
    let ExecutionStart { run, is_repeated } = match answer {
        ExecutionAnswer::Accepted { queues: true } => {
            executions.execute_or_queue(&access.tenant, request).await?
        }
        _ => executions.execute_or_attach(&access.tenant, request).await?,
    };
    let id = run.value.id.clone();
    let location = format!("/v1/tenants/{}/executions/{id}", access.tenant);
    let mut response = match answer {
        ExecutionAnswer::Accepted { .. } => {
            (StatusCode::ACCEPTED, axum::Json(ExecutionJson::from(run))).into_response()
        }
        ExecutionAnswer::Record => {
            let ended = wait_for_end(&web, &access, &id).await?;
            axum::Json(ExecutionJson::from(ended)).into_response()
        }
        ExecutionAnswer::Stream => {
            // Of a new execution nobody has seen anything.
            let after = if is_repeated { seen } else { 0 };
            sse::respond(SseEventFeed::open(web, access, SseEventSource::run(&id), after).await?)
        }
    };
    if let Some(applied) = answer.applied() {
        let name = HeaderName::from_static("preference-applied");
        response.headers_mut().insert(name, HeaderValue::from_static(applied));
    }
    if let Ok(location) = HeaderValue::try_from(location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, ProblemResponse> {
    let Some(value) = headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    let text = std::str::from_utf8(value.as_bytes());
    let text = text.map_err(|_| ProblemResponse::invalid(IDEMPOTENCY_KEY, "must be UTF-8"))?;
    Ok(Some(text.to_owned()))
}

list_query!(ExecutionsQuery {
    /// Only executions with this status.
    #[param(inline, value_type = Option<RunStatusSchema>)]
    status: Option<RunStatus>,
    /// Only those of this conversation.
    #[param(value_type = Option<String>)]
    conversation: Option<ConversationId>,
    /// Only those with this model's record.
    #[param(value_type = Option<String>)]
    model: Option<ModelId>,
    /// Only those on behalf of this user: the executor's `user_id`.
    user_id: Option<String>,
    /// Only those that were asked for at this time or later: an RFC 3339 time, or a date.
    #[param(example = "2026-11-01")]
    from: Option<String>,
    /// Only those from before this time: an RFC 3339 time, or a date, which counts as a whole.
    #[param(example = "2026-11-30")]
    to: Option<String>,
});

/// Lists a tenant's executions over all conversations, newest first
#[utoipa::path(get, path = "/v1/tenants/{t}/executions", tag = "executions",
    params(("t" = String, Path), ExecutionsQuery),
    responses((status = 200, description = "A page of executions", body = ListPage<ExecutionJson>), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn list_all_executions(
    access: TenantAccess,
    State(web): State<SharedWebState>,
    Query(query): Query<ExecutionsQuery>,
) -> Result<axum::Json<ListPage<ExecutionJson>>, ProblemResponse> {
    let (after, limit) = query.position_and_limit()?;
    let period = ReportPeriod::read(query.from.as_deref(), query.to.as_deref())?;
    let filter = ExecutionFilter {
        status: query.status,
        conversation: query.conversation,
        model: query.model,
        user_id: query.user_id,
        from: period.from,
        to: period.to,
    };
    let page = web.app.executions.find_executions(&access.tenant, &filter, after, limit).await?;
    Ok(axum::Json(ListPage::new(page)))
}

/// Lists a conversation's executions, newest first
#[utoipa::path(get, path = "/v1/tenants/{t}/conversations/{c}/executions", tag = "executions",
    params(("t" = String, Path), ("c" = String, Path), PageQuery),
    responses((status = 200, description = "A page of executions", body = ListPage<ExecutionJson>), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn list_executions(
    ConversationAccess { access, id: conversation }: ConversationAccess,
    State(web): State<SharedWebState>,
    Query(paging): Query<PageQuery>,
) -> Result<axum::Json<ListPage<ExecutionJson>>, ProblemResponse> {
    let (after, limit) = paging.position_and_limit()?;
    let page =
        web.app.executions.list_executions(&access.tenant, &conversation, after, limit).await?;
    Ok(axum::Json(ListPage::new(page)))
}

/// Shows an execution
#[utoipa::path(get, path = "/v1/tenants/{t}/executions/{e}", tag = "executions",
    params(("t" = String, Path), ("e" = String, Path)),
    responses((status = 200, description = "The execution", body = ExecutionJson), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn show_execution(
    ExecutionAccess { access, id: execution }: ExecutionAccess,
    State(web): State<SharedWebState>,
) -> Result<axum::Json<ExecutionJson>, ProblemResponse> {
    Ok(axum::Json(web.app.executions.execution(&access.tenant, &execution).await?.into()))
}

/// Follows an execution: what has happened after the cursor, then what happens
///
/// Server-Sent Events whose `data` holds `seq`, `at`, `execution_id` and the event's own fields.
/// The server ends the stream after the terminal event (`result` or `error`); a stream that ends
/// without one goes on after reconnecting with `Last-Event-ID`. A cursor whose events are no
/// longer kept gets `event: resync` with `kept_after` and goes on from there.
#[utoipa::path(get, path = "/v1/tenants/{t}/executions/{e}/events", tag = "executions",
    params(
        ("t" = String, Path), ("e" = String, Path), RunEventsQuery,
        ("Last-Event-ID" = Option<u64>, Header, description = "The last event that was seen"),
    ),
    responses(
        (status = 200, description = "The stream", body = String, content_type = "text/event-stream"), GuardedResponses, FailureResponses,
    ),
    security(("key" = [])))]
pub(crate) async fn follow_execution(
    ExecutionAccess { access, id: execution }: ExecutionAccess,
    State(web): State<SharedWebState>,
    Query(query): Query<RunEventsQuery>,
    headers: HeaderMap,
) -> Result<Response, ProblemResponse> {
    let after = sse::cursor(&headers, query.after.as_deref())?;
    web.app.executions.execution(&access.tenant, &execution).await?;
    Ok(sse::respond(SseEventFeed::open(web, access, SseEventSource::run(&execution), after).await?))
}

/// Lists the tools that an execution called
#[utoipa::path(get, path = "/v1/tenants/{t}/executions/{e}/tools", tag = "executions",
    params(("t" = String, Path), ("e" = String, Path)),
    responses((status = 200, description = "Every call, in the order of their beginning", body = UnpagedList<ToolCallJson>), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn execution_tools(
    ExecutionAccess { access, id: execution }: ExecutionAccess,
    State(web): State<SharedWebState>,
) -> Result<axum::Json<UnpagedList<ToolCallJson>>, ProblemResponse> {
    let calls = web.app.executions.execution_tools(&access.tenant, &execution).await?;
    Ok(axum::Json(UnpagedList::new(calls.into_iter().map(ToolCallJson::from))))
}

/// Shows who spent what in an execution
#[utoipa::path(get, path = "/v1/tenants/{t}/executions/{e}/usage", tag = "executions",
    params(("t" = String, Path), ("e" = String, Path)),
    responses((status = 200, description = "Rows that add up to the execution's usage", body = UnpagedList<UsageRowJson>), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn execution_usage(
    ExecutionAccess { access, id: execution }: ExecutionAccess,
    State(web): State<SharedWebState>,
) -> Result<axum::Json<UnpagedList<UsageRowJson>>, ProblemResponse> {
    let (status, rows) = web.app.executions.execution_usage(&access.tenant, &execution).await?;
    Ok(axum::Json(UnpagedList::new(rows.into_iter().map(|row| UsageRowJson::new(row, status)))))
}

/// Asks an execution to stop
#[utoipa::path(post, path = "/v1/tenants/{t}/executions/{e}/cancel", tag = "executions",
    params(("t" = String, Path), ("e" = String, Path)),
    responses((status = 200, description = "The execution", body = ExecutionJson), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn cancel_execution(
    ExecutionAccess { access, id: execution }: ExecutionAccess,
    State(web): State<SharedWebState>,
) -> Result<axum::Json<ExecutionJson>, ProblemResponse> {
    web.app.executions.execution(&access.tenant, &execution).await?;
    web.app.runtime.cancel_run(&access.tenant, &execution).await?;
    Ok(axum::Json(web.app.executions.execution(&access.tenant, &execution).await?.into()))
}
