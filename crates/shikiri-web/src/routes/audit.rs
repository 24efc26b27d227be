//! `/v1/audit`

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use shikiri_model::ids::TenantId;
use shikiri_model::tenant::{Limits, Tenant};
use utoipa::IntoParams;

use crate::access::{Admin, TenantAccess};
use crate::error::Problem;
use crate::openapi::{Failures, Guarded};
use crate::query::Query;
use crate::sse::{self, Feed, Source};
use crate::state::Shared;
use crate::views::{AuditJson, AuditPage};

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
    responses((status = 200, description = "A page of entries", body = AuditPage), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn list_audit(
    Admin(caller): Admin,
    State(web): State<Shared>,
    Query(query): Query<AuditQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let after = sse::cursor(&headers, query.after.as_deref())?;
    if wants_events(&headers) {
        web.app.open_audit_log().await?;
        let tenant = TenantId::system();
        let mut record = Tenant::new(tenant.clone(), String::new());
        record.limits = Limits::default();
        let access = TenantAccess { tenant, record: Arc::new(record), caller };
        return Ok(sse::respond(Feed::open(web, access, Source::audit(), after).await?));
    }
    let limit = query.limit.unwrap_or(50);
    if !(1..=200).contains(&limit) {
        return Err(Problem::invalid("limit", "must be 1 to 200"));
    }
    let (entries, next) = web.app.audit_page(after, limit as usize).await?;
    let items = entries.into_iter().map(AuditJson::from).collect();
    Ok(axum::Json(AuditPage::new(items, next)).into_response())
}

fn wants_events(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/event-stream"))
}
