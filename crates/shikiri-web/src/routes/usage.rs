//! `/v1/tenants/{t}/usage`

use axum::extract::State;
use serde::Deserialize;
use shikiri_tenancy::usage::{GroupBy, ReportPeriod};
use utoipa::{IntoParams, ToSchema};

use crate::access_extractors::TenantAccess;
use crate::openapi::{FailureResponses, GuardedResponses};
use crate::problem_response::ProblemResponse;
use crate::query_extractor::Query;
use crate::views::UsageReportJson;
use crate::web_state::SharedWebState;

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct UsageQuery {
    /// What each item is about, `model` if left out; days and months are those of UTC.
    #[param(value_type = Option<UsageGroupByJson>, inline)]
    group_by: Option<String>,
    /// Only what was spent at this time or later: an RFC 3339 time, or a date.
    #[param(example = "2026-11-01")]
    from: Option<String>,
    /// Only what was spent before this time: an RFC 3339 time, or a date, which counts as a whole.
    #[param(example = "2026-11-30")]
    to: Option<String>,
}

#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
#[expect(dead_code, reason = "read by utoipa alone")]
#[schema(as = GroupByJson)]
enum UsageGroupByJson {
    Model,
    Subagent,
    Executor,
    Conversation,
    Day,
    Month,
}

/// Sums up what the tenant's executions spent
///
/// An execution counts when it has ended, however it ended.
#[utoipa::path(get, path = "/v1/tenants/{t}/usage", tag = "usage",
    params(("t" = String, Path), UsageQuery),
    responses((status = 200, description = "The report", body = UsageReportJson), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn show_usage(
    access: TenantAccess,
    State(web): State<SharedWebState>,
    Query(query): Query<UsageQuery>,
) -> Result<axum::Json<UsageReportJson>, ProblemResponse> {
    let group_by = group_by(query.group_by.as_deref().unwrap_or("model"))?;
    let span = ReportPeriod::read(query.from.as_deref(), query.to.as_deref())?;
    Ok(axum::Json(web.app.tenancy.usage(Some(&access.tenant), group_by, span).await?.into()))
}

/// One tenant's report is not grouped by tenant.
fn group_by(text: &str) -> Result<GroupBy, ProblemResponse> {
    let known = || GroupBy::ALL.into_iter().filter(|group| *group != GroupBy::Tenant);
    known().find(|group| group.as_str() == text).ok_or_else(|| {
        let names: Vec<_> = known().map(GroupBy::as_str).collect();
        ProblemResponse::invalid("group_by", format!("is one of {}", names.join(", ")))
    })
}
