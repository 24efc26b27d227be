//! How much a tenant stores, and the limit on it (`limits.stored_bytes`).
//!
//! Counted are events, records with a tenant's data, and files in the workspaces and engine homes
//! on this node's disk. The database is sampled at most every 30 s, and this process adds what it
//! commits in between. Folders are measured when the tenant is first sampled, and again when
//! something changes them. `docs/decisions/0020` says how exact that is.

mod folder_size;
mod storage_counter;

use std::sync::Arc;
use std::time::{Duration, Instant};

use shikiri_model::conversation::Conversation;
use shikiri_model::execution::{MessageLog, SessionFiles, ToolLog, UsageLog};
use shikiri_model::ids::{ConversationId, TenantId};
use shikiri_model::lane::ProviderQuestion;
use shikiri_model::record::{Document as _, RecordQuery};
use shikiri_model::run::Run;
use shikiri_model::server::McpServer;
use shikiri_model::skill::Skill;
use shikiri_model::team::{Delegation, TeamTask};
use shikiri_model::tenant::Tenant;
use shikiri_model::tool::ToolPins;

pub use self::storage_counter::{CommitBytes, StorageCounters, TenantCounter};
use crate::error::AppError;
use crate::runtime::Runtime;

/// Records whose number or size tenants decide. The others are small and of bounded number.
/// Messages of conversations and of teams are of one kind.
const COUNTED_KINDS: [&str; 12] = [
    Conversation::KIND,
    MessageLog::KIND,
    ToolLog::KIND,
    UsageLog::KIND,
    SessionFiles::KIND,
    Run::KIND,
    Skill::KIND,
    McpServer::KIND,
    ToolPins::KIND,
    TeamTask::KIND,
    Delegation::KIND,
    ProviderQuestion::KIND,
];

/// A request waits this long for the first sample of a tenant with many folders.
const FIRST_WAIT: Duration = Duration::from_secs(2);
/// Pause between two measurements of what a run writes.
const RUN_PAUSE: Duration = Duration::from_secs(2);
/// After a measurement, the pause is at least this many times as long as it took.
const RUN_PAUSE_FACTOR: u32 = 10;

/// A tenant's storage and the limit that it exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageExcess {
    pub used: u64,
    pub limit: u64,
}

impl Runtime {
    /// How many bytes a tenant stores, sampled again if the last sample is old.
    pub async fn stored_bytes(&self, tenant: &TenantId) -> u64 {
        let counter = self.storage.of(tenant);
        self.sample_if_old(tenant, &counter, true).await;
        counter.bytes()
    }

    /// The storage counter of a tenant.
    pub fn storage_of(&self, tenant: &TenantId) -> Arc<TenantCounter> {
        self.storage.of(tenant)
    }

    /// Stops counting a tenant that was removed.
    pub fn forget_storage(&self, tenant: &TenantId) {
        self.storage.forget(tenant);
    }

    /// Refuses to store `more` bytes for a tenant whose storage is full.
    pub async fn check_storage(&self, tenant: &Tenant, more: u64) -> Result<(), AppError> {
        match self.storage_excess(tenant, more).await {
            Some(excess) => Err(excess.refusal(&tenant.id)),
            None => Ok(()),
        }
    }

    /// None if `more` bytes fit.
    async fn storage_excess(&self, tenant: &Tenant, more: u64) -> Option<StorageExcess> {
        let limit = tenant.limits.stored_bytes?;
        let counter = self.storage.of(&tenant.id);
        self.sample_if_old(&tenant.id, &counter, false).await;
        if counter.bytes().saturating_add(more) > limit {
            // Something may have been removed since.
            for conversation in counter.unmeasurable_folders() {
                self.measure_folders(&tenant.id, &conversation).await;
            }
            self.sample_if_old(&tenant.id, &counter, true).await;
        }
        let used = counter.bytes();
        (used.saturating_add(more) > limit).then_some(StorageExcess { used, limit })
    }

    /// Reserves `bytes` until the reservation is dropped.
    pub async fn reserve_storage(
        &self,
        tenant: &Tenant,
        bytes: u64,
    ) -> Result<StorageReservation, AppError> {
        self.check_storage(tenant, bytes).await?;
        let counter = self.storage.of(&tenant.id);
        let (tenant, limit) = (tenant.id.clone(), tenant.limits.stored_bytes);
        let mut reservation = StorageReservation { counter, tenant, limit, bytes: 0 };
        reservation.grow_to(bytes)?;
        Ok(reservation)
    }

    /// Returns when a run has brought its tenant over the limit. Without a limit it never returns.
    pub async fn watch_storage(
        &self,
        tenant: &Tenant,
        conversation: &ConversationId,
    ) -> StorageExcess {
        if tenant.limits.stored_bytes.is_none() {
            return std::future::pending().await;
        }
        let mut pause = RUN_PAUSE;
        loop {
            tokio::time::sleep(pause).await;
            let begun = Instant::now();
            self.measure_folders(&tenant.id, conversation).await;
            if let Some(excess) = self.storage_excess(tenant, 0).await {
                return excess;
            }
            pause = RUN_PAUSE.max(begun.elapsed() * RUN_PAUSE_FACTOR);
        }
    }

