//! Short-lived memory of key and tenant lookups, so that a busy caller costs no read per request.
//!
//! What this node changes itself is forgotten at once; what another node changes shows after
//! `FRESH` at the latest, well under the five seconds in which a revoked key must stop working.
//! That something is missing is never remembered.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use shikiri_model::ids::{KeyId, TenantId};
use shikiri_model::key::{KeyScope, Secret};
use shikiri_model::tenant::Tenant;

use super::Caller;
use crate::app::App;
use crate::error::AppError;

const FRESH: Duration = Duration::from_secs(2);
/// More entries than this are dropped all at once: simple, bounded, and only a lookup lost.
const MAX_ENTRIES: usize = 10_000;

struct Cache<K, V>(Mutex<HashMap<K, (Instant, V)>>);

impl<K, V> Default for Cache<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, V: Clone> Cache<K, V> {
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
pub(super) struct KeyCache(Cache<String, KnownKey>);

#[derive(Clone)]
struct KnownKey {
    id: KeyId,
    name: String,
    scope: KeyScope,
}

impl KeyCache {
    pub(super) async fn caller(
        &self,
        app: &App,
        secret: &Secret,
    ) -> Result<Option<Caller>, AppError> {
        // By hash, so that no secret lies around in memory.
        let hash = secret.hash().as_str().to_owned();
        let known = match self.0.get(&hash) {
            Some(known) => known,
            None => {
                let since = Instant::now();
                let Some(key) = app.key_of(secret).await? else { return Ok(None) };
                let known = KnownKey { id: key.id, name: key.name, scope: key.scope };
                self.0.put(hash, since, known.clone());
                known
            }
        };
        let KnownKey { id, name, scope } = known;
        Ok(Some(Caller { key: id, name, scope, secret: secret.clone() }))
    }

    pub(super) fn forget_all(&self) {
        self.0.clear();
    }
}

#[derive(Default)]
pub(super) struct TenantCache(Cache<TenantId, Arc<Tenant>>);

impl TenantCache {
    pub(super) async fn get(&self, app: &App, id: &TenantId) -> Result<Arc<Tenant>, AppError> {
        if let Some(tenant) = self.0.get(id) {
            return Ok(tenant);
        }
        let since = Instant::now();
        let tenant = Arc::new(app.tenant(id).await?.value);
        self.0.put(id.clone(), since, Arc::clone(&tenant));
        Ok(tenant)
    }

    pub(super) fn forget_all(&self) {
        self.0.clear();
    }
}
