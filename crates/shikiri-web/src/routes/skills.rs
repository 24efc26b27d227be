//! `/v1/tenants/{t}/skills`

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use shikiri_app::skills::SkillContent;
use shikiri_model::models::Status;
use utoipa::ToSchema;

use super::created;
use crate::access::{SkillAccess, TenantAccess};
use crate::error::Problem;
use crate::json::Json;
use crate::openapi::{Failures, Guarded};
use crate::query::{Paging, Query};
use crate::state::Shared;
use crate::views::{Page, SkillJson, StatusJson};

/// A new skill; at most 2 MiB in all.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewSkill {
    /// Unique in the tenant: 1 to 64 letters, digits, `_` or `-`.
    #[schema(pattern = "^[A-Za-z0-9_-]{1,64}$")]
    name: String,
    /// At most 1,024 characters.
    description: Option<String>,
    /// `SKILL.md`, at most 256 KiB.
    content: String,
    /// Other files, at most 100, by their path below the skill's folder.
    files: Option<BTreeMap<String, String>>,
    status: Option<StatusJson>,
}

/// The whole skill: what is left out is empty.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WholeSkill {
    /// As in the path, if it is given.
    name: Option<String>,
    description: Option<String>,
    content: String,
    files: Option<BTreeMap<String, String>>,
    status: Option<StatusJson>,
}

fn content(
    description: Option<String>,
    content: String,
    files: Option<BTreeMap<String, String>>,
    status: Option<StatusJson>,
) -> SkillContent {
    SkillContent {
        description: description.unwrap_or_default(),
        content,
        files: files.unwrap_or_default(),
        status: status.map(Status::from).unwrap_or_default(),
    }
}

/// Makes a skill
#[utoipa::path(post, path = "/v1/tenants/{t}/skills", tag = "skills", params(("t" = String, Path)),
    request_body = NewSkill,
    responses((status = 201, description = "The new skill", body = SkillJson), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn create_skill(
    access: TenantAccess,
    State(web): State<Shared>,
    Json(new): Json<NewSkill>,
) -> Result<Response, Problem> {
    let content = content(new.description, new.content, new.files, new.status);
    let stored = web.app.create_skill(&access.tenant, new.name, content).await?;
    Ok(made(&access, stored.into()))
}

fn made(access: &TenantAccess, skill: SkillJson) -> Response {
    created(&format!("/v1/tenants/{}/skills/{}", access.tenant, skill.name), &skill)
}

/// Lists a tenant's skills
#[utoipa::path(get, path = "/v1/tenants/{t}/skills", tag = "skills",
    params(("t" = String, Path), Paging),
    responses((status = 200, description = "A page of skills", body = Page<SkillJson>), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn list_skills(
    access: TenantAccess,
    State(web): State<Shared>,
    Query(paging): Query<Paging>,
) -> Result<axum::Json<Page<SkillJson>>, Problem> {
    let (after, limit) = paging.read()?;
    Ok(axum::Json(Page::new(web.app.list_skills(&access.tenant, after, limit).await?)))
}

/// Shows a skill
#[utoipa::path(get, path = "/v1/tenants/{t}/skills/{name}", tag = "skills",
    params(("t" = String, Path), ("name" = String, Path)),
    responses((status = 200, description = "The skill", body = SkillJson), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn show_skill(
    SkillAccess { access, name }: SkillAccess,
    State(web): State<Shared>,
) -> Result<axum::Json<SkillJson>, Problem> {
    Ok(axum::Json(web.app.skill(&access.tenant, &name).await?.into()))
}

/// Makes a skill, or replaces the whole of it
#[utoipa::path(put, path = "/v1/tenants/{t}/skills/{name}", tag = "skills",
    params(("t" = String, Path), ("name" = String, Path)), request_body = WholeSkill,
    responses(
        (status = 200, description = "The skill, replaced", body = SkillJson),
        (status = 201, description = "The new skill", body = SkillJson),
        Guarded, Failures,
    ), security(("key" = [])))]
pub(crate) async fn put_skill(
    SkillAccess { access, name }: SkillAccess,
    State(web): State<Shared>,
    Json(whole): Json<WholeSkill>,
) -> Result<Response, Problem> {
    if whole.name.as_ref().is_some_and(|given| *given != name) {
        return Err(Problem::invalid(
            "name",
            "is not the name in the path: a skill keeps its name",
        ));
    }
    let content = content(whole.description, whole.content, whole.files, whole.status);
    let (stored, is_new) = web.app.put_skill(&access.tenant, name, content).await?;
    let skill = SkillJson::from(stored);
    Ok(if is_new { made(&access, skill) } else { axum::Json(skill).into_response() })
}

/// Removes a skill
#[utoipa::path(delete, path = "/v1/tenants/{t}/skills/{name}", tag = "skills",
    params(("t" = String, Path), ("name" = String, Path)),
    responses((status = 204, description = "Removed"), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn remove_skill(
    SkillAccess { access, name }: SkillAccess,
    State(web): State<Shared>,
) -> Result<StatusCode, Problem> {
    web.app.delete_skill(&access.tenant, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}
