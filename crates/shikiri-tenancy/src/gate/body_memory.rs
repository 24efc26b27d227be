//! How much memory the bodies of requests may take at once, over all doors of a process.
//!
//! A body is counted as it arrives, piece by piece, and until its request is answered. One tenant
//! gets a quarter of the memory at most, so that the bodies of others always find room.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use shikiri_model::ids::TenantId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use shikiri_runtime::AppError;

/// The bytes of one permit: the semaphore counts in 32 bits.
const UNIT: usize = 1024;
/// One tenant may hold one part in this many.
const SHARE: usize = 4;
/// How long a body waits for room.
const WAIT: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_secs(1);

pub(super) struct BodyLimits {
    all: Arc<Semaphore>,
    share: usize,
    by_tenant: Mutex<HashMap<TenantId, Arc<Semaphore>>>,
}

impl BodyLimits {
    pub(super) fn new(bytes: usize) -> Arc<Self> {
        // At least enough for the largest body.
        let units = (bytes / UNIT).max(SHARE * 8 * 1024);
        Arc::new(Self {
            all: Arc::new(Semaphore::new(units)),
            share: units / SHARE,
            by_tenant: Mutex::default(),
        })
    }

    pub(super) fn open(self: &Arc<Self>, tenant: Option<&TenantId>) -> BodyMemory {
        let own = tenant.map(|tenant| {
            let mut tenants = self.by_tenant.lock().unwrap_or_else(PoisonError::into_inner);
            let share = || Arc::new(Semaphore::new(self.share));
            Arc::clone(tenants.entry(tenant.clone()).or_insert_with(share))
        });
        BodyMemory {
            limits: Arc::clone(self),
            tenant: tenant.cloned(),
            own,
            held: tokio::sync::Mutex::default(),
        }
    }
}

/// The memory that the body of one request holds. Released when dropped.
pub struct BodyMemory {
    limits: Arc<BodyLimits>,
    tenant: Option<TenantId>,
    own: Option<Arc<Semaphore>>,
    held: tokio::sync::Mutex<Vec<OwnedSemaphorePermit>>,
}

impl BodyMemory {
    /// Takes memory for another piece of the body. Waits a short time if there is none.
    pub async fn grow(&self, bytes: usize) -> Result<(), AppError> {
        let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX);
        let mut held = self.held.lock().await;
        if let Some(own) = &self.own {
            let permit = acquire(own, units).await.ok_or_else(|| full("this tenant"))?;
            held.push(permit);
        }
        let permit = acquire(&self.limits.all, units).await.ok_or_else(|| full("the server"))?;
        held.push(permit);
        Ok(())
    }
}

async fn acquire(semaphore: &Arc<Semaphore>, units: u32) -> Option<OwnedSemaphorePermit> {
    let waiting = Arc::clone(semaphore).acquire_many_owned(units);
    tokio::time::timeout(WAIT, waiting).await.ok()?.ok()
}

fn full(whose: &str) -> AppError {
    let detail = format!(
        "the requests that are under way fill the memory that {whose} has for bodies: send it \
         again in a moment"
    );
    AppError::Limit { detail, retry_after: RETRY }
}

impl Drop for BodyMemory {
    fn drop(&mut self) {
        self.held.get_mut().clear();
        let (Some(tenant), Some(own)) = (&self.tenant, self.own.take()) else { return };
        let mut tenants = self.limits.by_tenant.lock().unwrap_or_else(PoisonError::into_inner);
        // Two references are this one and the map's. This one is dropped before the lock is
        // released, so that the second of two that end at once sees that it is the last.
        if Arc::strong_count(&own) == 2 {
            tenants.remove(tenant);
        }
        drop(own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(id: &str) -> TenantId {
        id.parse().unwrap()
    }

    #[tokio::test]
    async fn one_tenant_leaves_room_for_others_and_gives_back_what_it_held() {
        let limits = BodyLimits::new(256 * 1024 * 1024);
        let (a, b) = (tenant("a"), tenant("b"));
        let mut held = Vec::new();
        for _ in 0..16 {
            let body = limits.open(Some(&a));
            body.grow(4 * 1024 * 1024).await.unwrap();
            held.push(body);
        }
        let refused = limits.open(Some(&a)).grow(1).await;
        assert!(matches!(refused, Err(AppError::Limit { .. })), "{refused:?}");
        limits.open(Some(&b)).grow(4 * 1024 * 1024).await.unwrap();
        limits.open(None).grow(4 * 1024 * 1024).await.unwrap();
        held.clear();
        limits.open(Some(&a)).grow(4 * 1024 * 1024).await.unwrap();
        assert!(limits.by_tenant.lock().unwrap().is_empty());
    }
}
