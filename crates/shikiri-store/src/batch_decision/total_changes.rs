//! What a batch adds to totals: what its commits ask for, and the counts of records whose state
//! changes.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use shikiri_model::record::{Record, RecordChange, RecordKey};
use shikiri_model::run::count_key;
use shikiri_model::total::{TotalChange, TotalKey, TotalValue};

use super::{BatchNeeds, LoadedRows};

/// The state that a record has after the change; None if it is deleted.
pub(super) fn state_after(change: &RecordChange) -> Option<&str> {
    match change {
        RecordChange::Put { columns, .. } => Some(&columns.state),
        RecordChange::Delete { .. } => None,
    }
}

impl BatchNeeds<'_> {
    /// The totals to load, once the records are loaded.
    pub fn total_keys(&self, records: &HashMap<RecordKey, Record>) -> BTreeSet<TotalKey> {
        let mut keys: BTreeSet<_> = self.totals.iter().map(|key| (*key).clone()).collect();
        for (key, after) in &self.counted {
            let before = records.get(*key).map(|record| record.columns.state.as_str());
            if before != *after {
                let states = before.into_iter().chain(*after);
                keys.extend(states.filter_map(|state| count_key(key, state)));
            }
        }
        keys
    }
}

/// What the batch has added so far.
#[derive(Default)]
pub(super) struct PendingTotals {
    changes: BTreeMap<TotalKey, TotalValue>,
    /// The totals that count the loaded records.
    counts_before: HashMap<RecordKey, TotalKey>,
}

impl PendingTotals {
    pub(super) fn before(records: &HashMap<RecordKey, Record>) -> Self {
        let counted =
            records.values().filter_map(|record| Some((record.key.clone(), count(record)?)));
        Self { counts_before: counted.collect(), ..Self::default() }
    }

    pub(super) fn add(&mut self, changes: &[TotalChange]) {
        for TotalChange { key, add } in changes {
            self.changes.entry(key.clone()).or_default().add(add);
        }
    }

    /// The new values of the totals that changed.
    pub(super) fn finish(
        mut self,
        changed: &BTreeSet<RecordKey>,
        loaded: &mut LoadedRows,
    ) -> Vec<(TotalKey, TotalValue)> {
        for key in changed {
            let before = self.counts_before.remove(key);
            let after = loaded.records.get(key).and_then(count);
            if before != after {
                for (total, amount) in [(before, -1), (after, 1)] {
                    let Some(total) = total else { continue };
                    let one = TotalValue::of(vec![amount]);
                    self.changes.entry(total).or_default().add(&one);
                }
            }
        }
        let changes = self.changes.into_iter().filter(|(_, add)| !add.is_nothing());
        changes
            .map(|(key, add)| {
                let mut value = loaded.totals.remove(&key).unwrap_or_default();
                value.add(&add);
                (key, value)
            })
            .collect()
    }
}

fn count(record: &Record) -> Option<TotalKey> {
    count_key(&record.key, &record.columns.state)
}