    /// Measures the folders of one conversation again.
    pub async fn measure_folders(&self, tenant: &TenantId, conversation: &ConversationId) {
        let Some(data) = self.options.data.clone() else { return };
        let id = conversation.clone();
        let measuring = tokio::task::spawn_blocking(move || {
            let folders = ["workspaces", "engines"].map(|kind| data.join(kind).join(id.as_str()));
            let sizes = folders.iter().map(|folder| folder_size::folder_bytes(folder));
            sizes.fold(0_u64, u64::saturating_add)
        });
        if let Ok(bytes) = measuring.await {
            self.storage.of(tenant).set_folder(conversation.clone(), bytes);
        }
    }

    /// Takes a sample if the last one is too old. The first sample is waited for, a later one only
    /// with `now`. A sample that fails changes nothing.
    async fn sample_if_old(&self, tenant: &TenantId, counter: &Arc<TenantCounter>, now: bool) {
        if !counter.is_old(now) {
            return;
        }
        let is_first = !counter.is_sampled();
        let (runtime, tenant, counter) = (self.clone(), tenant.clone(), Arc::clone(counter));
        let sampling = tokio::spawn(async move {
            let _turn = counter.sampling.lock().await;
            if counter.is_old(now)
                && let Err(error) = runtime.sample(&tenant, &counter).await
            {
                tracing::warn!(%tenant, %error, "what a tenant stores could not be counted");
            }
        });
        if is_first || now {
            let _ = tokio::time::timeout(FIRST_WAIT, sampling).await;
        }
    }

    async fn sample(&self, tenant: &TenantId, counter: &TenantCounter) -> Result<(), AppError> {
        let (begun, added) = (Instant::now(), counter.begin_sample());
        let bytes = self.store.stored_bytes(tenant, &COUNTED_KINDS).await?;
        if !counter.is_sampled() {
            let all = RecordQuery::of::<Conversation>(tenant);
            for conversation in self.list_all::<Conversation>(all).await? {
                self.measure_folders(tenant, &conversation.id).await;
            }
        }
        counter.end_sample(begun, added, bytes);
        Ok(())
    }
}

impl StorageExcess {
    pub fn refusal(self, tenant: &TenantId) -> AppError {
        AppError::Quota {
            quota: "stored_bytes",
            used: self.used,
            limit: self.limit,
            tenant: tenant.to_string(),
        }
    }
}

/// Bytes that are reserved for data on its way in.
pub struct StorageReservation {
    counter: Arc<TenantCounter>,
    tenant: TenantId,
    limit: Option<u64>,
    bytes: u64,
}

impl StorageReservation {
    /// A reservation for a tenant without a limit.
    pub fn unlimited() -> Self {
        Self { counter: Arc::default(), tenant: TenantId::local(), limit: None, bytes: 0 }
    }

    /// Holds at least `bytes` from now on, if they fit.
    pub fn grow_to(&mut self, bytes: u64) -> Result<(), AppError> {
        let Some(more) = bytes.checked_sub(self.bytes).filter(|more| *more > 0) else {
            return Ok(());
        };
        // Reserves before it compares: two that grow at once do not pass the limit together.
        self.counter.reserve(more);
        let reserved = self.counter.bytes();
        if let Some(limit) = self.limit.filter(|limit| reserved > *limit) {
            self.counter.release(more);
            let used = reserved.saturating_sub(more);
            return Err(StorageExcess { used, limit }.refusal(&self.tenant));
        }
        self.bytes = bytes;
        Ok(())
    }

    /// Moves the reserved bytes to the conversation's folder, in place of `replaced` bytes.
    pub fn keep(&self, conversation: &ConversationId, replaced: u64) {
        self.counter.change_folder(conversation, self.bytes, replaced);
    }
}

impl Drop for StorageReservation {
    fn drop(&mut self) {
        self.counter.release(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_at_once_do_not_pass_the_limit_together() {
        for _ in 0..300 {
            let counter = Arc::<TenantCounter>::default();
            let barrier = std::sync::Barrier::new(4);
            let reserve = || {
                let mut reservation = StorageReservation {
                    counter: Arc::clone(&counter),
                    tenant: TenantId::local(),
                    limit: Some(10),
                    bytes: 0,
                };
                barrier.wait();
                let is_reserved = reservation.grow_to(10).is_ok();
                // Held until all have tried.
                barrier.wait();
                is_reserved
            };
            let reserved = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(reserve)).collect();
                threads.into_iter().map(|it| it.join().unwrap()).filter(|it| *it).count()
            });
            assert!(reserved <= 1, "{reserved} reservations of 10 bytes under a limit of 10");
            assert_eq!(counter.bytes(), 0, "a reservation was not given back");
        }
    }
}
