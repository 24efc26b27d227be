//! A store that takes its time and can be told to refuse, as one that is away for a while does.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use shikiri_model::event::{Seq, StreamId};
use shikiri_model::ids::TenantId;
use shikiri_model::lease::{Lease, LeaseGuard};
use shikiri_model::record::{Record, RecordChange, RecordKey, RecordQuery};
use shikiri_model::time::Timestamp;
use shikiri_model::total::{StoredTotal, TotalQuery};
use shikiri_store::{
    ChunkPage, Commit, CommitError, CommitReceipt, HookStore, Hub, Store, StoreError, StoreExt,
    StreamState,
};
use tokio::sync::watch;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refuse {
    Nothing,
    /// Commits that only append events.
    Events,
    Commits,
}

pub(crate) struct Flaky {
    store: Arc<dyn Store>,
    refuse: AtomicU8,
    no_time: AtomicBool,
    /// How many commits were refused so far.
    refused: watch::Sender<usize>,
    /// Whether ends are kept without an answer to their writer.
    holds_ends: watch::Sender<bool>,
    /// Whether commits that remove records wait before they are made.
    holds_removals: watch::Sender<bool>,
    burial: Mutex<Option<(LeaseGuard, PathBuf)>>,
}

impl Flaky {
    pub(crate) fn over(store: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            store,
            refuse: AtomicU8::new(Refuse::Nothing as u8),
            no_time: AtomicBool::new(false),
            refused: watch::Sender::new(0),
            holds_ends: watch::Sender::new(false),
            holds_removals: watch::Sender::new(false),
            burial: Mutex::default(),
        })
    }

    pub(crate) fn refuse(&self, what: Refuse) {
        self.refuse.store(what as u8, Ordering::SeqCst);
    }

    /// Whether the store does not even say what time it is.
    pub(crate) fn hide_time(&self, hidden: bool) {
        self.no_time.store(hidden, Ordering::SeqCst);
    }

    /// Whether commits that end a stream are answered late, although they are made.
    pub(crate) fn hold_ends(&self, held: bool) {
        self.holds_ends.send_replace(held);
    }

    /// Whether commits that remove records wait before they are made.
    pub(crate) fn hold_removals(&self, held: bool) {
        self.holds_removals.send_replace(held);
    }

    /// Right after the lease of a dead node was read, another process reaps the node.
    pub(crate) fn bury_after_look(&self, lease: LeaseGuard, sign: PathBuf) {
        *self.burial.lock().unwrap() = Some((lease, sign));
    }

    pub(crate) fn refused(&self) -> usize {
        *self.refused.borrow()
    }

    pub(crate) async fn until_refused(&self, count: usize) {
        let mut refused = self.refused.subscribe();
        let waiting = refused.wait_for(|refused| *refused >= count);
        tokio::time::timeout(Duration::from_secs(120), waiting).await.expect("a refusal").unwrap();
    }

    fn refuses(&self, commit: &Commit) -> bool {
        let told = self.refuse.load(Ordering::SeqCst);
        let only_events = commit.records.is_empty()
            && commit.leases.is_empty()
            && commit.claims.is_empty()
            && !commit.appends.is_empty();
        told == Refuse::Commits as u8 || (told == Refuse::Events as u8 && only_events)
    }
}

fn away() -> StoreError {
    StoreError::unavailable("away for the test")
}

#[async_trait]
impl Store for Flaky {
    async fn commit(&self, commit: Commit) -> Result<CommitReceipt, CommitError> {
        if self.refuses(&commit) {
            self.refused.send_modify(|refused| *refused += 1);
            return Err(away().into());
        }
        if commit.records.iter().any(|change| matches!(change, RecordChange::Delete { .. })) {
            let _ = self.holds_removals.subscribe().wait_for(|held| !held).await;
        }
        let is_end = commit.appends.iter().any(|append| append.close);
        let committed = self.store.commit(commit).await;
        if is_end {
            let _ = self.holds_ends.subscribe().wait_for(|held| !held).await;
        }
        committed
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        if self.no_time.load(Ordering::SeqCst) { Err(away()) } else { self.store.now().await }
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
        // Not at once, as over a network: others get their turn meanwhile.
        tokio::task::yield_now().await;
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
        let seen = self.store.lease(name).await;
        let burial = self.burial.lock().unwrap().take_if(|(guard, _)| guard.name == name);
        if let Some((guard, sign)) = burial {
            self.store.release(&guard).await.unwrap();
            std::fs::remove_file(sign).unwrap();
        }
        seen
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
