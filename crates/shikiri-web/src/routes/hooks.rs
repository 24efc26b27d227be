//! `/hooks/claude`: events of Claude Code's hooks, and their reports.

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use futures_util::{StreamExt as _, stream};
use serde::Deserialize;
use serde_json::{Value, json};
use shikiri_model::hook::{HookLogRecord, HookStats, LogQuery, SubagentQuery, SubagentState};
use shikiri_model::record::RecordPosition;
use shikiri_model::time::Timestamp;
use shikiri_subagents::{HookAnswer, HookDelivery};
use utoipa::{IntoParams, ToSchema};

use crate::access_extractors::{HooksAccess, TenantAccess};
use crate::json_extractor::RawJson;
use crate::openapi::{FailureResponses, GuardedResponses};
use crate::problem_response::ProblemResponse;
use crate::query_extractor::{Query, parse_paging};
use crate::views::{HookLogSchema, HookStatsSchema, ListPage, SubagentJson, SubagentStateSchema};
use crate::web_state::SharedWebState;

/// What Claude Code sends; whatever else it sends is let through.
#[derive(ToSchema)]
#[expect(dead_code, reason = "read by utoipa alone")]
#[schema(as = HookPayload)]
pub(crate) struct HookEventBody {
    #[schema(min_length = 1, max_length = 256)]
    session_id: String,
    #[schema(min_length = 1, max_length = 256)]
    hook_event_name: String,
    agent_id: Option<String>,
    agent_type: Option<String>,
    tool_name: Option<String>,
    tool_use_id: Option<String>,
    #[schema(value_type = Option<Object>)]
    tool_input: Option<Value>,
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct SubagentsQuery {
    /// Only subagents of this session of Claude Code.
    session: Option<String>,
    /// Only subagents in this state.
    #[param(inline, value_type = Option<SubagentStateSchema>)]
    state: Option<SubagentState>,
    /// At most this many items, 1 to 200.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct HookLogQuery {
    /// Only events of this session of Claude Code.
    session: Option<String>,
    /// At most this many items, 1 to 200.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

/// Takes an event of Claude Code's hooks and answers it as `shikiri hook` does
///
/// For a key that is for hooks alone, for a tenant's, and for the admin key, which acts for the
/// tenant `local`.
#[utoipa::path(post, path = "/hooks/claude", tag = "hooks", request_body = HookEventBody,
    responses((status = 200, description = "What Claude Code is told; `{}` if there is nothing to say", body = Object), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn take_hook(
    HooksAccess(tenant): HooksAccess,
    State(web): State<SharedWebState>,
    RawJson(event): RawJson,
) -> Result<Response, ProblemResponse> {
    let HookAnswer { json, delivery } = web.app.subagents.hook(&tenant, &event).await?;
    let json = json.unwrap_or_else(|| json!({}));
    Ok(match delivery {
        None => axum::Json(json).into_response(),
        Some(delivery) => delivery_response(&json, delivery),
    })
}

/// The body ends only when the delivery is confirmed. If it breaks off, the same content is
/// delivered again.
fn delivery_response(json: &Value, delivery: HookDelivery) -> Response {
    let said = stream::iter([Ok(Bytes::from(json.to_string()))]);
    let confirmed = stream::once(delivery.confirm()).filter_map(async |confirmed| {
        confirmed.err().map(|error| {
            tracing::warn!(%error, "an answer to a hook is broken off");
            Err(error)
        })
    });
    let body = Body::from_stream(said.chain(confirmed));
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// Lists the tenant's subagents, newest first
#[utoipa::path(get, path = "/v1/tenants/{t}/subagents", tag = "hooks",
    params(("t" = String, Path), SubagentsQuery),
    responses((status = 200, description = "A page of subagents", body = ListPage<SubagentJson>), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn list_subagents(
    access: TenantAccess,
    State(web): State<SharedWebState>,
    Query(query): Query<SubagentsQuery>,
) -> Result<axum::Json<ListPage<SubagentJson>>, ProblemResponse> {
    let (_, limit) = parse_paging(query.limit, None)?;
    let after = query.cursor.as_deref().map(|text| parse_position(text).ok_or_else(no_cursor));
    let query = SubagentQuery {
        session_id: query.session.map(without_nul).transpose()?,
        state: query.state,
        after: after.transpose()?,
        limit,
        ..SubagentQuery::default()
    };
    Ok(axum::Json(ListPage::new(web.app.subagents.subagents(&access.tenant, query).await?)))
}

/// Shows events of the tenant's hooks, newest first
#[utoipa::path(get, path = "/v1/tenants/{t}/hooks/log", tag = "hooks",
    params(("t" = String, Path), HookLogQuery),
    responses((status = 200, description = "A page of events", body = ListPage<HookLogSchema>), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn hook_log(
    access: TenantAccess,
    State(web): State<SharedWebState>,
    Query(query): Query<HookLogQuery>,
) -> Result<axum::Json<ListPage<HookLogRecord>>, ProblemResponse> {
    let (after, limit) = parse_paging(query.limit, query.cursor.as_deref())?;
    let before = after.map(|after| after.id.parse().map_err(|_| no_cursor()));
    let session_id = query.session.map(without_nul).transpose()?;
    let query = LogQuery { session_id, before: before.transpose()?, limit };
    Ok(axum::Json(ListPage::new(web.app.subagents.hook_log(&access.tenant, query).await?)))
}

/// Shows figures about the tenant's hooks
#[utoipa::path(get, path = "/v1/tenants/{t}/hooks/stats", tag = "hooks",
    params(("t" = String, Path)),
    responses((status = 200, description = "The figures", body = HookStatsSchema), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn hook_stats(
    access: TenantAccess,
    State(web): State<SharedWebState>,
) -> Result<axum::Json<HookStats>, ProblemResponse> {
    Ok(axum::Json(web.app.subagents.hook_stats(&access.tenant).await?))
}

/// Ids of subagents come from Claude Code and may hold characters that ours do not.
fn parse_position(text: &str) -> Option<RecordPosition> {
    let (at, id) = text.split_once('.')?;
    let created_at = Timestamp::from_millis(i64::from_str_radix(at, 16).ok()?);
    (!id.contains('\0')).then(|| RecordPosition { created_at, id: id.to_owned() })
}

fn no_cursor() -> ProblemResponse {
    ProblemResponse::invalid("cursor", "is not a `next_cursor` of this list")
}

/// PostgreSQL cannot store NUL.
fn without_nul(session: String) -> Result<String, ProblemResponse> {
    match session.contains('\0') {
        true => Err(ProblemResponse::invalid("session", "has a NUL in it")),
        false => Ok(session),
    }
}
