//! The trait that both backends implement.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use shikiri_model::cursor::StreamExtent;
use shikiri_model::event::{Chunk, Seq, StreamId};
use shikiri_model::ids::TenantId;
use shikiri_model::lease::{Lease, LeaseChange, LeaseGuard, LeaseRefusal};
use shikiri_model::record::{Document, Record, RecordKey, RecordQuery, StoredDocument};
use shikiri_model::time::Timestamp;
use shikiri_model::total::{StoredTotal, TotalQuery};

use crate::commit::{Commit, CommitReceipt};
use crate::error::{CommitError, StoreError};
use crate::hook_store::HookStore;
use crate::hub::{Hub, HubTopic};

/// The state of a stream, without its events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamState {
    pub extent: StreamExtent,
    pub note: Option<String>,
}

/// Consecutive chunks after a cursor (the first may begin before it).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkPage {
    pub chunks: Vec<Chunk>,
    pub extent: StreamExtent,
}

#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Writes the whole commit or nothing. Commits are written in the order in which they were
    /// submitted. Returns after the commit is durable; subscribers are woken at the same time or
    /// later. (A commit that changes only leases need not survive a restart of the machine, because
    /// no lease holder does.)
    ///
    /// A commit is submitted when this future is first polled or, if the queue is full, as soon as
    /// there is room. Dropping the future after that does not cancel the commit.
    async fn commit(&self, commit: Commit) -> Result<CommitReceipt, CommitError>;

    /// Reads events after `after`, about `max_bytes` at most, but at least one if there is one.
    /// Refuses a cursor that never existed or whose events were removed.
    async fn read(
        &self,
        tenant: &TenantId,
        stream: &StreamId,
        after: Seq,
        max_bytes: usize,
    ) -> Result<ChunkPage, StoreError>;

    /// The state of a stream; None if the tenant has no such stream.
    async fn stream(
        &self,
        tenant: &TenantId,
        stream: &StreamId,
    ) -> Result<Option<StreamState>, StoreError>;

    async fn get(&self, key: &RecordKey) -> Result<Option<Record>, StoreError>;

    /// Finds the record of a kind and tenant by its unique column.
    async fn find(
        &self,
        kind: &'static str,
        tenant: &TenantId,
        unique: &str,
    ) -> Result<Option<Record>, StoreError>;

    /// Reads a page of records. Without a tenant, only the first page is supported.
    async fn list(&self, query: RecordQuery) -> Result<Vec<Record>, StoreError>;

    /// Reads totals. The number of runs by status is among them: the store counts the records that
    /// [`count_key`](shikiri_model::run::count_key) names, in the commit that changes them.
    async fn totals(&self, query: TotalQuery) -> Result<Vec<StoredTotal>, StoreError>;

    /// When the next record of this kind is due, if any.
    async fn next_due(&self, kind: &'static str) -> Result<Option<Timestamp>, StoreError>;

    /// A lease, and whether it has lapsed by the store's clock.
    async fn lease(&self, name: &str) -> Result<Option<(Lease, bool)>, StoreError>;

    /// Lapsed leases whose name starts with `prefix`.
    async fn lapsed_leases(&self, prefix: &str) -> Result<Vec<Lease>, StoreError>;

    /// Removes a lapsed lease with this fence. If the name is used again, its fence starts anew, so
    /// this is only for names that are never reused, such as those of nodes.
    async fn forget_lease(&self, guard: &LeaseGuard) -> Result<(), StoreError>;

    /// Removes events older than `before` from closed streams, at most `limit` chunks; returns the
    /// number of removed chunks. The journal of a running run is never touched.
    async fn purge(&self, before: Timestamp, limit: u32) -> Result<u64, StoreError>;

    /// Removes a tenant's streams, events, records, totals and hook rows permanently.
    async fn erase(&self, tenant: &TenantId) -> Result<(), StoreError>;

    /// Removes these streams of a tenant with their events permanently. Missing ones are passed over.
    async fn erase_streams(
        &self,
        tenant: &TenantId,
        streams: &[StreamId],
    ) -> Result<(), StoreError>;

    /// The bytes of a tenant's events and of its records of these kinds.
    async fn stored_bytes(
        &self,
        tenant: &TenantId,
        kinds: &'static [&'static str],
    ) -> Result<u64, StoreError>;

    /// Tests that a write reaches the disk.
    async fn probe(&self) -> Result<(), StoreError>;

    /// The store's time. On PostgreSQL, the database's.
    async fn now(&self) -> Result<Timestamp, StoreError>;

    fn hub(&self) -> &Arc<Hub>;

    /// The rows of Claude Code's hooks.
    fn hooks(&self) -> &dyn HookStore;

    /// `sqlite` or `postgres`, for logs and reports.
    fn backend(&self) -> &'static str;
}

