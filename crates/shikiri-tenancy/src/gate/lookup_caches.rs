//! Short-lived caches of keys and tenants, so that a busy caller costs no read per request.
//!
//! A change by this node clears the cache at once. A change by another node shows after `FRESH` at
//! the latest, well under the five seconds in which a revoked key must stop working. Missing keys
//! and tenants are not cached.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use shikiri_model::ids::{KeyId, TenantId};
use shikiri_model::key::{KeyScope, SecretToken};
use shikiri_model::tenant::Tenant;
use shikiri_runtime::AppError;

use super::KeyHolder;
use crate::Tenancy;

const FRESH: Duration = Duration::from_secs(2);
/// Above this number all entries are dropped at once: simple, bounded, and only lookups are lost.
const MAX_ENTRIES: usize = 10_000;

struct ExpiringCache<K, V>(Mutex<HashMap<K, (Instant, V)>>);

impl<K, V> Default for ExpiringCache<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, V: Clone> ExpiringCache<K, V> {
    fn get(&self, key: &K) -> Option<V> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, value) = entries.get(key)?;
        (since.elapsed() < FRESH).then(|| value.clone())
    }

    /// `since` is when the lookup began: a change during it must not seem newer than it is.
    fn put(&self, key: K, since: Instant, value: V) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= MAX_ENTRIES {
            entries.clear();
        }
        entries.insert(key, (since, value));
    }

    fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

#[derive(Default)]
pub(super) struct KeyCache(ExpiringCache<String, KnownKey>);

#[derive(Clone)]
struct KnownKey {
    id: KeyId,
    name: String,
    scope: KeyScope,
}

impl KeyCache {
    pub(super) async fn caller(
        &self,
        tenancy: &Tenancy,
        secret: &SecretToken,
    ) -> Result<Option<KeyHolder>, AppError> {
        // By hash, so that the cache holds no secrets.
        let hash = secret.hash().as_str().to_owned();
        let known = match self.0.get(&hash) {
            Some(known) => known,
            None => {
                let since = Instant::now();
                let Some(key) = tenancy.key_of(secret).await? else { return Ok(None) };
                let known = KnownKey { id: key.id, name: key.name, scope: key.scope };
                self.0.put(hash, since, known.clone());
                known
            }
        };
        let KnownKey { id, name, scope } = known;
        Ok(Some(KeyHolder { key: id, name, scope, secret: secret.clone() }))
    }

    pub(super) fn forget_all(&self) {
        self.0.clear();
    }
}

#[derive(Default)]
pub(super) struct TenantCache(ExpiringCache<TenantId, Arc<Tenant>>);

impl TenantCache {
    pub(super) async fn get(
        &self,
        tenancy: &Tenancy,
        id: &TenantId,
    ) -> Result<Arc<Tenant>, AppError> {
        if let Some(tenant) = self.0.get(id) {
            return Ok(tenant);
        }
        let since = Instant::now();
        let tenant = Arc::new(tenancy.runtime.tenant(id).await?.value);
        self.0.put(id.clone(), since, Arc::clone(&tenant));
        Ok(tenant)
    }

    pub(super) fn forget_all(&self) {
        self.0.clear();
    }
}
