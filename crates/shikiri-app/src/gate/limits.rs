//! How much one tenant may ask for, and how many streams and executions it may have at once.
//!
//! Counted per node and in memory: the limits protect a node from its callers, they are no bill.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use shikiri_model::ids::TenantId;

use crate::error::AppError;

/// A bucket of requests per tenant that refills evenly over a minute.
#[derive(Default)]
pub(super) struct RateLimiter(Mutex<HashMap<TenantId, Bucket>>);

struct Bucket {
    left: f64,
    at: Instant,
}

impl RateLimiter {
    /// Takes one request out of the tenant's bucket, or says when there will be one.
    pub(super) fn take(
        &self,
        tenant: &TenantId,
        per_minute: u32,
        now: Instant,
    ) -> Result<(), AppError> {
        let capacity = f64::from(per_minute);
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket =
            buckets.entry(tenant.clone()).or_insert_with(|| Bucket { left: capacity, at: now });
        let passed = now.saturating_duration_since(bucket.at).as_secs_f64();
        bucket.left = (bucket.left + passed * capacity / 60.0).min(capacity);
        bucket.at = now;
        if bucket.left >= 1.0 {
            bucket.left -= 1.0;
            return Ok(());
        }
        // A limit of nothing refills never; a minute is as good an answer as any.
        let wait = ((1.0 - bucket.left) * 60.0 / capacity).min(60.0);
        let detail = format!("over the tenant's {per_minute} requests per minute: slow down");
        Err(AppError::Limit { detail, retry_after: Duration::from_secs_f64(wait) })
    }
}

/// Places for things of one kind that go on at the same time.
pub(crate) struct Slots {
    /// What has a place, in the plural.
    what: &'static str,
    max: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    total: usize,
    by_tenant: HashMap<TenantId, usize>,
}

/// One place; given back when dropped.
pub(crate) struct Slot {
    slots: Arc<Slots>,
    tenant: TenantId,
}

/// They end when their readers leave or their work is done, which nobody can predict.
const RETRY_SLOT: Duration = Duration::from_secs(5);

impl Slots {
    pub(crate) fn new(what: &'static str, max: usize) -> Self {
        Self { what, max, taken: Mutex::default() }
    }

    pub(super) fn count(&self) -> usize {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).total
    }

    pub(crate) fn count_of(&self, tenant: &TenantId) -> usize {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.by_tenant.get(tenant).copied().unwrap_or(0)
    }

    pub(crate) fn take(
        self: &Arc<Self>,
        tenant: &TenantId,
        tenant_max: Option<u32>,
    ) -> Result<Slot, AppError> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let what = self.what;
        if taken.total >= self.max {
            let detail = format!("the server's {} {what} are all in use", self.max);
            return Err(AppError::Limit { detail, retry_after: RETRY_SLOT });
        }
        let own = taken.by_tenant.get(tenant).copied().unwrap_or(0);
        if let Some(max) = tenant_max.filter(|max| own >= *max as usize) {
            let detail = format!("the tenant's {max} {what} are all in use: end one first");
            return Err(AppError::Limit { detail, retry_after: RETRY_SLOT });
        }
        Ok(self.place(&mut taken, tenant))
    }

    /// A place for what has begun already, be it one too many.
    pub(crate) fn take_anyway(self: &Arc<Self>, tenant: &TenantId) -> Slot {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        self.place(&mut taken, tenant)
    }

    fn place(self: &Arc<Self>, taken: &mut Taken, tenant: &TenantId) -> Slot {
        taken.total += 1;
        *taken.by_tenant.entry(tenant.clone()).or_default() += 1;
        Slot { slots: Arc::clone(self), tenant: tenant.clone() }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = self.slots.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.total = taken.total.saturating_sub(1);
        if let Some(own) = taken.by_tenant.get_mut(&self.tenant) {
            *own -= 1;
            if *own == 0 {
                taken.by_tenant.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(id: &str) -> TenantId {
        id.parse().unwrap()
    }

    #[test]
    fn a_tenant_gets_its_requests_per_minute_and_no_more() {
        let limiter = RateLimiter::default();
        let (a, start) = (tenant("a"), Instant::now());
        for _ in 0..3 {
            assert!(limiter.take(&a, 3, start).is_ok());
        }
        match limiter.take(&a, 3, start).unwrap_err() {
            AppError::Limit { retry_after, .. } => assert_eq!(retry_after.as_secs(), 20),
            other => panic!("{other:?}"),
        }
        assert!(limiter.take(&tenant("b"), 3, start).is_ok());
        let later = start + Duration::from_secs(20);
        assert!(limiter.take(&a, 3, later).is_ok());
        assert!(limiter.take(&a, 3, later).is_err());
        assert!(limiter.take(&tenant("c"), 0, start).is_err());
    }

    #[test]
    fn streams_are_counted_per_tenant_and_in_all() {
        let slots = Arc::new(Slots::new("streams", 3));
        let (a, b) = (tenant("a"), tenant("b"));
        let first = slots.take(&a, Some(2)).unwrap();
        let _second = slots.take(&a, Some(2)).unwrap();
        assert!(slots.take(&a, Some(2)).is_err());
        let _third = slots.take(&b, None).unwrap();
        assert!(slots.take(&b, None).is_err());
        drop(first);
        slots.take(&a, Some(2)).unwrap();
        assert_eq!(slots.count(), 2);
    }
}
