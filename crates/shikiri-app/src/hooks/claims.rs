//! Answers of this process that are on their way: what one of them delivers, no other does.

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Who claims here. A name begins with the process's id, as that of a hook process does, so that
/// one that meets it in the database can look whether we still live.
pub(crate) struct Claims {
    prefix: String,
    count: AtomicU64,
    open: Arc<Mutex<HashSet<String>>>,
}

/// An answer that is on its way until this is dropped.
pub(super) struct InFlight {
    name: String,
    open: Arc<Mutex<HashSet<String>>>,
}

impl Default for Claims {
    fn default() -> Self {
        // Random, as every `RandomState` is: another machine may have a process of the same id.
        let tag = RandomState::new().build_hasher().finish();
        let prefix = format!("{}.{tag:016x}-", std::process::id());
        Self { prefix, count: AtomicU64::new(0), open: Arc::default() }
    }
}

impl Claims {
    pub(super) fn begin(&self) -> InFlight {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let claim =
            InFlight { name: format!("{}{number}", self.prefix), open: Arc::clone(&self.open) };
        lock(&self.open).insert(claim.name.clone());
        claim
    }

    /// None if it is not one of ours.
    pub(super) fn lives(&self, name: &str) -> Option<bool> {
        name.starts_with(&self.prefix).then(|| lock(&self.open).contains(name))
    }
}

impl InFlight {
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        lock(&self.open).remove(&self.name);
    }
}

fn lock(open: &Mutex<HashSet<String>>) -> std::sync::MutexGuard<'_, HashSet<String>> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}
