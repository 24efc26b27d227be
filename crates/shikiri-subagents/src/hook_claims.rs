//! Claims on answers that this process is sending, so that no two answers deliver the same.

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Names the claims of this process. A name begins with the process id, as that of a hook process
/// does, so that a process that finds it in the database can check whether this one still lives.
pub(crate) struct HookClaims {
    prefix: String,
    count: AtomicU64,
    open: Arc<Mutex<HashSet<String>>>,
}

/// The claim of one answer. It is open until dropped.
pub(super) struct HookClaim {
    name: String,
    open: Arc<Mutex<HashSet<String>>>,
}

impl Default for HookClaims {
    fn default() -> Self {
        // Random, as every `RandomState` is: another machine may have a process of the same id.
        let tag = RandomState::new().build_hasher().finish();
        let prefix = format!("{}.{tag:016x}-", std::process::id());
        Self { prefix, count: AtomicU64::new(0), open: Arc::default() }
    }
}

impl HookClaims {
    pub(super) fn begin(&self) -> HookClaim {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let claim =
            HookClaim { name: format!("{}{number}", self.prefix), open: Arc::clone(&self.open) };
        lock(&self.open).insert(claim.name.clone());
        claim
    }

    /// None if it is not one of ours.
    pub(super) fn is_open(&self, name: &str) -> Option<bool> {
        name.starts_with(&self.prefix).then(|| lock(&self.open).contains(name))
    }
}

impl HookClaim {
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for HookClaim {
    fn drop(&mut self) {
        lock(&self.open).remove(&self.name);
    }
}

fn lock(open: &Mutex<HashSet<String>>) -> std::sync::MutexGuard<'_, HashSet<String>> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}
