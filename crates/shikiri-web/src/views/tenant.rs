use serde::Serialize;
use shikiri_model::ids::TenantId;
use shikiri_model::record::StoredDocument;
use shikiri_model::tenant::{EgressPolicy, Tenant, TenantLimits, TenantStatus, TenantUse};
use shikiri_model::time::Timestamp;
use utoipa::ToSchema;

use super::schemas::LimitsSchema;
use super::words::{EgressSchema, TenantStatusSchema};

/// Owner of everything else.
#[derive(Serialize, ToSchema)]
#[schema(as = Tenant)]
pub struct TenantJson {
    #[schema(value_type = String)]
    pub(crate) id: TenantId,
    name: String,
    system_prompt: String,
    model_id: Option<String>,
    #[schema(value_type = TenantStatusSchema)]
    status: TenantStatus,
    workspace_enabled: bool,
    #[schema(value_type = EgressSchema)]
    egress: EgressPolicy,
    #[schema(value_type = LimitsSchema)]
    limits: TenantLimits,
    /// What it has in use, where one tenant is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) r#use: Option<TenantUseJson>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
}

/// What a tenant has in use, as far as this node knows.
#[derive(Serialize, ToSchema)]
#[schema(as = TenantUse)]
pub(crate) struct TenantUseJson {
    stored_bytes: u64,
    executions: u32,
    streams: u32,
}

impl From<TenantUse> for TenantUseJson {
    fn from(used: TenantUse) -> Self {
        Self { stored_bytes: used.stored_bytes, executions: used.executions, streams: used.streams }
    }
}

impl TenantJson {
    #[must_use]
    pub fn with_use(mut self, used: TenantUse) -> Self {
        self.r#use = Some(used.into());
        self
    }
}

impl From<StoredDocument<Tenant>> for TenantJson {
    fn from(stored: StoredDocument<Tenant>) -> Self {
        let tenant = stored.value;
        Self {
            id: tenant.id,
            name: tenant.name,
            system_prompt: tenant.system_prompt,
            model_id: tenant.model_id,
            status: tenant.status,
            workspace_enabled: tenant.workspace_enabled,
            egress: tenant.egress,
            limits: tenant.limits,
            r#use: None,
            created_at: stored.created_at,
            updated_at: stored.updated_at,
        }
    }
}
