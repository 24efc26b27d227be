//! A commit: changes that are written together or not at all.

use shikiri_model::event::{NewEvent, Seq, StreamId};
use shikiri_model::ids::TenantId;
use shikiri_model::lease::{Lease, LeaseChange, LeaseGuard};
use shikiri_model::record::{Record, RecordChange, RecordClaim, RecordKey};
use shikiri_model::time::Timestamp;
use shikiri_model::total::TotalChange;

#[derive(Clone, Debug, Default)]
pub struct Commit {
    /// Leases that the writer must still hold. Otherwise nothing is written.
    pub guards: Vec<LeaseGuard>,
    /// Records that must still have the version that was read, although they are not changed.
    pub requires: Vec<(RecordKey, u64)>,
    pub leases: Vec<LeaseChange>,
    pub records: Vec<RecordChange>,
    pub appends: Vec<StreamAppend>,
    pub claims: Vec<RecordClaim>,
    pub totals: Vec<TotalChange>,
}

/// Events to append to one stream.
#[derive(Clone, Debug)]
pub struct StreamAppend {
    pub tenant: TenantId,
    pub stream: StreamId,
    /// Creates the stream if it does not exist. Without this, a missing stream counts as closed, so
    /// that a late writer does not bring back an erased stream.
    pub create: bool,
    pub events: Vec<NewEvent>,
    /// Replaces the stream's note: a small summary, such as the latest progress, that is read
    /// without events.
    pub note: Option<String>,
    /// Closes the stream after these events.
    pub close: bool,
}

impl StreamAppend {
    pub fn new(tenant: TenantId, stream: StreamId, events: Vec<NewEvent>) -> Self {
        Self { tenant, stream, create: true, events, note: None, close: false }
    }

    /// Appends to a stream that exists.
    pub fn to_existing(tenant: TenantId, stream: StreamId, events: Vec<NewEvent>) -> Self {
        Self { create: false, ..Self::new(tenant, stream, events) }
    }
}

/// The results of a commit, in the order of its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitReceipt {
    /// The time of its events and records.
    pub at: Timestamp,
    pub appended: Vec<AppendedRange>,
    pub leases: Vec<Lease>,
    /// The new version of each changed record (0 for a deleted one).
    pub versions: Vec<u64>,
    /// The records of all claims.
    pub claimed: Vec<Record>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppendedRange {
    pub first_seq: Seq,
    pub last_seq: Seq,
}

impl Commit {
    pub fn new() -> Self {
        Self::default()
    }

    #[must_use]
    pub fn guarded_by(mut self, guard: LeaseGuard) -> Self {
        self.guards.push(guard);
        self
    }

    #[must_use]
    pub fn requiring(mut self, key: RecordKey, version: u64) -> Self {
        self.requires.push((key, version));
        self
    }

    #[must_use]
    pub fn record(mut self, change: RecordChange) -> Self {
        self.records.push(change);
        self
    }

    #[must_use]
    pub fn append(mut self, append: StreamAppend) -> Self {
        self.appends.push(append);
        self
    }

    #[must_use]
    pub fn claim(mut self, claim: RecordClaim) -> Self {
        self.claims.push(claim);
        self
    }

    #[must_use]
    pub fn lease(mut self, change: LeaseChange) -> Self {
        self.leases.push(change);
        self
    }

    /// Whether it only acquires, renews or releases leases.
    pub fn is_lease_only(&self) -> bool {
        self.records.is_empty()
            && self.appends.is_empty()
            && self.claims.is_empty()
            && self.totals.is_empty()
    }

    /// The approximate number of bytes, for limiting batches.
    pub fn size(&self) -> usize {
        let events = self.appends.iter().flat_map(|a| &a.events).map(NewEvent::size);
        let docs = self.records.iter().map(|r| match r {
            RecordChange::Put { doc, .. } => doc.len() + 200,
            RecordChange::Delete { .. } => 100,
        });
        events.chain(docs).sum::<usize>() + self.totals.len() * 100 + 64
    }
}
