//! How many requests a tenant may make per minute.
//!
//! Counted per node and in memory: the limits protect a node from its callers, they are no bill.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use shikiri_model::ids::TenantId;

use shikiri_runtime::AppError;

/// A bucket of requests per tenant that refills evenly over a minute.
#[derive(Default)]
pub(super) struct RateLimiter(Mutex<HashMap<TenantId, RequestBucket>>);

struct RequestBucket {
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
        let bucket = buckets
            .entry(tenant.clone())
            .or_insert_with(|| RequestBucket { left: capacity, at: now });
        let passed = now.saturating_duration_since(bucket.at).as_secs_f64();
        bucket.left = (bucket.left + passed * capacity / 60.0).min(capacity);
        bucket.at = now;
        if bucket.left >= 1.0 {
            bucket.left -= 1.0;
            return Ok(());
        }
        // A limit of 0 never refills. A minute is the longest wait that is given.
        let wait = ((1.0 - bucket.left) * 60.0 / capacity).min(60.0);
        let detail = format!("over the tenant's {per_minute} requests per minute: slow down");
        Err(AppError::Limit { detail, retry_after: Duration::from_secs_f64(wait) })
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
}
