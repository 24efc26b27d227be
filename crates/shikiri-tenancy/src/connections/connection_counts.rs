//! How many connections each principal has, so that most need not be counted in the store.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// About how many connections each principal has, as far as this process knows.
#[derive(Debug, Default)]
pub(crate) struct ConnectionCounts(Mutex<HashMap<String, usize>>);

impl ConnectionCounts {
    /// Whether they must be counted: there may be too many, or nothing is known yet.
    pub(super) fn is_full(&self, principal: &str, max: usize) -> bool {
        self.lock().get(principal).is_none_or(|count| *count >= max)
    }

    pub(super) fn add(&self, principal: &str) {
        *self.lock().entry(principal.to_owned()).or_default() += 1;
    }

    pub(super) fn set(&self, principal: &str, count: usize) {
        self.lock().insert(principal.to_owned(), count);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
