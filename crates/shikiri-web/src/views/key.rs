use serde::{Deserialize, Serialize};
use shikiri_model::ids::KeyId;
use shikiri_model::key::{ApiKey, KeyScope, Secret};
use shikiri_model::record::Stored;
use shikiri_model::time::Timestamp;
use utoipa::ToSchema;

/// A key of a tenant. The secret itself is shown only when it is made.
#[derive(Serialize, ToSchema)]
#[schema(as = Key)]
pub struct KeyJson {
    #[schema(value_type = String)]
    pub(crate) id: KeyId,
    name: String,
    scope: KeyScopeJson,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
}

/// What a key of a tenant opens: the tenant, or only the door for hooks.
#[derive(Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = KeyScope)]
pub(crate) enum KeyScopeJson {
    #[default]
    Tenant,
    Hooks,
}

#[derive(Serialize, ToSchema)]
pub struct MadeKey {
    #[serde(flatten)]
    pub(crate) record: KeyJson,
    /// The secret: keep it, it is not shown again.
    key: String,
}

impl MadeKey {
    pub fn new(stored: Stored<ApiKey>, secret: &Secret) -> Self {
        Self { record: stored.into(), key: secret.reveal().to_owned() }
    }
}

impl From<Stored<ApiKey>> for KeyJson {
    fn from(stored: Stored<ApiKey>) -> Self {
        let ApiKey { id, name, scope, .. } = stored.value;
        let scope = match scope {
            KeyScope::Hooks(_) => KeyScopeJson::Hooks,
            KeyScope::Admin | KeyScope::Tenant(_) => KeyScopeJson::Tenant,
        };
        Self { id, name, scope, created_at: stored.created_at }
    }
}
