//! `/v1/tenants`

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use shikiri_model::ids::TenantId;
use shikiri_model::tenant::{EgressPolicy, TenantStatus};
use shikiri_tenancy::tenants::{LimitsPatch, TenantPatch};
use utoipa::ToSchema;

use super::created;
use crate::access_extractors::{ActingApp, AdminAccess, TenantManagement};
use crate::json_extractor::{Json, JsonObject, some};
use crate::openapi::{FailureResponses, GuardedResponses};
use crate::problem_response::ProblemResponse;
use crate::query_extractor::{PageQuery, Query};
use crate::views::{EgressSchema, ListPage, TenantJson, TenantStatusSchema};
use crate::web_state::SharedWebState;

/// A new tenant; everything may be left out.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewTenant)]
pub(crate) struct NewTenantBody {
    /// 1 to 100 letters, digits, `_` or `-`.
    #[schema(value_type = Option<String>, pattern = "^[A-Za-z0-9_-]{1,100}$")]
    id: Option<TenantId>,
    name: Option<String>,
    system_prompt: Option<String>,
    model_id: Option<String>,
    #[schema(value_type = Option<TenantStatusSchema>)]
    status: Option<TenantStatus>,
    workspace_enabled: Option<bool>,
    #[schema(value_type = Option<EgressSchema>)]
    egress: Option<EgressPolicy>,
    #[schema(value_type = Option<TenantLimitsBody>)]
    limits: Option<JsonObject<TenantLimitsBody>>,
}

/// What is left out stays as it is.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = TenantChange)]
pub(crate) struct TenantChangeBody {
    name: Option<String>,
    system_prompt: Option<String>,
    #[serde(default, deserialize_with = "some")]
    #[schema(value_type = Option<String>)]
    model_id: Option<Option<String>>,
    /// Needs the admin key.
    #[schema(value_type = Option<TenantStatusSchema>)]
    status: Option<TenantStatus>,
    workspace_enabled: Option<bool>,
    /// Needs the admin key.
    #[schema(value_type = Option<EgressSchema>)]
    egress: Option<EgressPolicy>,
    /// Needs the admin key.
    #[schema(value_type = Option<TenantLimitsBody>)]
    limits: Option<JsonObject<TenantLimitsBody>>,
}

/// What is left out stays as it is; null lifts the limit.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = LimitsChange)]
struct TenantLimitsBody {
    #[serde(default, deserialize_with = "some")]
    #[schema(value_type = Option<u32>)]
    max_concurrent_executions: Option<Option<u32>>,
    #[serde(default, deserialize_with = "some")]
    #[schema(value_type = Option<u32>)]
    max_streams: Option<Option<u32>>,
    #[serde(default, deserialize_with = "some")]
    #[schema(value_type = Option<u32>)]
    requests_per_minute: Option<Option<u32>>,
    /// Bytes of events, records, workspaces and engine homes.
    #[serde(default, deserialize_with = "some")]
    #[schema(value_type = Option<u64>)]
    stored_bytes: Option<Option<u64>>,
}

impl From<TenantLimitsBody> for LimitsPatch {
    fn from(change: TenantLimitsBody) -> Self {
        Self {
            max_concurrent_executions: change.max_concurrent_executions,
            max_streams: change.max_streams,
            requests_per_minute: change.requests_per_minute,
            stored_bytes: change.stored_bytes,
        }
    }
}

/// Makes a tenant (admin)
#[utoipa::path(post, path = "/v1/tenants", tag = "tenants", request_body = NewTenantBody,
    responses((status = 201, description = "The new tenant", body = TenantJson), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn create_tenant(
    _: AdminAccess,
    ActingApp(app): ActingApp,
    Json(new): Json<NewTenantBody>,
) -> Result<Response, ProblemResponse> {
    let patch = TenantPatch {
        name: new.name,
        system_prompt: new.system_prompt,
        model_id: new.model_id.map(Some),
        status: new.status,
        workspace_enabled: new.workspace_enabled,
        egress: new.egress,
        limits: new.limits.map(|JsonObject(limits)| limits.into()).unwrap_or_default(),
    };
    let tenant = TenantJson::from(app.tenancy.create_tenant(new.id, patch).await?);
    Ok(created(&format!("/v1/tenants/{}", tenant.id), &tenant))
}

/// Lists the tenants (admin)
#[utoipa::path(get, path = "/v1/tenants", tag = "tenants", params(PageQuery),
    responses((status = 200, description = "A page of tenants", body = ListPage<TenantJson>), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn list_tenants(
    _: AdminAccess,
    State(web): State<SharedWebState>,
    Query(paging): Query<PageQuery>,
) -> Result<axum::Json<ListPage<TenantJson>>, ProblemResponse> {
    let (after, limit) = paging.position_and_limit()?;
    Ok(axum::Json(ListPage::new(web.app.tenancy.list_tenants(after, limit).await?)))
}

/// Shows a tenant
#[utoipa::path(get, path = "/v1/tenants/{t}", tag = "tenants", params(("t" = String, Path)),
    responses((status = 200, description = "The tenant", body = TenantJson), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn show_tenant(
    access: TenantManagement,
    State(web): State<SharedWebState>,
) -> Result<axum::Json<TenantJson>, ProblemResponse> {
    let tenant = TenantJson::from(web.app.runtime.tenant(&access.tenant).await?);
    Ok(axum::Json(tenant.with_use(web.gate.tenant_use(&access.tenant).await)))
}

/// Changes a tenant
#[utoipa::path(patch, path = "/v1/tenants/{t}", tag = "tenants", params(("t" = String, Path)),
    request_body = TenantChangeBody,
    responses((status = 200, description = "The tenant", body = TenantJson), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn change_tenant(
    access: TenantManagement,
    ActingApp(app): ActingApp,
    State(web): State<SharedWebState>,
    Json(change): Json<TenantChangeBody>,
) -> Result<axum::Json<TenantJson>, ProblemResponse> {
    if change.status.is_some() || change.limits.is_some() || change.egress.is_some() {
        access.require_admin("changing status, limits or egress")?;
    }
    let patch = TenantPatch {
        name: change.name,
        system_prompt: change.system_prompt,
        model_id: change.model_id,
        status: change.status,
        workspace_enabled: change.workspace_enabled,
        egress: change.egress,
        limits: change.limits.map(|JsonObject(limits)| limits.into()).unwrap_or_default(),
    };
    let stored = app.tenancy.update_tenant(&access.tenant, patch).await?;
    web.gate.forget_tenants();
    Ok(axum::Json(stored.into()))
}

/// Removes a tenant with all that it owns, for good (admin)
#[utoipa::path(delete, path = "/v1/tenants/{t}", tag = "tenants", params(("t" = String, Path)),
    responses((status = 204, description = "Removed"), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn remove_tenant(
    access: TenantManagement,
    ActingApp(app): ActingApp,
    State(web): State<SharedWebState>,
) -> Result<StatusCode, ProblemResponse> {
    access.require_admin("removing a tenant")?;
    app.delete_tenant(&access.tenant).await?;
    web.gate.forget_tenants();
    web.gate.forget_keys();
    Ok(StatusCode::NO_CONTENT)
}
