//! Decides a batch of commits. Pure: it is given the rows that the batch names, locked by the
//! backend's transaction, and returns each commit's outcome and the rows to write.
//!
//! A commit is drafted whole before any of it is applied, and a later commit of the batch sees
//! what an earlier one did. So no savepoints are needed, and a refused commit leaves no trace.

mod draft;
mod pack;

use std::collections::{BTreeSet, HashMap};

use shikiri_model::event::{Chunk, Seq, StreamId};
use shikiri_model::ids::TenantId;
use shikiri_model::lease::{Lease, LeaseTime};
use shikiri_model::record::{Claim, Record, RecordChange, RecordKey};
use shikiri_model::time::Timestamp;

use self::draft::{Changes, Draft};
use self::pack::Pending;
use crate::commit::{Append, Commit, Committed};
use crate::error::CommitError;
use crate::hub::Topic;

/// Rows that a batch needs, each listed once and in a fixed order (so that two nodes lock them
/// in the same order).
#[derive(Debug, Default)]
pub struct Needs<'a> {
    pub leases: BTreeSet<&'a str>,
    pub streams: BTreeSet<&'a StreamId>,
    pub records: BTreeSet<&'a RecordKey>,
    /// (kind, tenant, unique value) that a put wants to have.
    pub uniques: BTreeSet<(&'static str, &'a TenantId, &'a str)>,
    pub claims: Vec<&'a Claim>,
}

impl<'a> Needs<'a> {
    pub fn of(batch: &'a [Commit]) -> Self {
        let mut needs = Self::default();
        for commit in batch {
            needs.leases.extend(commit.guards.iter().map(|guard| guard.name.as_str()));
            needs.leases.extend(commit.leases.iter().map(|change| change.name()));
            needs.streams.extend(commit.appends.iter().map(|append| &append.stream));
            needs.claims.extend(&commit.claims);
            needs.records.extend(commit.requires.iter().map(|(key, _)| key));
            for change in &commit.records {
                needs.records.insert(change.key());
                if let RecordChange::Put { key, columns, .. } = change
                    && let Some(unique) = &columns.unique
                {
                    needs.uniques.insert((key.kind, &key.tenant, unique));
                }
            }
        }
        needs
    }

    /// How many due records to load for each claim: as many as all claims together may take, and
    /// one more for every record that the batch may move out of their reach.
    pub fn candidates_per_claim(&self) -> usize {
        let taken: usize = self.claims.iter().map(|claim| claim.limit as usize).sum();
        taken + self.records.len()
    }
}

/// What only one record may have: kind, tenant and unique value.
pub type UniqueSlot = (&'static str, TenantId, String);

/// A stream row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamRow {
    pub tenant: TenantId,
    pub head: Seq,
    pub closed: bool,
}

/// The rows as loaded; what is missing does not exist.
#[derive(Debug, Default)]
pub struct Loaded {
    pub now: Timestamp,
    pub lease_now: LeaseTime,
    pub leases: HashMap<String, Lease>,
    pub streams: HashMap<StreamId, StreamRow>,
    pub records: HashMap<RecordKey, Record>,
    /// Who has a unique value now.
    pub uniques: HashMap<UniqueSlot, String>,
    /// Due records that the batch's claims may take: for each claim the oldest due ones, up to
    /// [`Needs::candidates_per_claim`].
    pub candidates: Vec<Record>,
}

/// What to write, and whom to wake once it is committed.
#[derive(Debug, Default)]
pub struct Writes {
    pub leases: Vec<Lease>,
    pub streams: Vec<StreamWrite>,
    /// Deleted before anything is put: a put may take the unique value of a deleted record.
    pub deleted: Vec<RecordKey>,
    /// Records whose old unique value goes to another record of this batch. It must be cleared
    /// before anything is put, because two records may have changed places. (One that the batch
    /// itself made has no row yet.)
    pub vacated: Vec<RecordKey>,
    pub records: Vec<Record>,
    pub wakes: Vec<Topic>,
}

#[derive(Debug)]
pub struct StreamWrite {
    pub stream: StreamId,
    pub row: StreamRow,
    pub note: Option<String>,
    pub is_new: bool,
    pub chunks: Vec<Chunk>,
}

impl StreamWrite {
    /// How much longer the stream gets.
    pub fn bytes(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.body().len() as u64).sum()
    }
}

impl Writes {
    pub fn is_empty(&self) -> bool {
        self.leases.is_empty()
            && self.streams.is_empty()
            && self.records.is_empty()
            && self.deleted.is_empty()
    }
}

pub fn settle(batch: &[Commit], loaded: Loaded) -> (Vec<Result<Committed, CommitError>>, Writes) {
    let mut state = State::new(loaded);
    let outcomes = batch.iter().map(|commit| state.apply(commit)).collect();
    (outcomes, state.finish())
}

/// The rows as the commits so far have left them.
struct State {
    loaded: Loaded,
    /// Records that may be due: the loaded candidates and what the batch wrote.
    claimable: BTreeSet<RecordKey>,
    changed_leases: BTreeSet<String>,
    changed_records: BTreeSet<RecordKey>,
    given_up: Vec<(UniqueSlot, RecordKey)>,
    pending: HashMap<StreamId, Pending>,
    /// Streams in the order in which they were first touched.
    order: Vec<StreamId>,
    due_kinds: BTreeSet<&'static str>,
}

