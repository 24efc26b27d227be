//! Tenants: the owners of everything else.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::ids::TenantId;
use crate::record::{Columns, Document};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
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
    pub egress: EgressPolicy,
    #[serde(default = "limits_not_set")]
    pub limits: Limits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TenantStatus {
    Active,
    Inactive,
}

/// Where the runs of a tenant may connect to, besides what belongs to the run itself: its model API,
/// its tools and its MCP servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EgressPolicy {
    /// Nowhere else.
    None,
    /// Public addresses.
    #[default]
    Public,
    /// Private addresses too, but never this host's own.
    Open,
}

/// What one tenant may use. None: only the server's own limit counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredLimits")]
pub struct Limits {
    pub max_concurrent_executions: Option<u32>,
    pub max_streams: Option<u32>,
    pub requests_per_minute: Option<u32>,
    /// Bytes of events, records, workspaces and engine homes.
    pub stored_bytes: Option<u64>,
    /// Read from a record that was written before tenants had default limits.
    #[serde(skip)]
    predates_defaults: bool,
}

pub const DEFAULT_STORED_BYTES: u64 = 10 * 1024 * 1024 * 1024;

impl Limits {
    /// The limits of a fresh tenant. `local` is the person at this machine: it has none.
    pub fn default_for(tenant: &TenantId) -> Self {
        if *tenant == TenantId::local() {
            return Self::default();
        }
        Self {
            max_concurrent_executions: Some(128),
            max_streams: Some(1_000),
            requests_per_minute: Some(6_000),
            stored_bytes: Some(DEFAULT_STORED_BYTES),
            predates_defaults: false,
        }
    }

    /// Older records hold null for every limit that nobody set, so null there means "not set".
    /// Since there are defaults, null means "no limit".
    fn with_defaults_for(self, tenant: &TenantId) -> Self {
        if !self.predates_defaults {
            return self;
        }
        let default = Self::default_for(tenant);
        Self {
            max_concurrent_executions: self
                .max_concurrent_executions
                .or(default.max_concurrent_executions),
            max_streams: self.max_streams.or(default.max_streams),
            requests_per_minute: self.requests_per_minute.or(default.requests_per_minute),
            ..default
        }
    }
}

/// Limits as a record holds them. Records from before the defaults have no `stored_bytes`.
#[derive(Deserialize)]
struct StoredLimits {
    #[serde(default)]
    max_concurrent_executions: Option<u32>,
    #[serde(default)]
    max_streams: Option<u32>,
    #[serde(default)]
    requests_per_minute: Option<u32>,
    #[serde(default, deserialize_with = "present")]
    stored_bytes: Option<Option<u64>>,
}

/// Tells null from a field that is missing.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<u64>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

impl From<StoredLimits> for Limits {
    fn from(stored: StoredLimits) -> Self {
        Self {
            max_concurrent_executions: stored.max_concurrent_executions,
            max_streams: stored.max_streams,
            requests_per_minute: stored.requests_per_minute,
            stored_bytes: stored.stored_bytes.flatten(),
            predates_defaults: stored.stored_bytes.is_none(),
        }
    }
}

impl Serialize for Tenant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for Tenant {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut tenant = Self::deserialize(deserializer)?;
        tenant.limits = tenant.limits.with_defaults_for(&tenant.id);
        Ok(tenant)
    }
}

/// What a tenant has in use, as far as this node knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantUse {
    pub stored_bytes: u64,
    pub streams: u32,
    pub executions: u32,
}

impl Tenant {
    pub fn new(id: TenantId, name: String) -> Self {
        Self {
            limits: Limits::default_for(&id),
            id,
            name,
            system_prompt: String::new(),
            model_id: None,
            status: TenantStatus::Active,
            workspace_enabled: false,
            egress: EgressPolicy::default(),
        }
    }
}

/// Of a record that says nothing of limits.
fn limits_not_set() -> Limits {
    Limits { predates_defaults: true, ..Limits::default() }
}

impl TenantStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Inactive => "inactive",
        }
    }
}

impl EgressPolicy {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Public => "public",
            Self::Open => "open",
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

#[cfg(test)]
mod tests {
    use super::*;

    fn read(id: &str, limits: &str) -> Limits {
        let text = format!(r#"{{"id":"{id}","name":"n","status":"active"{limits}}}"#);
        serde_json::from_str::<Tenant>(&text).unwrap().limits
    }

    #[test]
    fn tenants_without_limits_get_the_defaults_and_local_has_none() {
        let acme: TenantId = "acme".parse().unwrap();
        let default = Limits::default_for(&acme);
        let old = r#","limits":{"max_concurrent_executions":null,"max_streams":5,"requests_per_minute":null}"#;
        assert_eq!(Tenant::new(acme, "Acme".to_owned()).limits, default);
        assert_eq!(read("acme", ""), default);
        assert_eq!(read("acme", old), Limits { max_streams: Some(5), ..default });
        assert_eq!(read("local", ""), Limits::default());
        assert_eq!(read("local", old), Limits { max_streams: Some(5), ..Limits::default() });
    }

    #[test]
    fn a_limit_that_was_lifted_stays_lifted() {
        let mut tenant = Tenant::new("acme".parse().unwrap(), "Acme".to_owned());
        tenant.limits = Limits { max_streams: Some(3), ..Limits::default() };
        let text = serde_json::to_string(&tenant).unwrap();
        assert!(text.contains(r#""stored_bytes":null"#), "{text}");
        assert_eq!(serde_json::from_str::<Tenant>(&text).unwrap(), tenant);
    }
}
