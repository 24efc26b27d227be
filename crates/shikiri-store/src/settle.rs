//! Decides a batch of commits. Pure: it is given the rows that the batch names, locked by the
//! backend's transaction, and returns each commit's outcome and the rows to write.
//!
//! A commit is checked whole before any of it is applied, and a later commit of the batch sees
//! what an earlier one did. So no savepoints are needed, and a refused commit leaves no trace.

use std::collections::{BTreeSet, HashMap};

use shikiri_model::event::{Chunk, ChunkBuilder, Seq, StreamId};
use shikiri_model::ids::TenantId;
use shikiri_model::lease::{Lease, LeaseTime};
use shikiri_model::record::{Claim, Expect, Record, RecordChange, RecordKey};
use shikiri_model::time::Timestamp;

use crate::commit::{Append, Appended, Commit, Committed};
use crate::error::CommitError;
use crate::hub::Topic;

/// Events of one stream in one batch are packed into rows of about this size.
const CHUNK_BYTES: usize = 256 * 1024;

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
}

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
    pub uniques: HashMap<(&'static str, TenantId, String), String>,
    /// Due records that the batch's claims may take, oldest due first. For a claim to get its
    /// share, load as many for it as all claims of the batch together may take.
    pub candidates: Vec<Record>,
}

/// What to write, and whom to wake once it is committed.
#[derive(Debug, Default)]
pub struct Writes {
    pub leases: Vec<Lease>,
    pub streams: Vec<StreamWrite>,
    pub records: Vec<Record>,
    pub deleted: Vec<RecordKey>,
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

impl Writes {
    pub fn is_empty(&self) -> bool {
        self.leases.is_empty()
            && self.streams.is_empty()
            && self.records.is_empty()
            && self.deleted.is_empty()
    }
}

pub fn settle(
    batch: &[Commit],
    loaded: Loaded,
) -> (Vec<Result<Committed, CommitError>>, Writes) {
    let mut state = State::new(loaded);
    let outcomes = batch.iter().map(|commit| state.apply(commit)).collect();
    (outcomes, state.finish())
}

struct State {
    loaded: Loaded,
    changed_leases: BTreeSet<String>,
    changed_records: BTreeSet<RecordKey>,
    deleted: BTreeSet<RecordKey>,
    pending: HashMap<StreamId, Pending>,
    /// Streams in the order in which they were first touched.
    order: Vec<StreamId>,
    wakes: Vec<Topic>,
}

/// What the batch adds to one stream.
struct Pending {
    is_new: bool,
    note: Option<String>,
    next_chunk_first: Seq,
    builder: ChunkBuilder,
    chunks: Vec<Chunk>,
}

impl State {
    fn new(loaded: Loaded) -> Self {
        Self {
            loaded,
            changed_leases: BTreeSet::new(),
            changed_records: BTreeSet::new(),
            deleted: BTreeSet::new(),
            pending: HashMap::new(),
            order: Vec::new(),
            wakes: Vec::new(),
        }
    }

    fn apply(&mut self, commit: &Commit) -> Result<Committed, CommitError> {
        for guard in &commit.guards {
            guard.check(self.loaded.leases.get(&guard.name), self.loaded.lease_now)?;
        }
        let leases = self.check_leases(commit)?;
        for change in &commit.records {
            self.check_record(change)?;
        }
        for append in &commit.appends {
            self.check_append(append)?;
        }
        // From here on nothing can be refused.
        for lease in &leases {
            self.keep_lease(lease.clone());
        }
        Ok(Committed {
            at: self.loaded.now,
            versions: commit.records.iter().map(|change| self.change_record(change)).collect(),
            appended: commit.appends.iter().map(|append| self.append(append)).collect(),
            claimed: commit.claims.iter().flat_map(|claim| self.claim(claim)).collect(),
            leases,
        })
    }

    fn check_leases(&self, commit: &Commit) -> Result<Vec<Lease>, CommitError> {
        let stored = &self.loaded.leases;
        let now = self.loaded.lease_now;
        commit
            .leases
            .iter()
            .map(|change| Ok(change.apply(stored.get(change.name()), now)?))
            .collect()
    }

    fn keep_lease(&mut self, lease: Lease) {
        if lease.expires_at <= self.loaded.lease_now {
            self.wakes.push(Topic::Lease(lease.name.clone()));
        }
        self.changed_leases.insert(lease.name.clone());
        self.loaded.leases.insert(lease.name.clone(), lease);
    }

    fn check_record(&self, change: &RecordChange) -> Result<(), CommitError> {
        let stored = self.loaded.records.get(change.key());
        let key = || change.key().clone();
        match change {
            RecordChange::Delete { version, .. } if stored.map(|r| r.version) != Some(*version) => {
                Err(CommitError::Conflict(key()))
            }
            RecordChange::Delete { .. } => Ok(()),
            RecordChange::Put { expect: Expect::New, .. } if stored.is_some() => {
                Err(CommitError::Exists(key()))
            }
            RecordChange::Put { expect: Expect::Version(version), .. }
                if stored.map(|r| r.version) != Some(*version) =>
            {
                Err(CommitError::Conflict(key()))
            }
            RecordChange::Put { key, columns, .. } => match &columns.unique {
                Some(unique) => self.check_unique(key, unique),
                None => Ok(()),
            },
        }
    }

