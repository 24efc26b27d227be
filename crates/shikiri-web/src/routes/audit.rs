//! `/v1/audit`

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use shikiri_model::ids::TenantId;
use shikiri_model::tenant::{Tenant, TenantLimits};
use utoipa::IntoParams;

use crate::access_extractors::{AdminAccess, TenantAccess};
use crate::openapi::{FailureResponses, GuardedResponses};
use crate::problem_response::ProblemResponse;
use crate::query_extractor::Query;
use crate::sse::{self, SseEventFeed, SseEventSource};
use crate::views::AuditPage;
use crate::web_state::SharedWebState;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct AuditQuery {
    /// Start after the entry with this number: `next_cursor` of the page before.
    #[param(value_type = Option<u64>)]
    after: Option<String>,
    /// At most this many items, 1 to 200.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<u32>,
}

/// Lists who changed who may do what, oldest first (admin)
///
/// With `Accept: text/event-stream` the entries come as Server-Sent Events, and the stream goes on
/// with those that are to come.
#[utoipa::path(get, path = "/v1/audit", tag = "audit", params(AuditQuery,
        ("Last-Event-ID" = Option<u64>, Header, description = "The last entry that was seen")),
    responses((status = 200, description = "A page of entries", body = AuditPage), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn list_audit(
    AdminAccess(caller): AdminAccess,
    State(web): State<SharedWebState>,
    Query(query): Query<AuditQuery>,
    headers: HeaderMap,
) -> Result<Response, ProblemResponse> {
    let after = sse::cursor(&headers, query.after.as_deref())?;
    if accepts_event_stream(&headers) {
        web.app.runtime.open_audit_log().await?;
        let tenant = TenantId::system();
        let mut record = Tenant::new(tenant.clone(), String::new());
        record.limits = TenantLimits::default();
        let access = TenantAccess { tenant, record: Arc::new(record), caller };
        return Ok(sse::respond(
            SseEventFeed::open(web, access, SseEventSource::audit(), after).await?,
        ));
    }
    let limit = query.limit.unwrap_or(50);
    if !(1..=200).contains(&limit) {
        return Err(ProblemResponse::invalid("limit", "must be 1 to 200"));
    }
    let (entries, next) = web.app.runtime.audit_page(after, limit as usize).await?;
    Ok(axum::Json(AuditPage::new(entries, next)).into_response())
}

fn accepts_event_stream(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/event-stream"))
}
