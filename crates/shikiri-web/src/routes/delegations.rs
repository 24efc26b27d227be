//! `/v1/tenants/{t}/projects/{p}/delegations`

use axum::extract::State;
use serde::Deserialize;
use shikiri_model::ids::DelegationId;
use shikiri_model::team::DelegationStatus;
use utoipa::IntoParams;

use crate::error::Problem;
use crate::openapi::{Failures, Guarded};
use crate::query::{Paging, Query};
use crate::state::Shared;
use crate::team_access::{InProject, ProjectAccess};
use crate::views::{DelegationJson, DelegationStatusJson, Page};

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DelegationsQuery {
    /// Only delegations with this status.
    #[param(inline)]
    status: Option<DelegationStatusJson>,
    /// At most this many items, 1 to 200. A page also ends after 4 MiB of them.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

/// Lists the delegations of a project, oldest first
#[utoipa::path(get, path = "/v1/tenants/{t}/projects/{p}/delegations", tag = "teams",
    params(("t" = String, Path), ("p" = String, Path), DelegationsQuery),
    responses((status = 200, description = "A page of delegations", body = Page<DelegationJson>), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn list_delegations(
    ProjectAccess { access, project }: ProjectAccess,
    State(web): State<Shared>,
    Query(query): Query<DelegationsQuery>,
) -> Result<axum::Json<Page<DelegationJson>>, Problem> {
    let (after, limit) = Paging { limit: query.limit, cursor: query.cursor }.read()?;
    let status = query.status.map(DelegationStatus::from);
    let page = web.app.list_delegations(&access.tenant, &project, status, after, limit).await?;
    Ok(axum::Json(Page::new(page)))
}

/// Shows a delegation
#[utoipa::path(get, path = "/v1/tenants/{t}/projects/{p}/delegations/{delegation}", tag = "teams",
    params(("t" = String, Path), ("p" = String, Path), ("delegation" = String, Path)),
    responses((status = 200, description = "The delegation", body = DelegationJson), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn show_delegation(
    InProject { access, project, id }: InProject<DelegationId>,
    State(web): State<Shared>,
) -> Result<axum::Json<DelegationJson>, Problem> {
    Ok(axum::Json(web.app.find_delegation(&access.tenant, &project, &id).await?.into()))
}
