//! Counts what goes through the store, for operators.
//!
//! Every change is a commit, so this store sees all changes, from every door and worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use shikiri_model::event::{Seq, StreamId};
use shikiri_model::ids::TenantId;
use shikiri_model::lease::{Lease, LeaseGuard};
use shikiri_model::record::{
    Document, ExpectedVersion, Record, RecordChange, RecordKey, RecordQuery,
};
use shikiri_model::run::{Run, RunStatus};
use shikiri_model::time::Timestamp;
use shikiri_model::total::{StoredTotal, TotalQuery};
use shikiri_store::{
    ChunkPage, Commit, CommitError, CommitReceipt, HookStore, Hub, Store, StoreError, StreamState,
};

use crate::storage::{CommitBytes, StorageCounters};

/// Counters of this process since it started.
#[derive(Debug, Default)]
pub struct ProcessMetrics {
    pub commits: MetricCounter,
    /// Commits that failed in the store.
    pub commit_failures: MetricCounter,
    /// Writes that were refused because the writer had lost its lease.
    pub fence_rejections: MetricCounter,
    pub events: MetricCounter,
    pub runs_started: MetricCounter,
    pub runs_completed: MetricCounter,
    pub runs_failed: MetricCounter,
    pub runs_cancelled: MetricCounter,
    /// Spawned agents of this process that are running.
    pub agents_at_work: MetricGauge,
}

#[derive(Debug, Default)]
pub struct MetricCounter(AtomicU64);

impl MetricCounter {
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }
}

/// A number that goes up and down.
#[derive(Debug, Default)]
pub struct MetricGauge(AtomicU64);

impl MetricGauge {
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub fn set(&self, level: usize) {
        self.0.store(level as u64, Ordering::Relaxed);
    }
}

/// What a commit contains, counted before the commit is moved into the store.
#[derive(Default)]
struct CommitStats {
    events: u64,
    started: u64,
    completed: u64,
    failed: u64,
    cancelled: u64,
}

impl CommitStats {
    fn of(commit: &Commit) -> Self {
        let events = commit.appends.iter().map(|append| append.events.len() as u64).sum();
        let mut stats = Self { events, ..Self::default() };
        for change in &commit.records {
            match change {
                RecordChange::Put { key, expect, columns, .. } if key.kind == Run::KIND => {
                    stats.started += u64::from(*expect == ExpectedVersion::New);
                    let is = |status: RunStatus| u64::from(columns.state == status.as_str());
                    stats.completed += is(RunStatus::Completed);
                    stats.failed += is(RunStatus::Failed);
                    stats.cancelled += is(RunStatus::Cancelled);
                }
                _ => {}
            }
        }
        stats
    }
}

impl ProcessMetrics {
    fn count(&self, stats: &CommitStats, outcome: &Result<CommitReceipt, CommitError>) {
        match outcome {
            Ok(_) => {
                self.commits.add(1);
                self.events.add(stats.events);
                self.runs_started.add(stats.started);
                self.runs_completed.add(stats.completed);
                self.runs_failed.add(stats.failed);
                self.runs_cancelled.add(stats.cancelled);
            }
            Err(CommitError::Store(_)) => self.commit_failures.add(1),
            Err(CommitError::Lease(_)) => self.fence_rejections.add(1),
            // Two writers conflicted, and one of them tries again: there is no failure to count.
            Err(_) => {}
        }
    }
}

pub(crate) struct MeteredStore {
    pub store: Arc<dyn Store>,
    pub counters: Arc<ProcessMetrics>,
    pub storage: Arc<StorageCounters>,
}

#[async_trait]
impl Store for MeteredStore {
    async fn commit(&self, commit: Commit) -> Result<CommitReceipt, CommitError> {
        let (stats, bytes) = (CommitStats::of(&commit), CommitBytes::of(&commit));
        let outcome = self.store.commit(commit).await;
        self.counters.count(&stats, &outcome);
        if outcome.is_ok() {
            self.storage.add(&bytes);
        }
        outcome
    }

    async fn read(
        &self,
        tenant: &TenantId,
        stream: &StreamId,
        after: Seq,
        max_bytes: usize,
    ) -> Result<ChunkPage, StoreError> {
        self.store.read(tenant, stream, after, max_bytes).await
    }

    async fn stream(
        &self,
        tenant: &TenantId,
        stream: &StreamId,
    ) -> Result<Option<StreamState>, StoreError> {
        self.store.stream(tenant, stream).await
    }

    async fn get(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        self.store.get(key).await
    }

    async fn find(
        &self,
        kind: &'static str,
        tenant: &TenantId,
        unique: &str,
    ) -> Result<Option<Record>, StoreError> {
        self.store.find(kind, tenant, unique).await
    }

    async fn list(&self, query: RecordQuery) -> Result<Vec<Record>, StoreError> {
        self.store.list(query).await
    }

    async fn totals(&self, query: TotalQuery) -> Result<Vec<StoredTotal>, StoreError> {
        self.store.totals(query).await
    }

    async fn next_due(&self, kind: &'static str) -> Result<Option<Timestamp>, StoreError> {
        self.store.next_due(kind).await
    }

    async fn lease(&self, name: &str) -> Result<Option<(Lease, bool)>, StoreError> {
        self.store.lease(name).await
    }

    async fn lapsed_leases(&self, prefix: &str) -> Result<Vec<Lease>, StoreError> {
        self.store.lapsed_leases(prefix).await
    }

    async fn forget_lease(&self, guard: &LeaseGuard) -> Result<(), StoreError> {
        self.store.forget_lease(guard).await
    }

    async fn purge(&self, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
        self.store.purge(before, limit).await
    }

    async fn erase(&self, tenant: &TenantId) -> Result<(), StoreError> {
        self.store.erase(tenant).await
    }

    async fn erase_streams(
        &self,
        tenant: &TenantId,
        streams: &[StreamId],
    ) -> Result<(), StoreError> {
        self.store.erase_streams(tenant, streams).await
    }

    async fn stored_bytes(
        &self,
        tenant: &TenantId,
        kinds: &'static [&'static str],
    ) -> Result<u64, StoreError> {
        self.store.stored_bytes(tenant, kinds).await
    }

    async fn probe(&self) -> Result<(), StoreError> {
        self.store.probe().await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.store.now().await
    }

    fn hub(&self) -> &Arc<Hub> {
        self.store.hub()
    }

    fn hooks(&self) -> &dyn HookStore {
        self.store.hooks()
    }

    fn backend(&self) -> &'static str {
        self.store.backend()
    }
}
