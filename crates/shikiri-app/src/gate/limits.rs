//! How much one tenant may ask for, and how many streams may be open.
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

pub(super) struct StreamSlots {
    max: usize,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    total: usize,
    by_tenant: HashMap<TenantId, usize>,
}

/// One open stream; gives its place back when dropped.
pub(super) struct StreamSlot {
    slots: Arc<StreamSlots>,
    tenant: TenantId,
}

/// Streams end when their readers leave, which nobody can predict.
const RETRY_STREAM: Duration = Duration::from_secs(5);

impl StreamSlots {
    pub(super) fn new(max: usize) -> Self {
        Self { max, open: Mutex::default() }
    }

    pub(super) fn count(&self) -> usize {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).total
    }

    pub(super) fn take(
        self: &Arc<Self>,
        tenant: &TenantId,
        tenant_max: Option<u32>,
    ) -> Result<StreamSlot, AppError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.total >= self.max {
            let detail = format!("the server's {} streams are all open", self.max);
            return Err(AppError::Limit { detail, retry_after: RETRY_STREAM });
        }
        let own = open.by_tenant.get(tenant).copied().unwrap_or(0);
        if let Some(max) = tenant_max.filter(|max| own >= *max as usize) {
            let detail = format!("the tenant's {max} streams are all open: close one first");
            return Err(AppError::Limit { detail, retry_after: RETRY_STREAM });
        }
        open.total += 1;
        open.by_tenant.insert(tenant.clone(), own + 1);
        Ok(StreamSlot { slots: Arc::clone(self), tenant: tenant.clone() })
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        let mut open = self.slots.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.total = open.total.saturating_sub(1);
        if let Some(own) = open.by_tenant.get_mut(&self.tenant) {
            *own -= 1;
            if *own == 0 {
                open.by_tenant.remove(&self.tenant);
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
        let slots = Arc::new(StreamSlots::new(3));
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
