use serde::{Deserialize, Serialize};
use shikiri_model::ids::TenantId;
use shikiri_model::record::Stored;
use shikiri_model::tenant::{EgressPolicy, Tenant, TenantStatus, TenantUse};
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
    egress: EgressJson,
    limits: LimitsJson,
    /// What it has in use, where one tenant is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) r#use: Option<TenantUseJson>,
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

/// Where runs may connect to besides their own model API, tools and MCP servers: nowhere, public
/// addresses, or private ones too. The host's own addresses are never reachable.
#[derive(Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = EgressPolicy)]
pub enum EgressJson {
    None,
    Public,
    Open,
}

/// What one tenant may use at once; null: the server's own limit alone counts.
#[derive(Serialize, ToSchema)]
#[schema(as = Limits)]
struct LimitsJson {
    max_concurrent_executions: Option<u32>,
    max_streams: Option<u32>,
    requests_per_minute: Option<u32>,
    /// Bytes of events, records, workspaces and engine homes.
    stored_bytes: Option<u64>,
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

impl From<Status> for TenantStatus {
    fn from(status: Status) -> Self {
        match status {
            Status::Active => Self::Active,
            Status::Inactive => Self::Inactive,
        }
    }
}

impl From<EgressJson> for EgressPolicy {
    fn from(egress: EgressJson) -> Self {
        match egress {
            EgressJson::None => Self::None,
            EgressJson::Public => Self::Public,
            EgressJson::Open => Self::Open,
        }
    }
}

impl From<EgressPolicy> for EgressJson {
    fn from(egress: EgressPolicy) -> Self {
        match egress {
            EgressPolicy::None => Self::None,
            EgressPolicy::Public => Self::Public,
            EgressPolicy::Open => Self::Open,
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
            egress: tenant.egress.into(),
            limits: LimitsJson {
                max_concurrent_executions: tenant.limits.max_concurrent_executions,
                max_streams: tenant.limits.max_streams,
                requests_per_minute: tenant.limits.requests_per_minute,
                stored_bytes: tenant.limits.stored_bytes,
            },
            r#use: None,
            created_at: stored.created_at,
            updated_at: stored.updated_at,
        }
    }
}
