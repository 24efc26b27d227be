//! API keys. The secret is shown once, and the store keeps its SHA-256. That is enough because a
//! secret has 256 random bits: a slow hash protects guessable passwords, but costs time on every
//! request.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::ids::{KeyId, TenantId};
use crate::macros::document;
use crate::record::RecordColumns;
use crate::time::Timestamp;

/// A secret that a caller sends. It is printed and serialised only through `reveal`.
#[derive(Clone)]
pub struct SecretToken(String);

impl SecretToken {
    pub fn mint(entropy: [u8; 32]) -> Self {
        Self(format!("shk_{}", hex::encode(entropy)))
    }

    /// A ticket: not a key, and recognisable as such.
    pub fn mint_ticket(entropy: [u8; 32]) -> Self {
        Self(format!("tkt_{}", hex::encode(entropy)))
    }

    /// The token of an agent's session. It contains its tenant, for the lookup.
    pub fn mint_session(tenant: &TenantId, entropy: [u8; 32]) -> Self {
        Self(format!("sst_{tenant}.{}", hex::encode(entropy)))
    }

    /// The tenant in a session's token; None for any other secret.
    pub fn session_tenant(&self) -> Option<TenantId> {
        self.0.strip_prefix("sst_")?.rsplit_once('.')?.0.parse().ok()
    }

    pub fn from_caller(text: &str) -> Self {
        Self(text.to_owned())
    }

    pub fn reveal(&self) -> &str {
        &self.0
    }

    pub fn hash(&self) -> KeyHash {
        KeyHash(hex::encode(Sha256::digest(self.0.as_bytes())))
    }
}

impl fmt::Debug for SecretToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// The stored hash of a secret.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyHash(String);

impl KeyHash {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl PartialEq for KeyHash {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_bytes().ct_eq(other.0.as_bytes()).into()
    }
}

impl Eq for KeyHash {}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiKey {
    pub id: KeyId,
    pub name: String,
    pub scope: KeyScope,
    pub hash: KeyHash,
    /// The key is invalid from this time on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

impl ApiKey {
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }
}

/// When a key was last used. A separate record, so that using a key never conflicts with changing
/// or revoking it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyUse {
    pub key: KeyId,
    pub last_used_at: Timestamp,
}

document!(KeyUse, "key_use", system, key);

/// The permissions of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyScope {
    Admin,
    Tenant(TenantId),
    /// Only for posting hook events of this tenant.
    Hooks(TenantId),
}

impl KeyScope {
    pub fn allows(&self, tenant: &TenantId) -> bool {
        match self {
            Self::Admin => true,
            Self::Tenant(own) => own == tenant,
            Self::Hooks(_) => false,
        }
    }

    /// The tenant of the key.
    pub fn tenant(&self) -> Option<&TenantId> {
        match self {
            Self::Admin => None,
            Self::Tenant(tenant) | Self::Hooks(tenant) => Some(tenant),
        }
    }
}

// Keys are looked up by hash before the tenant is known.
document!(ApiKey, "key", system, id, |key| {
    let parent = key.scope.tenant().map(ToString::to_string);
    RecordColumns { parent, unique: Some(key.hash.0.clone()), ..RecordColumns::default() }
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_known_by_its_hash_and_never_printed() {
        let secret = SecretToken::mint([7; 32]);
        assert_eq!(secret.hash(), SecretToken::from_caller(secret.reveal()).hash());
        assert_ne!(secret.hash(), SecretToken::mint([8; 32]).hash());
        assert!(!format!("{secret:?} {:?}", secret.hash()).contains(secret.reveal()));
    }

    #[test]
    fn a_tenant_key_opens_its_tenant_only() {
        let own: TenantId = "a".parse().unwrap();
        let other: TenantId = "b".parse().unwrap();
        let key = KeyScope::Tenant(own.clone());
        assert!(key.allows(&own) && !key.allows(&other));
        assert!(KeyScope::Admin.allows(&other));
        let hooks = KeyScope::Hooks(own.clone());
        assert!(!hooks.allows(&own) && hooks.tenant() == Some(&own));
    }
}