/// How often a waiter checks a lease that another process may have released without a notification.
const LEASE_POLL: Duration = Duration::from_millis(50);

/// Functions that follow from [`Store`] for every backend.
#[async_trait]
pub trait StoreExt: Store {
    async fn load<T: Document + Send>(
        &self,
        tenant: &TenantId,
        id: &str,
    ) -> Result<Option<StoredDocument<T>>, StoreError> {
        let key = RecordKey { kind: T::KIND, tenant: tenant.clone(), id: id.to_owned() };
        self.get(&key).await?.map(|record| decode(&record)).transpose()
    }

    async fn try_acquire(
        &self,
        name: &str,
        owner: &str,
        ttl: Duration,
    ) -> Result<Lease, CommitError> {
        let change = LeaseChange::Acquire { name: name.to_owned(), owner: owner.to_owned(), ttl };
        single(self.commit(Commit::new().lease(change)).await?)
    }

    /// Acquires the lease as soon as it is free, or returns its holder after `wait`.
    async fn acquire(
        &self,
        name: &str,
        owner: &str,
        ttl: Duration,
        wait: Duration,
    ) -> Result<Lease, CommitError> {
        let deadline = tokio::time::Instant::now() + wait;
        let mut freed = self.hub().subscribe(HubTopic::Lease(name.to_owned()));
        loop {
            let held = match self.try_acquire(name, owner, ttl).await {
                Err(CommitError::Lease(held @ LeaseRefusal::Held { .. })) => held,
                other => return other,
            };
            // Check before trying again, so that a hundred waiters do not become a hundred writers.
            loop {
                let now = tokio::time::Instant::now();
                if now >= deadline {
                    return Err(held.into());
                }
                let pause = LEASE_POLL.min(deadline - now);
                let _ = tokio::time::timeout(pause, freed.next()).await;
                if self.lease(name).await?.is_none_or(|(_, lapsed)| lapsed) {
                    break;
                }
            }
        }
    }

    async fn renew(&self, guard: &LeaseGuard, ttl: Duration) -> Result<Lease, CommitError> {
        let change = LeaseChange::Renew { guard: guard.clone(), ttl };
        single(self.commit(Commit::new().lease(change)).await?)
    }

    async fn release(&self, guard: &LeaseGuard) -> Result<(), CommitError> {
        let change = LeaseChange::Release { guard: guard.clone() };
        self.commit(Commit::new().lease(change)).await.map(drop)
    }
}

impl<S: Store + ?Sized> StoreExt for S {}

pub fn decode<T: Document>(record: &Record) -> Result<StoredDocument<T>, StoreError> {
    record.decode().map_err(|cause| {
        StoreError::broken(format!("{} {} cannot be read: {cause}", T::KIND, record.key.id))
    })
}

fn single(committed: CommitReceipt) -> Result<Lease, CommitError> {
    committed
        .leases
        .into_iter()
        .next()
        .ok_or_else(|| StoreError::broken("a lease change gave no lease").into())
}
