//! Decides a batch of commits without I/O. The backend's transaction loads and locks the rows that
//! the batch names; the result is each commit's outcome and the rows to write.
//!
//! A commit is drafted completely before it is applied, and a later commit of the batch sees the
//! changes of earlier ones. So no savepoints are needed, and a refused commit changes nothing.

mod chunk_packing;
mod commit_draft;
mod total_changes;

use std::collections::{BTreeSet, HashMap};

use shikiri_model::event::{Chunk, Seq, StreamId};
use shikiri_model::ids::TenantId;
use shikiri_model::lease::{Lease, LeaseTime};
use shikiri_model::record::{Record, RecordChange, RecordClaim, RecordKey};
use shikiri_model::time::Timestamp;
use shikiri_model::total::{TotalKey, TotalValue};

use self::chunk_packing::PendingChunks;
use self::commit_draft::{CommitChanges, CommitDraft};
use self::total_changes::PendingTotals;
use crate::commit::{Commit, CommitReceipt, StreamAppend};
use crate::error::CommitError;
use crate::hub::HubTopic;

/// The rows that a batch needs, each once and in a fixed order, so that all nodes lock them in the
/// same order.
#[derive(Debug, Default)]
pub struct BatchNeeds<'a> {
    pub leases: BTreeSet<&'a str>,
    pub streams: BTreeSet<&'a StreamId>,
    pub records: BTreeSet<&'a RecordKey>,
    /// (kind, tenant, unique value) of puts with a unique value.
    pub uniques: BTreeSet<(&'static str, &'a TenantId, &'a str)>,
    pub claims: Vec<&'a RecordClaim>,
    /// Totals that commits add to. The totals that count changed records are not known before the
    /// records are loaded: see [`BatchNeeds::total_keys`].
    pub totals: BTreeSet<&'a TotalKey>,
    /// Changed records with their new states; None: deleted.
    counted: Vec<(&'a RecordKey, Option<&'a str>)>,
}

impl<'a> BatchNeeds<'a> {
    pub fn of(batch: &'a [Commit]) -> Self {
        let mut needs = Self::default();
        for commit in batch {
            needs.leases.extend(commit.guards.iter().map(|guard| guard.name.as_str()));
            needs.leases.extend(commit.leases.iter().map(|change| change.name()));
            needs.streams.extend(commit.appends.iter().map(|append| &append.stream));
            needs.claims.extend(&commit.claims);
            needs.totals.extend(commit.totals.iter().map(|change| &change.key));
            needs.records.extend(commit.requires.iter().map(|(key, _)| key));
            for change in &commit.records {
                needs.records.insert(change.key());
                needs.counted.push((change.key(), total_changes::state_after(change)));
                if let RecordChange::Put { key, columns, .. } = change
                    && let Some(unique) = &columns.unique
                {
                    needs.uniques.insert((key.kind, &key.tenant, unique));
                }
            }
        }
        needs
    }

    /// The number of due records to load for each claim: the most that all claims together can
    /// take, plus one for every record that the batch itself may move.
    pub fn candidates_per_claim(&self) -> usize {
        let taken: usize = self.claims.iter().map(|claim| claim.limit as usize).sum();
        taken + self.records.len()
    }
}

/// A unique value: kind, tenant and text.
pub type UniqueSlot = (&'static str, TenantId, String);

/// A stream row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamRow {
    pub tenant: TenantId,
    pub head: Seq,
    pub closed: bool,
}

/// The loaded rows. A missing row does not exist.
#[derive(Debug, Default)]
pub struct LoadedRows {
    pub now: Timestamp,
    pub lease_now: LeaseTime,
    pub leases: HashMap<String, Lease>,
    pub streams: HashMap<StreamId, StreamRow>,
    pub records: HashMap<RecordKey, Record>,
    pub totals: HashMap<TotalKey, TotalValue>,
    /// The present holders of unique values.
    pub uniques: HashMap<UniqueSlot, String>,
    /// Due records for the batch's claims: for each claim the oldest due ones, up to
    /// [`BatchNeeds::candidates_per_claim`].
    pub candidates: Vec<Record>,
}

/// The rows to write, and the topics to wake after the commit.
#[derive(Debug, Default)]
pub struct BatchWrites {
    pub leases: Vec<Lease>,
    pub streams: Vec<StreamWrite>,
    /// Deleted before puts: a put may take the unique value of a deleted record.
    pub deleted: Vec<RecordKey>,
    /// Records whose old unique value goes to another record of this batch. The value is cleared
    /// before puts, because two records may swap values. Records that the batch created have no row
    /// yet.
    pub vacated: Vec<RecordKey>,
    pub records: Vec<Record>,
    /// Totals with their new values, in the order of their keys.
    pub totals: Vec<(TotalKey, TotalValue)>,
    pub wakes: Vec<HubTopic>,
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
    /// The bytes that are added to the stream.
    pub fn bytes(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.body().len() as u64).sum()
    }
}

