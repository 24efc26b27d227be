//! When keys were last used: stored at most once a minute for each key, beside the requests.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use shikiri_model::ids::KeyId;

use crate::Tenancy;

const EVERY: Duration = Duration::from_secs(60);
/// Above this number all entries are dropped at once: some uses are then stored once more.
const MAX_ENTRIES: usize = 10_000;

#[derive(Default)]
pub(super) struct KeyUses(Mutex<HashMap<KeyId, Instant>>);

impl KeyUses {
    pub(super) fn note(&self, tenancy: &Tenancy, key: &KeyId) {
        if !self.is_due(key, Instant::now()) {
            return;
        }
        let (tenancy, key) = (tenancy.clone(), key.clone());
        tokio::spawn(async move {
            if let Err(error) = tenancy.note_key_use(&key).await {
                tracing::debug!(%key, %error, "the use of a key was not written down");
            }
        });
    }

    fn is_due(&self, key: &KeyId, now: Instant) -> bool {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if noted.get(key).is_some_and(|at| now.saturating_duration_since(*at) < EVERY) {
            return false;
        }
        if noted.len() >= MAX_ENTRIES {
            noted.clear();
        }
        noted.insert(key.clone(), now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_used_all_the_time_is_written_down_once_a_minute() {
        let (uses, start) = (KeyUses::default(), Instant::now());
        let (one, other) = ("key_1".parse().unwrap(), "key_2".parse().unwrap());
        assert!(uses.is_due(&one, start) && uses.is_due(&other, start));
        assert!(!uses.is_due(&one, start + Duration::from_secs(59)));
        assert!(uses.is_due(&one, start + Duration::from_secs(60)));
    }
}
