//! The trait that both backends implement, small and complete.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use shikiri_model::cursor::Extent;
use shikiri_model::event::{Chunk, Seq, StreamId};
use shikiri_model::ids::TenantId;
use shikiri_model::lease::{Guard, Lease, LeaseChange, LeaseRefusal};
use shikiri_model::record::{Document, Record, RecordKey, RecordQuery, Stored};
use shikiri_model::time::Timestamp;

use crate::commit::{Commit, Committed};
use crate::error::{CommitError, StoreError};
use crate::hooks::HookStore;
use crate::hub::{Hub, Topic};

/// What a stream is, without its events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamState {
    pub extent: Extent,
    pub note: Option<String>,
}

/// Consecutive chunks after a cursor (the first may begin before it).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    pub chunks: Vec<Chunk>,
    pub extent: Extent,
}

#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Writes all of it or nothing, in the order in which commits were handed in. Returns after
    /// the commit is durable; watchers are woken no earlier. (A commit of leases alone need not
    /// outlive the machine, as no holder of a lease does.)
    ///
    /// Handing in happens when this future is first polled, or, with the queue full, as soon as
    /// there is room; dropping it after that does not take the commit back.
    async fn commit(&self, commit: Commit) -> Result<Committed, CommitError>;

    /// Events after `after`, at most about `max_bytes` (always at least one if there is one).
    /// Refuses a cursor that never was or whose events are gone.
    async fn read(
        &self,
        tenant: &TenantId,
        stream: &StreamId,
        after: Seq,
        max_bytes: usize,
    ) -> Result<Page, StoreError>;

    /// None if there is no such stream of that tenant.
    async fn stream(
        &self,
        tenant: &TenantId,
        stream: &StreamId,
    ) -> Result<Option<StreamState>, StoreError>;

    async fn get(&self, key: &RecordKey) -> Result<Option<Record>, StoreError>;

    /// The record of that kind and tenant whose unique column is `unique`.
    async fn find(
        &self,
        kind: &'static str,
        tenant: &TenantId,
        unique: &str,
    ) -> Result<Option<Record>, StoreError>;

    /// A page; with no tenant given, only its first page is meant to be read.
    async fn list(&self, query: RecordQuery) -> Result<Vec<Record>, StoreError>;

    /// When the next record of this kind is due, if any is.
    async fn next_due(&self, kind: &'static str) -> Result<Option<Timestamp>, StoreError>;

    /// The lease, with whether it has run out by the store's clock.
    async fn lease(&self, name: &str) -> Result<Option<(Lease, bool)>, StoreError>;

    /// Leases whose name starts with `prefix` and whose time has run out.
    async fn lapsed_leases(&self, prefix: &str) -> Result<Vec<Lease>, StoreError>;

    /// Removes a lapsed lease whose fence is still this one. Its fence starts anew if the name is
    /// used again, so this is for names that are not, such as those of nodes.
    async fn forget_lease(&self, guard: &Guard) -> Result<(), StoreError>;

    /// Removes events older than `before` from closed streams (the journal of a living run is
    /// never cut), at most `limit` chunks; returns how many chunks went.
    async fn purge(&self, before: Timestamp, limit: u32) -> Result<u64, StoreError>;

    /// Removes a tenant's streams, events, records and rows of hooks for good.
    async fn erase(&self, tenant: &TenantId) -> Result<(), StoreError>;

    /// Bytes of a tenant's events, and of its records of these kinds.
    async fn stored_bytes(
        &self,
        tenant: &TenantId,
        kinds: &'static [&'static str],
    ) -> Result<u64, StoreError>;

    /// Proves that a write reaches the disk.
    async fn probe(&self) -> Result<(), StoreError>;

    /// The store's time: the database's on PostgreSQL.
    async fn now(&self) -> Result<Timestamp, StoreError>;

    fn hub(&self) -> &Arc<Hub>;

    /// Rows of Claude Code's hooks.
    fn hooks(&self) -> &dyn HookStore;

    /// `sqlite` or `postgres`, for logs and reports.
    fn backend(&self) -> &'static str;
}

/// How often a waiter looks at a lease that another process may have freed without telling us.
const LEASE_POLL: Duration = Duration::from_millis(50);

/// What follows from the trait for every backend.
#[async_trait]
pub trait StoreExt: Store {
    async fn load<T: Document + Send>(
        &self,
        tenant: &TenantId,
        id: &str,
    ) -> Result<Option<Stored<T>>, StoreError> {
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

    /// Takes the lease as soon as it is free, or tells who holds it after `wait`.
    async fn acquire(
        &self,
        name: &str,
        owner: &str,
        ttl: Duration,
        wait: Duration,
    ) -> Result<Lease, CommitError> {
        let deadline = tokio::time::Instant::now() + wait;
        let mut freed = self.hub().subscribe(Topic::Lease(name.to_owned()));
        loop {
            let held = match self.try_acquire(name, owner, ttl).await {
                Err(CommitError::Lease(held @ LeaseRefusal::Held { .. })) => held,
                other => return other,
            };
            // Look before trying again: a hundred waiters must not become a hundred writers.
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

    async fn renew(&self, guard: &Guard, ttl: Duration) -> Result<Lease, CommitError> {
        let change = LeaseChange::Renew { guard: guard.clone(), ttl };
        single(self.commit(Commit::new().lease(change)).await?)
    }

    async fn release(&self, guard: &Guard) -> Result<(), CommitError> {
        let change = LeaseChange::Release { guard: guard.clone() };
        self.commit(Commit::new().lease(change)).await.map(drop)
    }
}

impl<S: Store + ?Sized> StoreExt for S {}

pub fn decode<T: Document>(record: &Record) -> Result<Stored<T>, StoreError> {
    record.decode().map_err(|cause| {
        StoreError::broken(format!("{} {} cannot be read: {cause}", T::KIND, record.key.id))
    })
}

fn single(committed: Committed) -> Result<Lease, CommitError> {
    committed
        .leases
        .into_iter()
        .next()
        .ok_or_else(|| StoreError::broken("a lease change gave no lease").into())
}
