//! What is written together: all of a commit happens, or nothing of it.

use shikiri_model::event::{NewEvent, Seq, StreamId};
use shikiri_model::ids::TenantId;
use shikiri_model::lease::{Guard, Lease, LeaseChange};
use shikiri_model::record::{Claim, Record, RecordChange, RecordKey};
use shikiri_model::time::Timestamp;

#[derive(Clone, Debug, Default)]
pub struct Commit {
    /// Leases that must still be held, or nothing is written.
    pub guards: Vec<Guard>,
    /// Records that must still have the version that was read, though they are not changed.
    pub requires: Vec<(RecordKey, u64)>,
    pub leases: Vec<LeaseChange>,
    pub records: Vec<RecordChange>,
    pub appends: Vec<Append>,
    pub claims: Vec<Claim>,
}

/// Events for the end of one stream.
#[derive(Clone, Debug)]
pub struct Append {
    pub tenant: TenantId,
    pub stream: StreamId,
    /// Makes the stream if there is none of that name; otherwise a missing one counts as closed,
    /// so that a late writer does not bring back what was erased.
    pub create: bool,
    pub events: Vec<NewEvent>,
    /// Replaces the stream's note: a small summary (the latest progress) that is read without
    /// reading events.
    pub note: Option<String>,
    /// Nothing can follow these events.
    pub close: bool,
}

impl Append {
    pub fn new(tenant: TenantId, stream: StreamId, events: Vec<NewEvent>) -> Self {
        Self { tenant, stream, create: true, events, note: None, close: false }
    }

    /// For a stream that is there already.
    pub fn to_existing(tenant: TenantId, stream: StreamId, events: Vec<NewEvent>) -> Self {
        Self { create: false, ..Self::new(tenant, stream, events) }
    }
}

/// What became of a commit, in the order in which its parts were given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The time that its events and records carry.
    pub at: Timestamp,
    pub appended: Vec<Appended>,
    pub leases: Vec<Lease>,
    /// New version of each put record (0 for a deleted one).
    pub versions: Vec<u64>,
    /// The claimed records, of all claims together.
    pub claimed: Vec<Record>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    pub first_seq: Seq,
    pub last_seq: Seq,
}

impl Commit {
    pub fn new() -> Self {
        Self::default()
    }

    #[must_use]
    pub fn guarded_by(mut self, guard: Guard) -> Self {
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
    pub fn append(mut self, append: Append) -> Self {
        self.appends.push(append);
        self
    }

    #[must_use]
    pub fn claim(mut self, claim: Claim) -> Self {
        self.claims.push(claim);
        self
    }

    #[must_use]
    pub fn lease(mut self, change: LeaseChange) -> Self {
        self.leases.push(change);
        self
    }

    /// It takes, renews or gives back leases, and does nothing else.
    pub fn is_of_leases(&self) -> bool {
        self.records.is_empty() && self.appends.is_empty() && self.claims.is_empty()
    }

    /// Roughly how many bytes this writes, to bound batches.
    pub fn size(&self) -> usize {
        let events = self.appends.iter().flat_map(|a| &a.events).map(NewEvent::size);
        let docs = self.records.iter().map(|r| match r {
            RecordChange::Put { doc, .. } => doc.len() + 200,
            RecordChange::Delete { .. } => 100,
        });
        events.chain(docs).sum::<usize>() + 64
    }
}
