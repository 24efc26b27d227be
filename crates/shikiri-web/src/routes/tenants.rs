//! `/v1/tenants`

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use shikiri_app::tenants::{LimitsPatch, TenantPatch};
use shikiri_model::ids::TenantId;
use shikiri_model::tenant::{EgressPolicy, TenantStatus};
use utoipa::ToSchema;

use super::created;
use crate::access::{ActingApp, Admin, TenantManagement};
use crate::error::Problem;
use crate::json::{Json, Object, some};
use crate::openapi::{Failures, Guarded};
use crate::query::{Paging, Query};
use crate::state::Shared;
use crate::views::{EgressJson, Page, TenantJson, TenantStatusJson};

/// A new tenant; everything may be left out.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewTenant {
    /// 1 to 100 letters, digits, `_` or `-`.
    #[schema(value_type = Option<String>, pattern = "^[A-Za-z0-9_-]{1,100}$")]
    id: Option<TenantId>,
    name: Option<String>,
    system_prompt: Option<String>,
    model_id: Option<String>,
    status: Option<TenantStatusJson>,
    workspace_enabled: Option<bool>,
    egress: Option<EgressJson>,
    #[schema(value_type = Option<LimitsChange>)]
    limits: Option<Object<LimitsChange>>,
}

/// What is left out stays as it is.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TenantChange {
    name: Option<String>,
    system_prompt: Option<String>,
    #[serde(default, deserialize_with = "some")]
    #[schema(value_type = Option<String>)]
    model_id: Option<Option<String>>,
    /// Needs the admin key.
    status: Option<TenantStatusJson>,
    workspace_enabled: Option<bool>,
    /// Needs the admin key.
    egress: Option<EgressJson>,
    /// Needs the admin key.
    #[schema(value_type = Option<LimitsChange>)]
    limits: Option<Object<LimitsChange>>,
}

/// What is left out stays as it is; null lifts the limit.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct LimitsChange {
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

impl From<LimitsChange> for LimitsPatch {
    fn from(change: LimitsChange) -> Self {
        Self {
            max_concurrent_executions: change.max_concurrent_executions,
            max_streams: change.max_streams,
            requests_per_minute: change.requests_per_minute,
            stored_bytes: change.stored_bytes,
        }
    }
}

/// Makes a tenant (admin)
#[utoipa::path(post, path = "/v1/tenants", tag = "tenants", request_body = NewTenant,
    responses((status = 201, description = "The new tenant", body = TenantJson), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn create_tenant(
    _: Admin,
    ActingApp(app): ActingApp,
    Json(new): Json<NewTenant>,
) -> Result<Response, Problem> {
    let patch = TenantPatch {
        name: new.name,
        system_prompt: new.system_prompt,
        model_id: new.model_id.map(Some),
        status: new.status.map(TenantStatus::from),
        workspace_enabled: new.workspace_enabled,
        egress: new.egress.map(EgressPolicy::from),
        limits: new.limits.map(|Object(limits)| limits.into()).unwrap_or_default(),
    };
    let tenant = TenantJson::from(app.create_tenant(new.id, patch).await?);
    Ok(created(&format!("/v1/tenants/{}", tenant.id), &tenant))
}

/// Lists the tenants (admin)
#[utoipa::path(get, path = "/v1/tenants", tag = "tenants", params(Paging),
    responses((status = 200, description = "A page of tenants", body = Page<TenantJson>), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn list_tenants(
    _: Admin,
    State(web): State<Shared>,
    Query(paging): Query<Paging>,
) -> Result<axum::Json<Page<TenantJson>>, Problem> {
    let (after, limit) = paging.read()?;
    Ok(axum::Json(Page::new(web.app.list_tenants(after, limit).await?)))
}

/// Shows a tenant
#[utoipa::path(get, path = "/v1/tenants/{t}", tag = "tenants", params(("t" = String, Path)),
    responses((status = 200, description = "The tenant", body = TenantJson), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn show_tenant(
    access: TenantManagement,
    State(web): State<Shared>,
) -> Result<axum::Json<TenantJson>, Problem> {
    let tenant = TenantJson::from(web.app.tenant(&access.tenant).await?);
    Ok(axum::Json(tenant.with_use(web.gate.tenant_use(&access.tenant).await?)))
}

/// Changes a tenant
#[utoipa::path(patch, path = "/v1/tenants/{t}", tag = "tenants", params(("t" = String, Path)),
    request_body = TenantChange,
    responses((status = 200, description = "The tenant", body = TenantJson), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn change_tenant(
    access: TenantManagement,
    ActingApp(app): ActingApp,
    State(web): State<Shared>,
    Json(change): Json<TenantChange>,
) -> Result<axum::Json<TenantJson>, Problem> {
    if change.status.is_some() || change.limits.is_some() || change.egress.is_some() {
        access.require_admin("changing status, limits or egress")?;
    }
    let patch = TenantPatch {
        name: change.name,
        system_prompt: change.system_prompt,
        model_id: change.model_id,
        status: change.status.map(TenantStatus::from),
        workspace_enabled: change.workspace_enabled,
        egress: change.egress.map(EgressPolicy::from),
        limits: change.limits.map(|Object(limits)| limits.into()).unwrap_or_default(),
    };
    let stored = app.update_tenant(&access.tenant, patch).await?;
    web.gate.forget_tenants();
    Ok(axum::Json(stored.into()))
}

/// Removes a tenant with all that it owns, for good (admin)
#[utoipa::path(delete, path = "/v1/tenants/{t}", tag = "tenants", params(("t" = String, Path)),
    responses((status = 204, description = "Removed"), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn remove_tenant(
    access: TenantManagement,
    ActingApp(app): ActingApp,
    State(web): State<Shared>,
) -> Result<StatusCode, Problem> {
    access.require_admin("removing a tenant")?;
    app.delete_tenant(&access.tenant).await?;
    web.gate.forget_tenants();
    web.gate.forget_keys();
    Ok(StatusCode::NO_CONTENT)
}
