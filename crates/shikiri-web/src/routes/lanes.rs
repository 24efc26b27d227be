//! `/v1/tenants/{t}/lanes` and `/v1/tenants/{t}/history`

use axum::extract::State;
use serde::Deserialize;
use shikiri_app::lane::HistoryQuery;
use utoipa::IntoParams;

use crate::access::TenantAccess;
use crate::error::Problem;
use crate::openapi::{Failures, Guarded};
use crate::query::{Paging, Query};
use crate::state::Shared;
use crate::views::{InquiryJson, LaneJson, Page};

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

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct InquiriesQuery {
    /// Only what this agent asked.
    agent: Option<String>,
    /// Only what was asked there.
    provider: Option<String>,
    /// At most this many items, 1 to 200. A page also ends after 4 MiB of them.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

/// Lists the tenant's lanes, oldest first
#[utoipa::path(get, path = "/v1/tenants/{t}/lanes", tag = "lanes",
    params(("t" = String, Path), LanesQuery),
    responses((status = 200, description = "A page of lanes", body = Page<LaneJson>), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn list_lanes(
    access: TenantAccess,
    State(web): State<Shared>,
    Query(query): Query<LanesQuery>,
) -> Result<axum::Json<Page<LaneJson>>, Problem> {
    let (after, limit) = Paging { limit: query.limit, cursor: query.cursor }.read()?;
    let ended = query.ended.unwrap_or(false);
    Ok(axum::Json(Page::new(web.app.list_lanes(&access.tenant, ended, after, limit).await?)))
}

/// Lists what the tenant's agents asked at the providers, newest first
#[utoipa::path(get, path = "/v1/tenants/{t}/history", tag = "lanes",
    params(("t" = String, Path), InquiriesQuery),
    responses((status = 200, description = "A page of questions", body = Page<InquiryJson>), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn history(
    access: TenantAccess,
    State(web): State<Shared>,
    Query(query): Query<InquiriesQuery>,
) -> Result<axum::Json<Page<InquiryJson>>, Problem> {
    let (after, limit) = Paging { limit: query.limit, cursor: query.cursor }.read()?;
    let agent = query.agent.map(|agent| without_nul("agent", agent)).transpose()?;
    let provider = query.provider.map(|provider| without_nul("provider", provider)).transpose()?;
    let query = HistoryQuery { agent, provider, after, limit };
    Ok(axum::Json(Page::new(web.app.history(&access.tenant, query).await?)))
}

/// PostgreSQL has no form for it, and no name holds it.
fn without_nul(field: &'static str, text: String) -> Result<String, Problem> {
    if text.contains('\0') { Err(Problem::invalid(field, "has a NUL")) } else { Ok(text) }
}