impl State {
    fn new(mut loaded: Loaded) -> Self {
        let mut claimable = BTreeSet::new();
        for candidate in loaded.candidates.drain(..) {
            claimable.insert(candidate.key.clone());
            loaded.records.insert(candidate.key.clone(), candidate);
        }
        Self {
            loaded,
            claimable,
            changed_leases: BTreeSet::new(),
            changed_records: BTreeSet::new(),
            given_up: Vec::new(),
            pending: HashMap::new(),
            order: Vec::new(),
            due_kinds: BTreeSet::new(),
        }
    }

    fn apply(&mut self, commit: &Commit) -> Result<Committed, CommitError> {
        for guard in &commit.guards {
            guard.check(self.loaded.leases.get(&guard.name), self.loaded.lease_now)?;
        }
        let mut draft = Draft::on(&self.loaded);
        for (key, version) in &commit.requires {
            draft.require(key, *version)?;
        }
        let leases = all(&commit.leases, |change| draft.change_lease(change))?;
        let versions = all(&commit.records, |change| draft.change_record(change))?;
        let appended = all(&commit.appends, |append| draft.append(append))?;
        let changes = draft.into_changes();
        // From here on nothing can be refused.
        self.pack(&commit.appends);
        self.keep(changes);
        let claimed = commit.claims.iter().flat_map(|claim| self.claim(claim)).collect();
        Ok(Committed { at: self.loaded.now, appended, leases, versions, claimed })
    }

    fn pack(&mut self, appends: &[Append]) {
        for append in appends {
            let pending = self.pending.entry(append.stream.clone()).or_insert_with(|| {
                self.order.push(append.stream.clone());
                let row = self.loaded.streams.get(&append.stream);
                Pending::starting_after(row.map_or(0, |row| row.head), row.is_none())
            });
            pending.add(self.loaded.now, append);
        }
    }

    fn keep(&mut self, changes: Changes) {
        self.changed_leases.extend(changes.leases.keys().cloned());
        self.loaded.leases.extend(changes.leases);
        self.loaded.streams.extend(changes.streams);
        self.given_up.extend(changes.given_up);
        for (slot, holder) in changes.uniques {
            match holder {
                Some(id) => self.loaded.uniques.insert(slot, id),
                None => self.loaded.uniques.remove(&slot),
            };
        }
        for (key, record) in changes.records {
            self.changed_records.insert(key.clone());
            match record {
                Some(record) => {
                    if record.columns.due_at.is_some() {
                        self.due_kinds.insert(key.kind);
                        self.claimable.insert(key.clone());
                    }
                    self.loaded.records.insert(key, record);
                }
                None => {
                    self.loaded.records.remove(&key);
                }
            }
        }
    }

    fn claim(&mut self, claim: &Claim) -> Vec<Record> {
        let now = self.loaded.now;
        let records = &mut self.loaded.records;
        let mut wanted: Vec<_> = self
            .claimable
            .iter()
            .filter_map(|key| records.get(key).filter(|record| claim.wants(record, now)))
            .collect();
        wanted.sort_by_key(|record| (record.columns.due_at, &record.key));
        let taken: Vec<_> =
            wanted.iter().take(claim.limit as usize).map(|r| claim.take(r, now)).collect();
        for record in &taken {
            self.changed_records.insert(record.key.clone());
            records.insert(record.key.clone(), record.clone());
        }
        taken
    }

    fn finish(mut self) -> Writes {
        let mut writes = Writes { vacated: self.vacated(), ..Writes::default() };
        writes.wakes.extend(self.due_kinds.into_iter().map(Topic::Due));
        for lease in self.changed_leases.iter().filter_map(|n| self.loaded.leases.remove(n)) {
            if lease.expires_at <= self.loaded.lease_now {
                writes.wakes.push(Topic::Lease(lease.name.clone()));
            }
            writes.leases.push(lease);
        }
        for key in self.changed_records {
            match self.loaded.records.remove(&key) {
                Some(record) => writes.records.push(record),
                None => writes.deleted.push(key),
            }
        }
        for stream in self.order {
            if let Some(pending) = self.pending.remove(&stream)
                && let Some(row) = self.loaded.streams.remove(&stream)
            {
                let (is_new, note) = (pending.is_new, pending.note.clone());
                let chunks = pending.finish();
                writes.streams.push(StreamWrite { stream, row, note, is_new, chunks });
            }
        }
        writes
    }

    fn vacated(&self) -> Vec<RecordKey> {
        let moved = |(slot, before): &&(UniqueSlot, RecordKey)| {
            self.loaded.uniques.get(slot).is_some_and(|id| *id != before.id)
        };
        let keys: BTreeSet<_> = self.given_up.iter().filter(moved).map(|(_, key)| key).collect();
        keys.into_iter().filter(|key| self.loaded.records.contains_key(key)).cloned().collect()
    }
}

fn all<T, U>(
    parts: &[T],
    apply: impl FnMut(&T) -> Result<U, CommitError>,
) -> Result<Vec<U>, CommitError> {
    parts.iter().map(apply).collect()
}

#[cfg(test)]
#[path = "settle_rows.rs"]
mod rows;

#[cfg(test)]
#[path = "settle_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "settle_batch_tests.rs"]
mod batch_tests;

#[cfg(test)]
#[path = "settle_random_tests.rs"]
mod random_tests;