    fn check_unique(&self, key: &RecordKey, unique: &str) -> Result<(), CommitError> {
        let slot = (key.kind, key.tenant.clone(), unique.to_owned());
        match self.loaded.uniques.get(&slot) {
            Some(id) if *id != key.id => {
                Err(CommitError::NotUnique(RecordKey { id: id.clone(), ..key.clone() }))
            }
            _ => Ok(()),
        }
    }

    fn change_record(&mut self, change: &RecordChange) -> u64 {
        let key = change.key();
        let before = self.loaded.records.remove(key);
        if let Some(unique) = before.as_ref().and_then(|r| r.columns.unique.clone()) {
            self.loaded.uniques.remove(&(key.kind, key.tenant.clone(), unique));
        }
        let RecordChange::Put { columns, doc, .. } = change else {
            self.changed_records.remove(key);
            self.deleted.insert(key.clone());
            return 0;
        };
        if let Some(unique) = &columns.unique {
            let slot = (key.kind, key.tenant.clone(), unique.clone());
            self.loaded.uniques.insert(slot, key.id.clone());
        }
        if columns.due_at.is_some() {
            self.wakes.push(Topic::Due(key.kind));
        }
        let now = self.loaded.now;
        let record = Record {
            key: key.clone(),
            version: before.as_ref().map_or(0, |r| r.version) + 1,
            attempts: 0,
            created_at: before.map_or(now, |r| r.created_at),
            updated_at: now,
            columns: columns.clone(),
            doc: doc.clone(),
        };
        self.keep_record(record)
    }

    fn keep_record(&mut self, record: Record) -> u64 {
        let version = record.version;
        self.deleted.remove(&record.key);
        self.changed_records.insert(record.key.clone());
        self.loaded.records.insert(record.key.clone(), record);
        version
    }

    fn claim(&mut self, claim: &Claim) -> Vec<Record> {
        let now = self.loaded.now;
        let mut taken = Vec::new();
        let candidates = std::mem::take(&mut self.loaded.candidates);
        for candidate in &candidates {
            if taken.len() >= claim.limit as usize {
                break;
            }
            // An earlier commit of this batch may have changed, taken or deleted it.
            if self.deleted.contains(&candidate.key) {
                continue;
            }
            let current = self.loaded.records.get(&candidate.key).unwrap_or(candidate);
            if claim.wants(current, now) {
                let claimed = claim.take(current, now);
                self.keep_record(claimed.clone());
                taken.push(claimed);
            }
        }
        self.loaded.candidates = candidates;
        taken
    }

    fn check_append(&self, append: &Append) -> Result<(), CommitError> {
        match self.loaded.streams.get(&append.stream) {
            // A stream of another tenant is treated as closed: its name says nothing.
            Some(row) if row.closed || row.tenant != append.tenant => {
                Err(CommitError::Closed(append.stream.clone()))
            }
            _ => Ok(()),
        }
    }

    fn append(&mut self, append: &Append) -> Appended {
        let now = self.loaded.now;
        let is_new = !self.loaded.streams.contains_key(&append.stream);
        let row = self.loaded.streams.entry(append.stream.clone()).or_insert_with(|| StreamRow {
            tenant: append.tenant.clone(),
            head: 0,
            closed: false,
        });
        let pending = self.pending.entry(append.stream.clone()).or_insert_with(|| {
            self.order.push(append.stream.clone());
            Pending::starting_after(row.head, is_new)
        });
        for event in &append.events {
            pending.push(now, event);
        }
        if append.note.is_some() {
            pending.note.clone_from(&append.note);
        }
        let first_seq = row.head + 1;
        row.head += append.events.len() as u64;
        row.closed |= append.close;
        Appended { first_seq, last_seq: row.head }
    }

    fn finish(mut self) -> Writes {
        let streams = self
            .order
            .iter()
            .filter_map(|stream| {
                let pending = self.pending.remove(stream)?;
                let row = self.loaded.streams.remove(stream)?;
                Some(StreamWrite {
                    stream: stream.clone(),
                    row,
                    is_new: pending.is_new,
                    note: pending.note.clone(),
                    chunks: pending.finish(),
                })
            })
            .collect();
        self.wakes.dedup();
        Writes {
            leases: self.changed_leases.iter().filter_map(|n| self.loaded.leases.remove(n)).collect(),
            records: self
                .changed_records
                .iter()
                .filter_map(|key| self.loaded.records.remove(key))
                .collect(),
            deleted: self.deleted.into_iter().collect(),
            streams,
            wakes: self.wakes,
        }
    }
}

impl Pending {
    fn starting_after(head: Seq, is_new: bool) -> Self {
        Self {
            is_new,
            note: None,
            next_chunk_first: head + 1,
            builder: ChunkBuilder::default(),
            chunks: Vec::new(),
        }
    }

    fn push(&mut self, at: Timestamp, event: &shikiri_model::event::NewEvent) {
        self.builder.push(at, event);
        if self.builder.size() >= CHUNK_BYTES {
            self.cut();
        }
    }

    fn cut(&mut self) {
        let chunk = std::mem::take(&mut self.builder).finish(self.next_chunk_first);
        if let Some(chunk) = chunk {
            self.next_chunk_first = chunk.last_seq() + 1;
            self.chunks.push(chunk);
        }
    }

    fn finish(mut self) -> Vec<Chunk> {
        self.cut();
        self.chunks
    }
}
