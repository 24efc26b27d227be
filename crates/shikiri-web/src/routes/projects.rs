//! `/v1/tenants/{t}/projects`

use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use shikiri_model::ids::ProjectId;
use utoipa::ToSchema;

use super::created;
use crate::access::TenantAccess;
use crate::error::Problem;
use crate::json::Json;
use crate::openapi::{Failures, Guarded};
use crate::query::{Paging, Query};
use crate::state::Shared;
use crate::team_access::ProjectAccess;
use crate::views::{Page, ProjectJson};

/// A new project; everything may be left out.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewProject {
    #[schema(value_type = Option<String>, pattern = "^[A-Za-z0-9_-]{1,100}$")]
    id: Option<ProjectId>,
    /// 1 to 200 characters; its id, if left out.
    name: Option<String>,
}

/// Makes a project
#[utoipa::path(post, path = "/v1/tenants/{t}/projects", tag = "teams",
    params(("t" = String, Path)), request_body = NewProject,
    responses((status = 201, description = "The new project", body = ProjectJson), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn create_project(
    access: TenantAccess,
    State(web): State<Shared>,
    Json(new): Json<NewProject>,
) -> Result<Response, Problem> {
    let tenant = access.tenant;
    let made = ProjectJson::from(web.app.create_project(&tenant, new.id, new.name).await?);
    Ok(created(&format!("/v1/tenants/{tenant}/projects/{}", made.id), &made))
}

/// Lists a tenant's projects, oldest first
#[utoipa::path(get, path = "/v1/tenants/{t}/projects", tag = "teams",
    params(("t" = String, Path), Paging),
    responses((status = 200, description = "A page of projects", body = Page<ProjectJson>), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn list_projects(
    access: TenantAccess,
    State(web): State<Shared>,
    Query(paging): Query<Paging>,
) -> Result<axum::Json<Page<ProjectJson>>, Problem> {
    let (after, limit) = paging.read()?;
    Ok(axum::Json(Page::new(web.app.list_projects(&access.tenant, after, limit).await?)))
}

/// Shows a project
#[utoipa::path(get, path = "/v1/tenants/{t}/projects/{p}", tag = "teams",
    params(("t" = String, Path), ("p" = String, Path)),
    responses((status = 200, description = "The project", body = ProjectJson), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn show_project(
    ProjectAccess { access, project }: ProjectAccess,
    State(web): State<Shared>,
) -> Result<axum::Json<ProjectJson>, Problem> {
    Ok(axum::Json(web.app.project(&access.tenant, &project).await?.into()))
}
