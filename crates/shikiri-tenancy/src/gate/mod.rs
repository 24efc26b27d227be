//! Authentication and limits of requests, the same for every door.
//!
//! A process has one gate and its doors share it. A caller that uses several doors then has one
//! rate and one count of streams, and a key that is revoked through one door is forgotten by all.

mod body_memory;
mod key_failures;
mod key_uses;
mod live_keys;
mod lookup_caches;
mod rate_limiter;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use body_memory::BodyLimits;
use shikiri_model::ids::{KeyId, TenantId};
use shikiri_model::key::{KeyScope, SecretToken};
use shikiri_model::tenant::{Tenant, TenantUse};
use tokio_util::sync::CancellationToken;

use crate::Tenancy;
pub use body_memory::BodyMemory;
use key_failures::KeyFailures;
use key_uses::KeyUses;
use live_keys::{LiveKey, LiveKeys};
use lookup_caches::{KeyCache, TenantCache};
use rate_limiter::RateLimiter;
use shikiri_runtime::AppError;

use crate::slot_pool::{SlotPool, TenantSlot};

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

pub struct AccessGate {
    tenancy: Tenancy,
    keys: KeyCache,
    tenants: TenantCache,
    live_keys: LiveKeys,
    rates: RateLimiter,
    streams: Arc<SlotPool>,
    bodies: Arc<BodyLimits>,
    failures: KeyFailures,
    uses: KeyUses,
    draining: CancellationToken,
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddress(pub SocketAddr);

/// The holder of a valid key.
#[derive(Clone)]
pub struct KeyHolder {
    pub key: KeyId,
    /// The name of the key.
    pub name: String,
    pub scope: KeyScope,
    pub secret: SecretToken,
}

/// A slot among the open streams, held by a key. Released when dropped.
pub struct OpenStream {
    key: Arc<LiveKey>,
    _slot: TenantSlot,
}

impl OpenStream {
    /// Cancelled when the key is revoked or the session ends, and when the process drains.
    pub fn cancellation(&self) -> &CancellationToken {
        &self.key.cancellation
    }
}

impl AccessGate {
    pub fn new(tenancy: Tenancy, options: GateOptions) -> Arc<Self> {
        let draining = CancellationToken::new();
        Arc::new(Self {
            keys: KeyCache::default(),
            tenants: TenantCache::default(),
            live_keys: LiveKeys::new(draining.clone()),
            rates: RateLimiter::default(),
            streams: Arc::new(SlotPool::new("streams", options.max_streams)),
            bodies: BodyLimits::new(options.max_body_memory),
            failures: KeyFailures::default(),
            uses: KeyUses::default(),
            draining,
            tenancy,
        })
    }

    pub fn tenancy(&self) -> &Tenancy {
        &self.tenancy
    }

    /// The holder of this key; None if it is not valid. The token of an agent's session is no key.
    pub async fn caller(&self, secret: &SecretToken) -> Result<Option<KeyHolder>, AppError> {
        let caller = self.keys.caller(&self.tenancy, secret).await?;
        if let Some(caller) = &caller {
            self.uses.note(&self.tenancy, &caller.key);
        }
        Ok(caller)
    }

    /// Delays a caller that sent a wrong key: the more of them came from its address lately, the
    /// longer. Too many are refused. Valid keys are never delayed.
    pub async fn slow_down(&self, peer: Option<PeerAddress>) -> Result<(), AppError> {
        match peer {
            Some(PeerAddress(address)) => self.failures.slow_down(address.ip()).await,
            None => Ok(()),
        }
    }

    /// Memory for the body of one request of this tenant. None stands for an admin.
    pub fn body_memory(&self, tenant: Option<&TenantId>) -> BodyMemory {
        self.bodies.open(tenant)
    }

    pub async fn tenant(&self, id: &TenantId) -> Result<Arc<Tenant>, AppError> {
        self.tenants.get(&self.tenancy, id).await
    }

    /// Counts one request against the rate limit of the tenant.
    pub fn count_request(&self, tenant: &Tenant) -> Result<(), AppError> {
        match tenant.limits.requests_per_minute {
            Some(per_minute) => self.rates.take(&tenant.id, per_minute, Instant::now()),
            None => Ok(()),
        }
    }

    pub fn open_stream(&self, caller: &KeyHolder, tenant: &Tenant) -> Result<OpenStream, AppError> {
        self.open_stream_for(&caller.secret, tenant)
    }

    /// As `open_stream`, for a secret that is a key or the token of a session.
    pub fn open_stream_for(
        &self,
        secret: &SecretToken,
        tenant: &Tenant,
    ) -> Result<OpenStream, AppError> {
        let slot = self.streams.take(&tenant.id, tenant.limits.max_streams)?;
        Ok(OpenStream { key: self.live_keys.hold(secret), _slot: slot })
    }

    pub fn open_streams(&self) -> usize {
        self.streams.count()
    }

    /// What a tenant has in use on this node.
    pub async fn tenant_use(&self, tenant: &TenantId) -> TenantUse {
        let streams = u32::try_from(self.streams.count_of(tenant)).unwrap_or(u32::MAX);
        TenantUse { streams, ..self.tenancy.tenant_use(tenant).await }
    }

    /// To be called after a key was revoked.
    pub fn forget_keys(&self) {
        self.keys.forget_all();
    }

    /// To be called after a tenant was changed or removed.
    pub fn forget_tenants(&self) {
        self.tenants.forget_all();
    }

    /// Cancelled by the server when the process starts to drain.
    pub fn draining(&self) -> &CancellationToken {
        &self.draining
    }

    /// Ends the streams of revoked keys and ended sessions, until the process drains.
    pub async fn sweep(&self) {
        self.live_keys.sweep(&self.tenancy).await;
    }
}

const MAX_KEY: usize = 512;

/// The secret in an `Authorization` of the form `Bearer KEY`.
pub fn bearer(header_value: &str) -> Option<SecretToken> {
    let (scheme, key) = header_value.split_once(' ')?;
    let key = key.trim();
    let plausible = scheme.eq_ignore_ascii_case("bearer") && (1..=MAX_KEY).contains(&key.len());
    plausible.then(|| SecretToken::from_caller(key))
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
