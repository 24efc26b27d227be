//! `/v1/tenants/{t}/lanes` and `/v1/tenants/{t}/history`

use axum::extract::State;
use serde::Deserialize;
use shikiri_lanes::HistoryQuery;
use utoipa::IntoParams;

use crate::access_extractors::TenantAccess;
use crate::openapi::{FailureResponses, GuardedResponses};
use crate::problem_response::ProblemResponse;
use crate::query_extractor::{Query, list_query, parse_paging};
use crate::views::{InquiryJson, LaneJson, ListPage};
use crate::web_state::SharedWebState;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct LanesQuery {
    /// Ended lanes too, whose chats are remembered.
    ended: Option<bool>,
    /// At most this many items, 1 to 200.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

list_query!(InquiriesQuery {
    /// Only what this agent asked.
    agent: Option<String>,
    /// Only what was asked there.
    provider: Option<String>,
});

/// Lists the tenant's lanes, oldest first
#[utoipa::path(get, path = "/v1/tenants/{t}/lanes", tag = "lanes",
    params(("t" = String, Path), LanesQuery),
    responses((status = 200, description = "A page of lanes", body = ListPage<LaneJson>), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn list_lanes(
    access: TenantAccess,
    State(web): State<SharedWebState>,
    Query(query): Query<LanesQuery>,
) -> Result<axum::Json<ListPage<LaneJson>>, ProblemResponse> {
    let (after, limit) = parse_paging(query.limit, query.cursor.as_deref())?;
    let ended = query.ended.unwrap_or(false);
    Ok(axum::Json(ListPage::new(
        web.app.lanes.list_lanes(&access.tenant, ended, after, limit).await?,
    )))
}

/// Lists what the tenant's agents asked at the providers, newest first
#[utoipa::path(get, path = "/v1/tenants/{t}/history", tag = "lanes",
    params(("t" = String, Path), InquiriesQuery),
    responses((status = 200, description = "A page of questions", body = ListPage<InquiryJson>), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn history(
    access: TenantAccess,
    State(web): State<SharedWebState>,
    Query(query): Query<InquiriesQuery>,
) -> Result<axum::Json<ListPage<InquiryJson>>, ProblemResponse> {
    let (after, limit) = query.position_and_limit()?;
    let agent = query.agent.map(|agent| without_nul("agent", agent)).transpose()?;
    let provider = query.provider.map(|provider| without_nul("provider", provider)).transpose()?;
    let query = HistoryQuery { agent, provider, after, limit };
    Ok(axum::Json(ListPage::new(web.app.lanes.history(&access.tenant, query).await?)))
}

/// PostgreSQL cannot store NUL, and no name contains it.
fn without_nul(field: &'static str, text: String) -> Result<String, ProblemResponse> {
    if text.contains('\0') { Err(ProblemResponse::invalid(field, "has a NUL")) } else { Ok(text) }
}