impl BatchWrites {
    pub fn is_empty(&self) -> bool {
        self.leases.is_empty()
            && self.streams.is_empty()
            && self.records.is_empty()
            && self.deleted.is_empty()
            && self.totals.is_empty()
    }
}

pub fn decide_batch(
    batch: &[Commit],
    loaded: LoadedRows,
) -> (Vec<Result<CommitReceipt, CommitError>>, BatchWrites) {
    let mut state = BatchState::new(loaded);
    let outcomes = batch.iter().map(|commit| state.apply(commit)).collect();
    (outcomes, state.finish())
}

/// The rows after the commits so far.
struct BatchState {
    loaded: LoadedRows,
    /// Records that may be due: loaded candidates and records that the batch wrote.
    claimable: BTreeSet<RecordKey>,
    changed_leases: BTreeSet<String>,
    changed_records: BTreeSet<RecordKey>,
    given_up: Vec<(UniqueSlot, RecordKey)>,
    pending: HashMap<StreamId, PendingChunks>,
    /// Streams in the order of their first change.
    order: Vec<StreamId>,
    due_kinds: BTreeSet<&'static str>,
    totals: PendingTotals,
}

impl BatchState {
    fn new(mut loaded: LoadedRows) -> Self {
        let mut claimable = BTreeSet::new();
        for candidate in loaded.candidates.drain(..) {
            claimable.insert(candidate.key.clone());
            loaded.records.insert(candidate.key.clone(), candidate);
        }
        let totals = PendingTotals::before(&loaded.records);
        Self {
            loaded,
            claimable,
            changed_leases: BTreeSet::new(),
            changed_records: BTreeSet::new(),
            given_up: Vec::new(),
            pending: HashMap::new(),
            order: Vec::new(),
            due_kinds: BTreeSet::new(),
            totals,
        }
    }

    fn apply(&mut self, commit: &Commit) -> Result<CommitReceipt, CommitError> {
        for guard in &commit.guards {
            guard.check(self.loaded.leases.get(&guard.name), self.loaded.lease_now)?;
        }
        let mut draft = CommitDraft::on(&self.loaded);
        for (key, version) in &commit.requires {
            draft.require(key, *version)?;
        }
        let leases = all(&commit.leases, |change| draft.change_lease(change))?;
        let versions = all(&commit.records, |change| draft.change_record(change))?;
        let appended = all(&commit.appends, |append| draft.append(append))?;
        let changes = draft.into_changes();
        // After this point nothing is refused.
        self.pack(&commit.appends);
        self.apply_changes(changes);
        self.totals.add(&commit.totals);
        let claimed = commit.claims.iter().flat_map(|claim| self.claim(claim)).collect();
        Ok(CommitReceipt { at: self.loaded.now, appended, leases, versions, claimed })
    }

    fn pack(&mut self, appends: &[StreamAppend]) {
        for append in appends {
            let pending = self.pending.entry(append.stream.clone()).or_insert_with(|| {
                self.order.push(append.stream.clone());
                let row = self.loaded.streams.get(&append.stream);
                PendingChunks::starting_after(row.map_or(0, |row| row.head), row.is_none())
            });
            pending.add(self.loaded.now, append);
        }
    }

    fn apply_changes(&mut self, changes: CommitChanges) {
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

    fn claim(&mut self, claim: &RecordClaim) -> Vec<Record> {
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

    fn finish(mut self) -> BatchWrites {
        let mut writes = BatchWrites { vacated: self.vacated_records(), ..BatchWrites::default() };
        writes.wakes.extend(self.due_kinds.into_iter().map(HubTopic::Due));
        for lease in self.changed_leases.iter().filter_map(|n| self.loaded.leases.remove(n)) {
            if lease.expires_at <= self.loaded.lease_now {
                writes.wakes.push(HubTopic::Lease(lease.name.clone()));
            }
            writes.leases.push(lease);
        }
        writes.totals = self.totals.finish(&self.changed_records, &mut self.loaded);
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

    fn vacated_records(&self) -> Vec<RecordKey> {
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
#[path = "test_rows.rs"]
mod rows;

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "batch_tests.rs"]
mod batch_tests;

#[cfg(test)]
#[path = "random_batch_tests.rs"]
mod random_tests;
