//! Who may come in, and how much: asked by every door, so that they agree.
//!
//! A process has one gate and its doors share it. A caller that spreads over them then has one
//! rate and one count of streams, and a key that is revoked through one door is forgotten by all.

mod body_memory;
mod caches;
mod key_failures;
mod key_uses;
pub(crate) mod limits;
mod live_keys;
mod sessions;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use shikiri_model::ids::{KeyId, TenantId};
use shikiri_model::key::{KeyScope, Secret};
use shikiri_model::tenant::{Tenant, TenantUse};
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::error::AppError;
use body_memory::BodyLimits;
pub use body_memory::BodyMemory;
use caches::{KeyCache, TenantCache};
use key_failures::KeyFailures;
use key_uses::KeyUses;
use limits::{RateLimiter, Slot, Slots};
use live_keys::{LiveKey, LiveKeys};

#[derive(Clone, Debug)]
pub struct GateOptions {
    /// Open streams of all tenants together.
    pub max_streams: usize,
    /// Bytes of request bodies that are held in memory at once.
    pub max_body_memory: usize,
}

impl Default for GateOptions {
    fn default() -> Self {
        Self { max_streams: 16_000, max_body_memory: 256 * 1024 * 1024 }
    }
}

pub struct Gate {
    app: App,
    keys: KeyCache,
    tenants: TenantCache,
    live_keys: LiveKeys,
    rates: RateLimiter,
    streams: Arc<Slots>,
    bodies: Arc<BodyLimits>,
    failures: KeyFailures,
    uses: KeyUses,
    draining: CancellationToken,
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

/// The holder of a valid key.
#[derive(Clone)]
pub struct Caller {
    pub key: KeyId,
    /// What the key is called.
    pub name: String,
    pub scope: KeyScope,
    pub secret: Secret,
}

/// A place among the open streams, held by a key; given back when dropped.
pub struct OpenStream {
    key: Arc<LiveKey>,
    _slot: Slot,
}

impl OpenStream {
    /// Cancelled when the key is revoked or the session ends, and when the process drains.
    pub fn over(&self) -> &CancellationToken {
        &self.key.over
    }
}

impl Gate {
    pub fn new(app: App, options: GateOptions) -> Arc<Self> {
        let draining = CancellationToken::new();
        Arc::new(Self {
            keys: KeyCache::default(),
            tenants: TenantCache::default(),
            live_keys: LiveKeys::new(draining.clone()),
            rates: RateLimiter::default(),
            streams: Arc::new(Slots::new("streams", options.max_streams)),
            bodies: BodyLimits::new(options.max_body_memory),
            failures: KeyFailures::default(),
            uses: KeyUses::default(),
            draining,
            app,
        })
    }

    pub fn app(&self) -> &App {
        &self.app
    }

    /// Whoever holds this key; None if it opens nothing. The token of an agent's session is no key.
    pub async fn caller(&self, secret: &Secret) -> Result<Option<Caller>, AppError> {
        let caller = self.keys.caller(&self.app, secret).await?;
        if let Some(caller) = &caller {
            self.uses.note(&self.app, &caller.key);
        }
        Ok(caller)
    }

    /// For whoever sent a key that opens nothing: the more of them came from one address of late,
    /// the longer this takes, and too many are refused. Right keys are never slowed down.
    pub async fn slow_down(&self, peer: Option<Peer>) -> Result<(), AppError> {
        match peer {
            Some(Peer(address)) => self.failures.slow_down(address.ip()).await,
            None => Ok(()),
        }
    }

    /// Memory for the body of one request of this tenant (none: an admin's).
    pub fn body_memory(&self, tenant: Option<&TenantId>) -> BodyMemory {
        self.bodies.open(tenant)
    }

    pub async fn tenant(&self, id: &TenantId) -> Result<Arc<Tenant>, AppError> {
        self.tenants.get(&self.app, id).await
    }

    /// Takes one request out of the tenant's bucket.
    pub fn count_request(&self, tenant: &Tenant) -> Result<(), AppError> {
        match tenant.limits.requests_per_minute {
            Some(per_minute) => self.rates.take(&tenant.id, per_minute, Instant::now()),
            None => Ok(()),
        }
    }

    pub fn open_stream(&self, caller: &Caller, tenant: &Tenant) -> Result<OpenStream, AppError> {
        self.open_stream_for(&caller.secret, tenant)
    }

    /// For whoever came in with this secret, a key or the token of a session.
    pub fn open_stream_for(
        &self,
        secret: &Secret,
        tenant: &Tenant,
    ) -> Result<OpenStream, AppError> {
        let slot = self.streams.take(&tenant.id, tenant.limits.max_streams)?;
        Ok(OpenStream { key: self.live_keys.hold(secret), _slot: slot })
    }

    pub fn open_streams(&self) -> usize {
        self.streams.count()
    }

    /// What a tenant has in use on this node.
    pub async fn tenant_use(&self, tenant: &TenantId) -> Result<TenantUse, AppError> {
        let streams = u32::try_from(self.streams.count_of(tenant)).unwrap_or(u32::MAX);
        Ok(TenantUse { streams, ..self.app.tenant_use(tenant).await? })
    }

    /// For whoever revoked a key.
    pub fn forget_keys(&self) {
        self.keys.forget_all();
    }

    /// For whoever changed or removed a tenant.
    pub fn forget_tenants(&self) {
        self.tenants.forget_all();
    }

    /// Cancelled, by whoever serves, when the process starts to drain.
    pub fn draining(&self) -> &CancellationToken {
        &self.draining
    }

    /// Ends the streams of revoked keys and ended sessions, until the process drains.
    pub async fn sweep(&self) {
        self.live_keys.sweep(&self.app).await;
    }
}

const MAX_KEY: usize = 512;

/// The secret in an `Authorization` of the form `Bearer KEY`.
pub fn bearer(header_value: &str) -> Option<Secret> {
    let (scheme, key) = header_value.split_once(' ')?;
    let key = key.trim();
    let plausible = scheme.eq_ignore_ascii_case("bearer") && (1..=MAX_KEY).contains(&key.len());
    plausible.then(|| Secret::from_caller(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plausible_key_of_the_right_scheme_is_read() {
        let longest = "k".repeat(MAX_KEY);
        for (value, key) in [
            ("Bearer k", "k"),
            ("bEARER  k ", "k"),
            (&format!("Bearer {longest}"), longest.as_str()),
        ] {
            assert_eq!(bearer(value).unwrap().reveal(), key);
        }
        let long = format!("Bearer k{longest}");
        for value in ["", "k", "Bearer", "Bearer ", "Bearer  ", "Basic k", "Bearer\tk", &long] {
            assert!(bearer(value).is_none(), "{value:?}");
        }
    }
}
