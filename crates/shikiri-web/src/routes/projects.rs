//! `/v1/tenants/{t}/projects`

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use shikiri_model::ids::ProjectId;
use utoipa::ToSchema;

use super::created;
use crate::access_extractors::{ActingApp, TenantAccess};
use crate::json_extractor::Json;
use crate::openapi::{FailureResponses, GuardedResponses};
use crate::path_items::ProjectAccess;
use crate::problem_response::ProblemResponse;
use crate::query_extractor::{PageQuery, Query};
use crate::views::{ListPage, ProjectJson};
use crate::web_state::SharedWebState;

/// A new project; everything may be left out.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewProject)]
pub(crate) struct NewProjectBody {
    #[schema(value_type = Option<String>, pattern = "^[A-Za-z0-9_-]{1,100}$")]
    id: Option<ProjectId>,
    /// 1 to 200 characters; its id, if left out.
    name: Option<String>,
}

/// Makes a project
#[utoipa::path(post, path = "/v1/tenants/{t}/projects", tag = "teams",
    params(("t" = String, Path)), request_body = NewProjectBody,
    responses((status = 201, description = "The new project", body = ProjectJson), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn create_project(
    access: TenantAccess,
    State(web): State<SharedWebState>,
    Json(new): Json<NewProjectBody>,
) -> Result<Response, ProblemResponse> {
    let tenant = access.tenant;
    let made = ProjectJson::from(web.app.teams.create_project(&tenant, new.id, new.name).await?);
    Ok(created(&format!("/v1/tenants/{tenant}/projects/{}", made.id), &made))
}

/// Lists a tenant's projects, oldest first
#[utoipa::path(get, path = "/v1/tenants/{t}/projects", tag = "teams",
    params(("t" = String, Path), PageQuery),
    responses((status = 200, description = "A page of projects", body = ListPage<ProjectJson>), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn list_projects(
    access: TenantAccess,
    State(web): State<SharedWebState>,
    Query(paging): Query<PageQuery>,
) -> Result<axum::Json<ListPage<ProjectJson>>, ProblemResponse> {
    let (after, limit) = paging.position_and_limit()?;
    Ok(axum::Json(ListPage::new(web.app.teams.list_projects(&access.tenant, after, limit).await?)))
}

/// Shows a project
#[utoipa::path(get, path = "/v1/tenants/{t}/projects/{p}", tag = "teams",
    params(("t" = String, Path), ("p" = String, Path)),
    responses((status = 200, description = "The project", body = ProjectJson), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn show_project(
    ProjectAccess { access, id: project }: ProjectAccess,
    State(web): State<SharedWebState>,
) -> Result<axum::Json<ProjectJson>, ProblemResponse> {
    Ok(axum::Json(web.app.teams.project(&access.tenant, &project).await?.into()))
}

/// Removes a project with its tasks, messages, delegations and dialogues, for good
///
/// Its agents are removed from it first: their sessions end.
#[utoipa::path(delete, path = "/v1/tenants/{t}/projects/{p}", tag = "teams",
    params(("t" = String, Path), ("p" = String, Path)),
    responses((status = 204, description = "Removed"), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn remove_project(
    ProjectAccess { access, id: project }: ProjectAccess,
    ActingApp(app): ActingApp,
) -> Result<StatusCode, ProblemResponse> {
    app.teams.delete_project(&access.tenant, &project).await?;
    Ok(StatusCode::NO_CONTENT)
}
