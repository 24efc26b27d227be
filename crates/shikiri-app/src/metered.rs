//! Counts what goes through the store, for operators.
//!
//! Everything that happens is a commit, so this one place sees all of it, whichever door or
//! worker it came from.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use shikiri_model::event::{Seq, StreamId};
use shikiri_model::ids::TenantId;
use shikiri_model::lease::{Guard, Lease};
use shikiri_model::record::{Document, Expect, Record, RecordChange, RecordKey, RecordQuery};
use shikiri_model::run::{Run, RunStatus};
use shikiri_model::time::Timestamp;
use shikiri_store::{
    Commit, CommitError, Committed, HookStore, Hub, Page, Store, StoreError, StreamState,
};

use crate::storage::{CommitBytes, StorageCounters};

/// What this process has done since it started.
#[derive(Debug, Default)]
pub struct Counters {
    pub commits: Counter,
    /// Commits that the store could not do.
    pub commit_failures: Counter,
    /// Writes under a lease that was not the writer's any more.
    pub fence_rejections: Counter,
    pub events: Counter,
    pub runs_started: Counter,
    pub runs_completed: Counter,
    pub runs_failed: Counter,
    pub runs_cancelled: Counter,
    /// Agents that were started here and are at work.
    pub agents_at_work: Level,
}

#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }
}

/// A number that goes up and down.
#[derive(Debug, Default)]
pub struct Level(AtomicU64);

impl Level {
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, level: usize) {
        self.0.store(level as u64, Ordering::Relaxed);
    }
}

/// What a commit holds, noted before it is given away.
#[derive(Default)]
struct Contents {
    events: u64,
    started: u64,
    completed: u64,
    failed: u64,
    cancelled: u64,
}

impl Contents {
    fn of(commit: &Commit) -> Self {
        let events = commit.appends.iter().map(|append| append.events.len() as u64).sum();
        let mut contents = Self { events, ..Self::default() };
        for change in &commit.records {
            match change {
                RecordChange::Put { key, expect, columns, .. } if key.kind == Run::KIND => {
                    contents.started += u64::from(*expect == Expect::New);
                    let is = |status: RunStatus| u64::from(columns.state == status.as_str());
                    contents.completed += is(RunStatus::Completed);
                    contents.failed += is(RunStatus::Failed);
                    contents.cancelled += is(RunStatus::Cancelled);
                }
                _ => {}
            }
        }
        contents
    }
}

impl Counters {
    fn count(&self, contents: &Contents, outcome: &Result<Committed, CommitError>) {
        match outcome {
            Ok(_) => {
                self.commits.add(1);
                self.events.add(contents.events);
                self.runs_started.add(contents.started);
                self.runs_completed.add(contents.completed);
                self.runs_failed.add(contents.failed);
                self.runs_cancelled.add(contents.cancelled);
            }
            Err(CommitError::Store(_)) => self.commit_failures.add(1),
            Err(CommitError::Lease(_)) => self.fence_rejections.add(1),
            // Two writers met, and one of them starts over: nothing to report.
            Err(_) => {}
        }
    }
}

pub(crate) struct Metered {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) storage: Arc<StorageCounters>,
}

#[async_trait]
impl Store for Metered {
    async fn commit(&self, commit: Commit) -> Result<Committed, CommitError> {
        let (contents, bytes) = (Contents::of(&commit), CommitBytes::of(&commit));
        let outcome = self.store.commit(commit).await;
        self.counters.count(&contents, &outcome);
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
    ) -> Result<Page, StoreError> {
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

    async fn next_due(&self, kind: &'static str) -> Result<Option<Timestamp>, StoreError> {
        self.store.next_due(kind).await
    }

    async fn lease(&self, name: &str) -> Result<Option<(Lease, bool)>, StoreError> {
        self.store.lease(name).await
    }

    async fn lapsed_leases(&self, prefix: &str) -> Result<Vec<Lease>, StoreError> {
        self.store.lapsed_leases(prefix).await
    }

    async fn forget_lease(&self, guard: &Guard) -> Result<(), StoreError> {
        self.store.forget_lease(guard).await
    }

    async fn purge(&self, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
        self.store.purge(before, limit).await
    }

    async fn erase(&self, tenant: &TenantId) -> Result<(), StoreError> {
        self.store.erase(tenant).await
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
