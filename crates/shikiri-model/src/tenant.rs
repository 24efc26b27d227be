//! Tenants: the owners of everything else.

use serde::{Deserialize, Serialize};

use crate::ids::TenantId;
use crate::record::{Columns, Document};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenant {
    pub id: TenantId,
    pub name: String,
    #[serde(default)]
    pub system_prompt: String,
    #[serde(default)]
    pub model_id: Option<String>,
    pub status: TenantStatus,
    #[serde(default)]
    pub workspace_enabled: bool,
    #[serde(default)]
    pub limits: Limits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TenantStatus {
    Active,
    Inactive,
}

/// What one tenant may use at once. None: the server's own limit alone counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    #[serde(default)]
    pub max_concurrent_executions: Option<u32>,
    #[serde(default)]
    pub max_streams: Option<u32>,
    #[serde(default)]
    pub requests_per_minute: Option<u32>,
}

impl Tenant {
    pub fn new(id: TenantId, name: String) -> Self {
        Self {
            id,
            name,
            system_prompt: String::new(),
            model_id: None,
            status: TenantStatus::Active,
            workspace_enabled: false,
            limits: Limits::default(),
        }
    }
}

impl TenantStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Inactive => "inactive",
        }
    }
}

impl Document for Tenant {
    const KIND: &'static str = "tenant";

    fn tenant(&self) -> TenantId {
        TenantId::system()
    }

    fn id(&self) -> &str {
        self.id.as_str()
    }

    fn columns(&self) -> Columns {
        Columns { state: self.status.as_str().to_owned(), ..Columns::default() }
    }
}
