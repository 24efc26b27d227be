use serde::{Deserialize, Serialize};
use shikiri_model::ids::TenantId;
use shikiri_model::record::Stored;
use shikiri_model::tenant::{Tenant, TenantStatus};
use shikiri_model::time::Timestamp;
use utoipa::ToSchema;

/// Owner of everything else.
#[derive(Serialize, ToSchema)]
#[schema(as = Tenant)]
pub struct TenantJson {
    #[schema(value_type = String)]
    pub(crate) id: TenantId,
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
pub enum Status {
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
