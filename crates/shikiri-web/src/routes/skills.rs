//! `/v1/tenants/{t}/skills`

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use shikiri_executions::skills::SkillContent;
use shikiri_model::models::ActiveStatus;
use utoipa::ToSchema;

use super::created;
use crate::access_extractors::TenantAccess;
use crate::json_extractor::Json;
use crate::openapi::{FailureResponses, GuardedResponses};
use crate::path_items::SkillAccess;
use crate::problem_response::ProblemResponse;
use crate::query_extractor::{PageQuery, Query};
use crate::views::{ActiveStatusSchema, ListPage, SkillJson};
use crate::web_state::SharedWebState;

/// A new skill; at most 2 MiB in all.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewSkill)]
pub(crate) struct NewSkillBody {
    /// Unique in the tenant: 1 to 64 letters, digits, `_` or `-`.
    #[schema(pattern = "^[A-Za-z0-9_-]{1,64}$")]
    name: String,
    /// At most 1,024 characters.
    description: Option<String>,
    /// `SKILL.md`, at most 256 KiB.
    content: String,
    /// Other files, at most 100, by their path below the skill's folder.
    files: Option<BTreeMap<String, String>>,
    #[schema(value_type = Option<ActiveStatusSchema>)]
    status: Option<ActiveStatus>,
}

/// The whole skill: what is left out is empty.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = WholeSkill)]
pub(crate) struct ReplaceSkillBody {
    /// As in the path, if it is given.
    name: Option<String>,
    description: Option<String>,
    content: String,
    files: Option<BTreeMap<String, String>>,
    #[schema(value_type = Option<ActiveStatusSchema>)]
    status: Option<ActiveStatus>,
}

fn content(
    description: Option<String>,
    content: String,
    files: Option<BTreeMap<String, String>>,
    status: Option<ActiveStatus>,
) -> SkillContent {
    SkillContent {
        description: description.unwrap_or_default(),
        content,
        files: files.unwrap_or_default(),
        status: status.unwrap_or_default(),
    }
}

/// Makes a skill
#[utoipa::path(post, path = "/v1/tenants/{t}/skills", tag = "skills", params(("t" = String, Path)),
    request_body = NewSkillBody,
    responses((status = 201, description = "The new skill", body = SkillJson), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn create_skill(
    access: TenantAccess,
    State(web): State<SharedWebState>,
    Json(new): Json<NewSkillBody>,
) -> Result<Response, ProblemResponse> {
    let content = content(new.description, new.content, new.files, new.status);
    let stored = web.app.executions.create_skill(&access.tenant, new.name, content).await?;
    Ok(created_response(&access, stored.into()))
}

fn created_response(access: &TenantAccess, skill: SkillJson) -> Response {
    created(&format!("/v1/tenants/{}/skills/{}", access.tenant, skill.name), &skill)
}

/// Lists a tenant's skills
#[utoipa::path(get, path = "/v1/tenants/{t}/skills", tag = "skills",
    params(("t" = String, Path), PageQuery),
    responses((status = 200, description = "A page of skills", body = ListPage<SkillJson>), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn list_skills(
    access: TenantAccess,
    State(web): State<SharedWebState>,
    Query(paging): Query<PageQuery>,
) -> Result<axum::Json<ListPage<SkillJson>>, ProblemResponse> {
    let (after, limit) = paging.position_and_limit()?;
    Ok(axum::Json(ListPage::new(
        web.app.executions.list_skills(&access.tenant, after, limit).await?,
    )))
}

/// Shows a skill
#[utoipa::path(get, path = "/v1/tenants/{t}/skills/{name}", tag = "skills",
    params(("t" = String, Path), ("name" = String, Path)),
    responses((status = 200, description = "The skill", body = SkillJson), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn show_skill(
    SkillAccess { access, id: name }: SkillAccess,
    State(web): State<SharedWebState>,
) -> Result<axum::Json<SkillJson>, ProblemResponse> {
    Ok(axum::Json(web.app.executions.skill(&access.tenant, &name).await?.into()))
}

/// Makes a skill, or replaces the whole of it
#[utoipa::path(put, path = "/v1/tenants/{t}/skills/{name}", tag = "skills",
    params(("t" = String, Path), ("name" = String, Path)), request_body = ReplaceSkillBody,
    responses(
        (status = 200, description = "The skill, replaced", body = SkillJson),
        (status = 201, description = "The new skill", body = SkillJson),
        GuardedResponses, FailureResponses,
    ), security(("key" = [])))]
pub(crate) async fn put_skill(
    SkillAccess { access, id: name }: SkillAccess,
    State(web): State<SharedWebState>,
    Json(whole): Json<ReplaceSkillBody>,
) -> Result<Response, ProblemResponse> {
    if whole.name.as_ref().is_some_and(|given| *given != name) {
        return Err(ProblemResponse::invalid(
            "name",
            "is not the name in the path: a skill keeps its name",
        ));
    }
    let content = content(whole.description, whole.content, whole.files, whole.status);
    let (stored, is_new) = web.app.executions.put_skill(&access.tenant, name, content).await?;
    let skill = SkillJson::from(stored);
    Ok(if is_new { created_response(&access, skill) } else { axum::Json(skill).into_response() })
}

/// Removes a skill
#[utoipa::path(delete, path = "/v1/tenants/{t}/skills/{name}", tag = "skills",
    params(("t" = String, Path), ("name" = String, Path)),
    responses((status = 204, description = "Removed"), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn remove_skill(
    SkillAccess { access, id: name }: SkillAccess,
    State(web): State<SharedWebState>,
) -> Result<StatusCode, ProblemResponse> {
    web.app.executions.delete_skill(&access.tenant, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}
