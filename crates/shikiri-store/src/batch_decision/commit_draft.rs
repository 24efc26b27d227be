//! One commit on top of the batch so far. Its parts are applied to a draft in order. If one is
//! refused, the draft is dropped and nothing has changed.

use std::collections::HashMap;

use shikiri_model::event::StreamId;
use shikiri_model::lease::{Lease, LeaseChange};
use shikiri_model::record::{ExpectedVersion, Record, RecordChange, RecordKey};

use super::{LoadedRows, StreamRow, UniqueSlot};
use crate::commit::{AppendedRange, StreamAppend};
use crate::error::CommitError;

pub(super) struct CommitDraft<'a> {
    loaded: &'a LoadedRows,
    changes: CommitChanges,
}

/// The changes of a commit, relative to the loaded rows.
#[derive(Default)]
pub(super) struct CommitChanges {
    pub(super) leases: HashMap<String, Lease>,
    /// None: deleted.
    pub(super) records: HashMap<RecordKey, Option<Record>>,
    /// None: free.
    pub(super) uniques: HashMap<UniqueSlot, Option<String>>,
    /// Earlier unique values of changed records.
    pub(super) given_up: Vec<(UniqueSlot, RecordKey)>,
    pub(super) streams: HashMap<StreamId, StreamRow>,
}

impl<'a> CommitDraft<'a> {
    pub(super) fn on(loaded: &'a LoadedRows) -> Self {
        Self { loaded, changes: CommitChanges::default() }
    }

    pub(super) fn into_changes(self) -> CommitChanges {
        self.changes
    }

    pub(super) fn change_lease(&mut self, change: &LeaseChange) -> Result<Lease, CommitError> {
        let name = change.name();
        let stored = self.changes.leases.get(name).or_else(|| self.loaded.leases.get(name));
        let lease = change.apply(stored, self.loaded.lease_now)?;
        self.changes.leases.insert(lease.name.clone(), lease.clone());
        Ok(lease)
    }

    pub(super) fn require(&self, key: &RecordKey, version: u64) -> Result<(), CommitError> {
        match self.record(key) {
            Some(record) if record.version == version => Ok(()),
            _ => Err(CommitError::Conflict(key.clone())),
        }
    }

    /// Returns the record's new version, 0 if it is deleted.
    pub(super) fn change_record(&mut self, change: &RecordChange) -> Result<u64, CommitError> {
        let key = change.key();
        let before = self.record(key);
        check_version(change, before.map(|record| record.version))?;
        let given_up = before.and_then(|record| slot(key, record.columns.unique.as_ref()));
        let after = match change {
            RecordChange::Delete { .. } => None,
            RecordChange::Put { columns, doc, .. } => Some(Record {
                key: key.clone(),
                version: before.map_or(0, |record| record.version) + 1,
                attempts: 0,
                created_at: before.map_or(self.loaded.now, |record| record.created_at),
                updated_at: self.loaded.now,
                columns: columns.clone(),
                doc: doc.clone(),
            }),
        };
        let wanted = after.as_ref().and_then(|record| slot(key, record.columns.unique.as_ref()));
        if let Some(wanted) = &wanted {
            self.check_unique(key, wanted)?;
        }
        if let Some(given_up) = given_up {
            self.changes.uniques.insert(given_up.clone(), None);
            self.changes.given_up.push((given_up, key.clone()));
        }
        if let Some(wanted) = wanted {
            self.changes.uniques.insert(wanted, Some(key.id.clone()));
        }
        let version = after.as_ref().map_or(0, |record| record.version);
        self.changes.records.insert(key.clone(), after);
        Ok(version)
    }

    pub(super) fn append(&mut self, append: &StreamAppend) -> Result<AppendedRange, CommitError> {
        let stream = &append.stream;
        let row = self.changes.streams.get(stream).or_else(|| self.loaded.streams.get(stream));
        let mut row = match row {
            // A stream of another tenant is treated as closed, so that its existence is not
            // revealed.
            Some(row) if row.closed || row.tenant != append.tenant => {
                return Err(CommitError::Closed(stream.clone()));
            }
            Some(row) => row.clone(),
            None if !append.create => return Err(CommitError::Closed(stream.clone())),
            None => StreamRow { tenant: append.tenant.clone(), head: 0, closed: false },
        };
        let first_seq = row.head + 1;
        row.head += append.events.len() as u64;
        row.closed = append.close;
        let last_seq = row.head;
        self.changes.streams.insert(stream.clone(), row);
        Ok(AppendedRange { first_seq, last_seq })
    }

    fn record(&self, key: &RecordKey) -> Option<&Record> {
        match self.changes.records.get(key) {
            Some(changed) => changed.as_ref(),
            None => self.loaded.records.get(key),
        }
    }

    fn check_unique(&self, key: &RecordKey, slot: &UniqueSlot) -> Result<(), CommitError> {
        let holder = match self.changes.uniques.get(slot) {
            Some(changed) => changed.as_ref(),
            None => self.loaded.uniques.get(slot),
        };
        match holder {
            Some(id) if *id != key.id => {
                Err(CommitError::NotUnique(RecordKey { id: id.clone(), ..key.clone() }))
            }
            _ => Ok(()),
        }
    }
}

fn check_version(change: &RecordChange, stored: Option<u64>) -> Result<(), CommitError> {
    let read = match change {
        RecordChange::Put { expect: ExpectedVersion::New, .. } => None,
        RecordChange::Put { expect: ExpectedVersion::Version(version), .. }
        | RecordChange::Delete { version, .. } => Some(*version),
    };
    match (read, stored) {
        _ if read == stored => Ok(()),
        (None, _) => Err(CommitError::Exists(change.key().clone())),
        _ => Err(CommitError::Conflict(change.key().clone())),
    }
}

fn slot(key: &RecordKey, unique: Option<&String>) -> Option<UniqueSlot> {
    Some((key.kind, key.tenant.clone(), unique?.clone()))
}
