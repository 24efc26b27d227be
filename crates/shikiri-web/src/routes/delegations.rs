//! `/v1/tenants/{t}/projects/{p}/delegations`

use axum::extract::State;
use shikiri_model::team::DelegationStatus;

use crate::openapi::{FailureResponses, GuardedResponses};
use crate::path_items::{DelegationItem, ProjectAccess, ProjectItemAccess};
use crate::problem_response::ProblemResponse;
use crate::query_extractor::{Query, list_query};
use crate::views::{DelegationJson, DelegationStatusSchema, ListPage};
use crate::web_state::SharedWebState;

list_query!(DelegationsQuery {
    /// Only delegations with this status.
    #[param(inline, value_type = Option<DelegationStatusSchema>)]
    status: Option<DelegationStatus>,
});

/// Lists the delegations of a project, oldest first
#[utoipa::path(get, path = "/v1/tenants/{t}/projects/{p}/delegations", tag = "teams",
    params(("t" = String, Path), ("p" = String, Path), DelegationsQuery),
    responses((status = 200, description = "A page of delegations", body = ListPage<DelegationJson>), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn list_delegations(
    ProjectAccess { access, id: project }: ProjectAccess,
    State(web): State<SharedWebState>,
    Query(query): Query<DelegationsQuery>,
) -> Result<axum::Json<ListPage<DelegationJson>>, ProblemResponse> {
    let (after, limit) = query.position_and_limit()?;
    let status = query.status;
    let page =
        web.app.teams.list_delegations(&access.tenant, &project, status, after, limit).await?;
    Ok(axum::Json(ListPage::new(page)))
}

/// Shows a delegation
#[utoipa::path(get, path = "/v1/tenants/{t}/projects/{p}/delegations/{delegation}", tag = "teams",
    params(("t" = String, Path), ("p" = String, Path), ("delegation" = String, Path)),
    responses((status = 200, description = "The delegation", body = DelegationJson), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn show_delegation(
    ProjectItemAccess { access, project, id }: ProjectItemAccess<DelegationItem>,
    State(web): State<SharedWebState>,
) -> Result<axum::Json<DelegationJson>, ProblemResponse> {
    Ok(axum::Json(web.app.teams.find_delegation(&access.tenant, &project, &id).await?.into()))
}
