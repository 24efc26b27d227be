//! Rows in memory for the tests of `decide_batch`. Like a backend, it loads the rows that a batch
//! needs and stores what the batch writes, and it checks the database's constraints.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::json;
use shikiri_model::event::{Chunk, NewEvent, StreamId};
use shikiri_model::ids::TenantId;
use shikiri_model::lease::Lease;
use shikiri_model::record::{
    ExpectedVersion, Record, RecordChange, RecordClaim, RecordColumns, RecordKey,
};
use shikiri_model::run::count_key;
use shikiri_model::time::Timestamp;
use shikiri_model::total::{TotalChange, TotalKey, TotalNote, TotalValue};

use super::{BatchNeeds, BatchWrites, LoadedRows, StreamRow, decide_batch};
use crate::commit::{Commit, CommitReceipt, StreamAppend};
use crate::error::CommitError;

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct MemoryRows {
    pub(super) now: Timestamp,
    pub(super) lease_now: i64,
    pub(super) leases: BTreeMap<String, Lease>,
    pub(super) streams: BTreeMap<StreamId, MemoryStream>,
    pub(super) records: BTreeMap<RecordKey, Record>,
    pub(super) totals: BTreeMap<TotalKey, TotalValue>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct MemoryStream {
    pub(super) row: StreamRow,
    pub(super) note: Option<String>,
    /// (seq, time, kind, data)
    pub(super) events: Vec<(u64, i64, String, String)>,
}

impl MemoryRows {
    pub(super) fn settle(&mut self, batch: &[Commit]) -> Vec<Result<CommitReceipt, CommitError>> {
        let (outcomes, writes) = decide_batch(batch, self.load(batch));
        self.keep(writes);
        outcomes
    }

    pub(super) fn settle_one(&mut self, commit: Commit) -> Result<CommitReceipt, CommitError> {
        self.settle(&[commit]).remove(0)
    }

    pub(super) fn load(&self, batch: &[Commit]) -> LoadedRows {
        let needs = BatchNeeds::of(batch);
        let mut loaded = LoadedRows {
            now: self.now,
            lease_now: self.lease_now,
            leases: needs
                .leases
                .iter()
                .filter_map(|name| Some(((*name).to_owned(), self.leases.get(*name)?.clone())))
                .collect(),
            streams: needs
                .streams
                .iter()
                .filter_map(|name| Some(((*name).clone(), self.streams.get(*name)?.row.clone())))
                .collect(),
            records: needs
                .records
                .iter()
                .filter_map(|key| Some(((*key).clone(), self.records.get(*key)?.clone())))
                .collect(),
            uniques: needs.uniques.iter().filter_map(|slot| self.taken(*slot)).collect(),
            totals: HashMap::new(),
            candidates: self.candidates(&needs),
        };
        let keys = needs.total_keys(&loaded.records);
        let found =
            keys.into_iter().filter_map(|key| Some((key.clone(), self.totals.get(&key)?.clone())));
        loaded.totals = found.collect();
        loaded
    }

    fn taken(
        &self,
        (kind, tenant, unique): (&'static str, &TenantId, &str),
    ) -> Option<((&'static str, TenantId, String), String)> {
        let owner = self.records.values().find(|record| {
            record.key.kind == kind
                && record.key.tenant == *tenant
                && record.columns.unique.as_deref() == Some(unique)
        })?;
        Some(((kind, tenant.clone(), unique.to_owned()), owner.key.id.clone()))
    }

    fn candidates(&self, needs: &BatchNeeds<'_>) -> Vec<Record> {
        let mut found = BTreeMap::new();
        for claim in &needs.claims {
            let mut due: Vec<_> =
                self.records.values().filter(|record| claim.wants(record, self.now)).collect();
            due.sort_by_key(|record| (record.columns.due_at, &record.key));
            for record in due.into_iter().take(needs.candidates_per_claim()) {
                found.insert((record.columns.due_at, &record.key), record.clone());
            }
        }
        found.into_values().collect()
    }

    fn keep(&mut self, writes: BatchWrites) {
        for lease in writes.leases {
            self.leases.insert(lease.name.clone(), lease);
        }
        for key in &writes.deleted {
            self.records.remove(key);
        }
        for key in &writes.vacated {
            if let Some(record) = self.records.get_mut(key) {
                record.columns.unique = None;
            }
        }
        for record in writes.records {
            assert!(!writes.deleted.contains(&record.key), "{record:?} both written and deleted");
            self.records.insert(record.key.clone(), record);
            // Checked after every step, like a unique index.
            self.check_uniques();
        }
        self.totals.extend(writes.totals);
        // Settled one by one, a total may have risen and fallen to a zero that is stored.
        self.totals.retain(|_, value| !value.is_nothing());
        self.check_counts();
        for write in writes.streams {
            assert_eq!(write.is_new, !self.streams.contains_key(&write.stream));
            let stream = self.streams.entry(write.stream).or_insert_with(|| MemoryStream {
                row: StreamRow { head: 0, ..write.row.clone() },
                note: None,
                events: Vec::new(),
            });
            stream.keep(write.row, write.note, &write.chunks);
        }
    }

    /// The totals must be what a count of the records says.
    fn check_counts(&self) {
        let mut counts = BTreeMap::<TotalKey, i128>::new();
        for record in self.records.values() {
            *counts.entry(count_key(&record.key, &record.columns.state).unwrap()).or_default() += 1;
        }
        for (key, value) in self.totals.iter().filter(|(key, _)| key.kind != SUM) {
            assert_eq!(counts.remove(key).unwrap_or(0), value.amounts[0], "{key:?}");
        }
        assert!(counts.is_empty(), "not counted: {counts:?}");
    }

    /// Rows that violate the database's unique index.
    fn check_uniques(&self) {
        let mut seen = BTreeSet::new();
        for record in self.records.values() {
            if let Some(unique) = &record.columns.unique {
                let slot = (record.key.kind, &record.key.tenant, unique);
                assert!(seen.insert(slot), "two records have {slot:?}");
            }
        }
    }
}

impl MemoryStream {
    fn keep(&mut self, row: StreamRow, note: Option<String>, chunks: &[Chunk]) {
        for chunk in chunks {
            assert_eq!(chunk.first_seq(), self.events.len() as u64 + 1, "a gap or an overlap");
            self.events.extend(chunk.events().map(|event| {
                (event.seq, event.at.as_millis(), event.kind.to_owned(), event.data.to_owned())
            }));
        }
        assert_eq!(row.head, self.events.len() as u64, "the head is not the last event");
        self.row = row;
        self.note = note.or(self.note.take());
    }
}

const SUM: &str = "sum";

pub(super) fn tenant(name: &str) -> TenantId {
    name.parse().unwrap()
}

pub(super) fn key(id: &str) -> RecordKey {
    RecordKey { kind: "run", tenant: tenant("acme"), id: id.to_owned() }
}

pub(super) fn put(id: &str, expect: ExpectedVersion, columns: RecordColumns) -> RecordChange {
    RecordChange::Put { key: key(id), expect, columns, doc: format!(r#"{{"名":"{id}"}}"#) }
}

pub(super) fn unique(value: &str) -> RecordColumns {
    RecordColumns { unique: Some(value.to_owned()), ..RecordColumns::default() }
}

pub(super) fn due(ms: i64) -> RecordColumns {
    RecordColumns { due_at: Some(Timestamp::from_millis(ms)), ..RecordColumns::default() }
}

pub(super) fn append(stream: &str, texts: &[&str]) -> StreamAppend {
    let events =
        texts.iter().map(|text| NewEvent::from_value("log", &json!({ "文": text }))).collect();
    StreamAppend::new(tenant("acme"), StreamId::new(stream), events)
}

pub(super) fn claim(owner: &str, limit: u32) -> RecordClaim {
    RecordClaim {
        kind: "run",
        tenant: None,
        parent: None,
        owner: Some(owner.to_owned()),
        hold: std::time::Duration::from_millis(100),
        limit,
    }
}

pub(super) fn sum(name: &str, amount: i128, note: Option<i64>) -> TotalChange {
    let key =
        TotalKey { kind: SUM, tenant: tenant("acme"), period: "p".into(), name: name.to_owned() };
    let latest =
        note.map(|at| TotalNote { at: Timestamp::from_millis(at), text: format!("覚え{at}") });
    TotalChange { key, add: TotalValue { amounts: vec![amount, 1], latest } }
}

/// Outcomes as text, because errors cannot be compared.
pub(super) fn told(outcomes: &[Result<CommitReceipt, CommitError>]) -> Vec<String> {
    outcomes.iter().map(|outcome| format!("{outcome:?}")).collect()
}
