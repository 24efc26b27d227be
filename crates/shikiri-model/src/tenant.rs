//! Tenants: the owners of everything else.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::ids::TenantId;
use crate::macros::{document, text_enum};
use crate::record::RecordColumns;

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
    pub limits: TenantLimits,
}

text_enum! {
    pub enum TenantStatus {
        Active = "active",
        Inactive = "inactive",
    }
}

text_enum! {
    /// The addresses that a tenant's runs may connect to, besides those that belong to the run
    /// itself: its model API, its tools and its MCP servers.
    #[derive(Default)]
    pub enum EgressPolicy {
        /// No other address.
        None = "none",
        /// Public addresses.
        #[default]
        Public = "public",
        /// Public and private addresses, but never this host's own.
        Open = "open",
    }
}

/// The limits of one tenant. None: only the server's own limit applies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredLimits")]
pub struct TenantLimits {
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

impl TenantLimits {
    /// The limits of a new tenant. `local` is the person at this machine and has no limits.
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

    /// Before there were default limits, null in a record meant "not set". Since then, null means
    /// "no limit".
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

/// Limits as a record stores them. Records from before the defaults have no `stored_bytes`.
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

/// Distinguishes null from a missing field.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<u64>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

impl From<StoredLimits> for TenantLimits {
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

/// What a tenant uses at present, as far as this node knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantUse {
    pub stored_bytes: u64,
    pub streams: u32,
    pub executions: u32,
}

impl Tenant {
    pub fn new(id: TenantId, name: String) -> Self {
        Self {
            limits: TenantLimits::default_for(&id),
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

/// The limits of a record without a `limits` field.
fn limits_not_set() -> TenantLimits {
    TenantLimits { predates_defaults: true, ..TenantLimits::default() }
}

document!(Tenant, "tenant", system, id, |tenant| RecordColumns::in_state(tenant.status.as_str()));

#[cfg(test)]
mod tests {
    use super::*;

    fn read(id: &str, limits: &str) -> TenantLimits {
        let text = format!(r#"{{"id":"{id}","name":"n","status":"active"{limits}}}"#);
        serde_json::from_str::<Tenant>(&text).unwrap().limits
    }

    #[test]
    fn tenants_without_limits_get_the_defaults_and_local_has_none() {
        let acme: TenantId = "acme".parse().unwrap();
        let default = TenantLimits::default_for(&acme);
        let old = r#","limits":{"max_concurrent_executions":null,"max_streams":5,"requests_per_minute":null}"#;
        assert_eq!(Tenant::new(acme, "Acme".to_owned()).limits, default);
        assert_eq!(read("acme", ""), default);
        assert_eq!(read("acme", old), TenantLimits { max_streams: Some(5), ..default });
        assert_eq!(read("local", ""), TenantLimits::default());
        assert_eq!(
            read("local", old),
            TenantLimits { max_streams: Some(5), ..TenantLimits::default() }
        );
    }

    #[test]
    fn a_limit_that_was_lifted_stays_lifted() {
        let mut tenant = Tenant::new("acme".parse().unwrap(), "Acme".to_owned());
        tenant.limits = TenantLimits { max_streams: Some(3), ..TenantLimits::default() };
        let text = serde_json::to_string(&tenant).unwrap();
        assert!(text.contains(r#""stored_bytes":null"#), "{text}");
        assert_eq!(serde_json::from_str::<Tenant>(&text).unwrap(), tenant);
    }
}
