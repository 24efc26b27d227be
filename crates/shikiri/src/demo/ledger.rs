//! The events that a reader saw of a run, and whether any was lost, repeated or changed.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::client::Frame;

/// Every event seen, in the order of arrival.
#[derive(Default)]
pub(super) struct Ledger(Vec<Frame>);

/// The committed steps, and whether each was committed only once.
pub(super) struct Steps {
    pub(super) committed: usize,
    pub(super) each_once: bool,
}

impl Ledger {
    pub(super) fn record(&mut self, frame: Frame) {
        self.0.push(frame);
    }

    pub(super) fn last_id(&self) -> u64 {
        self.0.last().map_or(0, |frame| frame.id)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The terminal event's name and data, if the run has ended.
    pub(super) fn ending(&self) -> Option<(&str, Value)> {
        let last = self.0.last().filter(|frame| matches!(&*frame.event, "result" | "error"))?;
        Some((&last.event, serde_json::from_str(&last.data).unwrap_or(Value::Null)))
    }

    /// Numbered 1, 2, 3 … without a gap or a repeat.
    pub(super) fn is_whole(&self) -> bool {
        self.0.iter().zip(1..).all(|(frame, expected)| frame.id == expected)
    }

    pub(super) fn same_as(&self, other: &Ledger) -> bool {
        self.0 == other.0
    }

    pub(super) fn steps(&self) -> Steps {
        let completed = self.0.iter().filter(|frame| frame.event == "step_completed");
        let names: Vec<String> = completed
            .map(|frame| serde_json::from_str::<Value>(&frame.data).unwrap_or(Value::Null))
            .map(|data| data["name"].to_string())
            .collect();
        let distinct: BTreeSet<&String> = names.iter().collect();
        Steps { committed: names.len(), each_once: distinct.len() == names.len() }
    }

    pub(super) fn count(&self, event: &str) -> usize {
        self.0.iter().filter(|frame| frame.event == event).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(ids: &[u64]) -> Ledger {
        let frame = |id: &u64| Frame { id: *id, ..Frame::default() };
        Ledger(ids.iter().map(frame).collect())
    }

    #[test]
    fn gaps_repeats_and_disorder_are_seen() {
        assert!(ledger(&[1, 2, 3]).is_whole());
        for bad in [&[2, 3][..], &[1, 3], &[1, 2, 2, 3], &[1, 3, 2]] {
            assert!(!ledger(bad).is_whole(), "{bad:?}");
        }
    }
}
