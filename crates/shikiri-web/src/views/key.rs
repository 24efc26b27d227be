use serde::{Deserialize, Serialize};
use shikiri_model::ids::KeyId;
use shikiri_model::key::{ApiKey, KeyScope, SecretToken};
use shikiri_model::record::StoredDocument;
use shikiri_model::time::Timestamp;
use shikiri_tenancy::keys::ListedKey;
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
    /// From then on it opens nothing; null: it opens until it is revoked.
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Timestamp>,
    /// To the minute; null: it was never used.
    #[schema(value_type = Option<String>, format = DateTime)]
    last_used_at: Option<Timestamp>,
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
#[schema(as = MadeKey)]
pub struct CreatedKeyJson {
    #[serde(flatten)]
    pub(crate) record: KeyJson,
    /// The secret: keep it, it is not shown again.
    key: String,
}

impl CreatedKeyJson {
    pub fn new(stored: StoredDocument<ApiKey>, secret: &SecretToken) -> Self {
        Self { record: stored.into(), key: secret.reveal().to_owned() }
    }
}

impl From<StoredDocument<ApiKey>> for KeyJson {
    fn from(stored: StoredDocument<ApiKey>) -> Self {
        let ApiKey { id, name, scope, expires_at, .. } = stored.value;
        let scope = match scope {
            KeyScope::Hooks(_) => KeyScopeJson::Hooks,
            KeyScope::Admin | KeyScope::Tenant(_) => KeyScopeJson::Tenant,
        };
        let created_at = stored.created_at;
        Self { id, name, scope, created_at, expires_at, last_used_at: None }
    }
}

impl From<ListedKey> for KeyJson {
    fn from(listed: ListedKey) -> Self {
        Self { last_used_at: listed.last_used_at, ..listed.stored.into() }
    }
}
