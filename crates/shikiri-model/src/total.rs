//! Totals: sums that commits add to, so that a sum over many records is known without reading them.
//!
//! A commit only ever adds, so writers never conflict. What the amounts mean is up to the kind.

use crate::ids::TenantId;
use crate::time::Timestamp;

/// The key of a total, unique in the store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TotalKey {
    pub kind: &'static str,
    pub tenant: TenantId,
    /// The time that it covers, as a text that sorts by time; empty if it covers all time.
    pub period: String,
    /// What is summed within the period, such as a model's name.
    pub name: String,
}

/// A sum, or what is added to one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TotalValue {
    pub amounts: Vec<i128>,
    /// The latest note about it.
    pub latest: Option<TotalNote>,
}

/// A text that belongs to the latest of what was added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TotalNote {
    pub at: Timestamp,
    pub text: String,
}

/// Adds to a total; a missing one counts as zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TotalChange {
    pub key: TotalKey,
    pub add: TotalValue,
}

/// Selects a tenant's totals of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TotalQuery {
    pub kind: &'static str,
    pub tenant: TenantId,
    /// From this period on.
    pub from: String,
    /// Up to, but without this period. None: to the end.
    pub to: Option<String>,
}

/// A total as the store returns it. A store may keep the sum of one period and name in several
/// parts, which add up to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTotal {
    pub period: String,
    pub name: String,
    pub value: TotalValue,
}

impl TotalQuery {
    /// All totals of a kind and tenant.
    pub fn of(kind: &'static str, tenant: &TenantId) -> Self {
        Self { kind, tenant: tenant.clone(), from: String::new(), to: None }
    }
}

impl TotalValue {
    pub fn of(amounts: Vec<i128>) -> Self {
        Self { amounts, latest: None }
    }

    /// Adds up amounts by their position, and keeps the later note. Of two notes of one time, the
    /// added one is kept.
    pub fn add(&mut self, other: &Self) {
        let width = self.amounts.len().max(other.amounts.len());
        self.amounts.resize(width, 0);
        for (sum, amount) in self.amounts.iter_mut().zip(&other.amounts) {
            *sum = sum.saturating_add(*amount);
        }
        if let Some(note) = &other.latest
            && self.latest.as_ref().is_none_or(|known| known.at <= note.at)
        {
            self.latest = Some(note.clone());
        }
    }

    /// Whether adding it changes nothing.
    pub fn is_nothing(&self) -> bool {
        self.latest.is_none() && self.amounts.iter().all(|amount| *amount == 0)
    }

    /// The amounts as they are stored: decimal numbers with a space between.
    pub fn encode_amounts(&self) -> String {
        let amounts: Vec<_> = self.amounts.iter().map(ToString::to_string).collect();
        amounts.join(" ")
    }

    /// Reads amounts as they are stored.
    pub fn decode_amounts(text: &str) -> Option<Vec<i128>> {
        text.split_ascii_whitespace().map(|amount| amount.parse().ok()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(amounts: &[i128], at: i64, text: &str) -> TotalValue {
        let latest = TotalNote { at: Timestamp::from_millis(at), text: text.to_owned() };
        TotalValue { amounts: amounts.to_vec(), latest: Some(latest) }
    }

    #[test]
    fn amounts_are_added_by_position_and_the_later_note_is_kept() {
        let mut sum = TotalValue::default();
        sum.add(&noted(&[1, -2], 5, "five"));
        sum.add(&noted(&[i128::MAX, 0, 7], 4, "four"));
        assert_eq!(sum, noted(&[i128::MAX, -2, 7], 5, "five"));
        sum.add(&noted(&[], 5, "five again"));
        assert_eq!(sum.latest.unwrap().text, "five again");
        assert!(TotalValue::of(vec![0, 0]).is_nothing());
        assert!(!TotalValue::of(vec![0, -1]).is_nothing());
    }

    #[test]
    fn stored_amounts_are_read_back_and_nonsense_is_refused() {
        let amounts = vec![0, -1, i128::MAX];
        let text = TotalValue::of(amounts.clone()).encode_amounts();
        assert_eq!(TotalValue::decode_amounts(&text), Some(amounts));
        assert_eq!(TotalValue::decode_amounts(""), Some(Vec::new()));
        assert_eq!(TotalValue::decode_amounts("1 two"), None);
    }
}
