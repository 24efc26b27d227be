//! `/v1/tenants`

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Deserializer, Serialize};
use shikiri_app::tenants::TenantPatch;
use shikiri_model::ids::TenantId;
use shikiri_model::record::Stored;
use shikiri_model::tenant::{Limits, Tenant, TenantStatus};
use shikiri_model::time::Timestamp;
use utoipa::ToSchema;

use super::created;
use crate::access::{Admin, TenantManagement};
use crate::error::Problem;
use crate::json::Json;
use crate::openapi::{Failures, Guarded};
use crate::query::{Page, Paging, Query};
use crate::state::Shared;

/// Owner of everything else.
#[derive(Serialize, ToSchema)]
#[schema(as = Tenant)]
pub(crate) struct TenantJson {
    #[schema(value_type = String)]
    id: TenantId,
    name: String,
    system_prompt: String,
    model_id: Option<String>,
    status: Status,
    workspace_enabled: bool,
    limits: LimitsJson,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
}

#[derive(Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = TenantStatus)]
pub(crate) enum Status {
    Active,
    Inactive,
}

/// What one tenant may use at once; null: the server's own limit alone counts.
#[derive(Serialize, ToSchema)]
#[schema(as = Limits)]
struct LimitsJson {
    max_concurrent_executions: Option<u32>,
    max_streams: Option<u32>,
    requests_per_minute: Option<u32>,
}

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
    status: Option<Status>,
    workspace_enabled: Option<bool>,
    limits: Option<LimitsChange>,
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
    status: Option<Status>,
    workspace_enabled: Option<bool>,
    /// Needs the admin key.
    limits: Option<LimitsChange>,
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
}

/// Tells `null` from a field that was left out.
fn some<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    T::deserialize(deserializer).map(Some)
}

impl LimitsChange {
    fn over(self, limits: Limits) -> Limits {
        Limits {
            max_concurrent_executions: self
                .max_concurrent_executions
                .unwrap_or(limits.max_concurrent_executions),
            max_streams: self.max_streams.unwrap_or(limits.max_streams),
            requests_per_minute: self.requests_per_minute.unwrap_or(limits.requests_per_minute),
        }
    }
}

impl From<Status> for TenantStatus {
    fn from(status: Status) -> Self {
        match status {
            Status::Active => Self::Active,
            Status::Inactive => Self::Inactive,
        }
    }
}

impl From<Stored<Tenant>> for TenantJson {
    fn from(stored: Stored<Tenant>) -> Self {
        let tenant = stored.value;
        Self {
            id: tenant.id,
            name: tenant.name,
            system_prompt: tenant.system_prompt,
            model_id: tenant.model_id,
            status: match tenant.status {
                TenantStatus::Active => Status::Active,
                TenantStatus::Inactive => Status::Inactive,
            },
            workspace_enabled: tenant.workspace_enabled,
            limits: LimitsJson {
                max_concurrent_executions: tenant.limits.max_concurrent_executions,
                max_streams: tenant.limits.max_streams,
                requests_per_minute: tenant.limits.requests_per_minute,
            },
            created_at: stored.created_at,
            updated_at: stored.updated_at,
        }
    }
}

/// Makes a tenant (admin)
#[utoipa::path(post, path = "/v1/tenants", tag = "tenants", request_body = NewTenant,
    responses((status = 201, description = "The new tenant", body = TenantJson), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn create_tenant(
    _: Admin,
    State(web): State<Shared>,
    Json(new): Json<NewTenant>,
) -> Result<Response, Problem> {
    let patch = TenantPatch {
        name: new.name,
        system_prompt: new.system_prompt,
        model_id: new.model_id.map(Some),
        status: new.status.map(TenantStatus::from),
        workspace_enabled: new.workspace_enabled,
        limits: new.limits.map(|limits| limits.over(Limits::default())),
    };
    let tenant = TenantJson::from(web.app.create_tenant(new.id, patch).await?);
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
    Ok(axum::Json(web.app.tenant(&access.tenant).await?.into()))
}

/// Changes a tenant
#[utoipa::path(patch, path = "/v1/tenants/{t}", tag = "tenants", params(("t" = String, Path)),
    request_body = TenantChange,
    responses((status = 200, description = "The tenant", body = TenantJson), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn change_tenant(
    access: TenantManagement,
    State(web): State<Shared>,
    Json(change): Json<TenantChange>,
) -> Result<axum::Json<TenantJson>, Problem> {
    if change.status.is_some() || change.limits.is_some() {
        access.require_admin("changing status or limits")?;
    }
    let limits = match change.limits {
        Some(limits) => Some(limits.over(web.app.tenant(&access.tenant).await?.value.limits)),
        None => None,
    };
    let patch = TenantPatch {
        name: change.name,
        system_prompt: change.system_prompt,
        model_id: change.model_id,
        status: change.status.map(TenantStatus::from),
        workspace_enabled: change.workspace_enabled,
        limits,
    };
    let stored = web.app.update_tenant(&access.tenant, patch).await?;
    web.tenants.forget_all();
    Ok(axum::Json(stored.into()))
}

/// Removes a tenant with all that it owns, for good (admin)
#[utoipa::path(delete, path = "/v1/tenants/{t}", tag = "tenants", params(("t" = String, Path)),
    responses((status = 204, description = "Removed"), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn remove_tenant(
    access: TenantManagement,
    State(web): State<Shared>,
) -> Result<StatusCode, Problem> {
    access.require_admin("removing a tenant")?;
    web.app.delete_tenant(&access.tenant).await?;
    web.tenants.forget_all();
    web.keys.forget_all();
    Ok(StatusCode::NO_CONTENT)
}
