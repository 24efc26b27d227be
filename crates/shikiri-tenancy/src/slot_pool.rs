//! Slots for things that a tenant has at the same time: open streams, running executions.
//!
//! Counted per node and in memory: the limits protect a node from its callers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use shikiri_model::ids::TenantId;
use shikiri_runtime::AppError;

/// A bounded number of slots for things of one kind.
pub struct SlotPool {
    /// The name of the things, in the plural.
    what: &'static str,
    max: usize,
    taken: Mutex<SlotCounts>,
}

#[derive(Default)]
struct SlotCounts {
    total: usize,
    by_tenant: HashMap<TenantId, usize>,
}

/// One slot. Released when dropped.
pub struct TenantSlot {
    slots: Arc<SlotPool>,
    tenant: TenantId,
}

/// Suggested wait before a retry. When a slot becomes free cannot be predicted.
const RETRY_SLOT: Duration = Duration::from_secs(5);

impl SlotPool {
    pub fn new(what: &'static str, max: usize) -> Self {
        Self { what, max, taken: Mutex::default() }
    }

    pub(crate) fn count(&self) -> usize {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).total
    }

    pub fn count_of(&self, tenant: &TenantId) -> usize {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.by_tenant.get(tenant).copied().unwrap_or(0)
    }

    pub fn take(
        self: &Arc<Self>,
        tenant: &TenantId,
        tenant_max: Option<u32>,
    ) -> Result<TenantSlot, AppError> {
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
        Ok(self.add(&mut taken, tenant))
    }

    /// Takes a slot for something that has begun already, even above the limit.
    pub fn take_over_limit(self: &Arc<Self>, tenant: &TenantId) -> TenantSlot {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        self.add(&mut taken, tenant)
    }

    fn add(self: &Arc<Self>, taken: &mut SlotCounts, tenant: &TenantId) -> TenantSlot {
        taken.total += 1;
        *taken.by_tenant.entry(tenant.clone()).or_default() += 1;
        TenantSlot { slots: Arc::clone(self), tenant: tenant.clone() }
    }
}

impl Drop for TenantSlot {
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
    fn streams_are_counted_per_tenant_and_in_all() {
        let slots = Arc::new(SlotPool::new("streams", 3));
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
