//! What each tenant stores, as this process knows it: a sample of the database, what this process
//! committed since, and the size of each conversation's folders.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use shikiri_model::ids::{ConversationId, TenantId};
use shikiri_model::record::{ExpectedVersion, RecordChange};
use shikiri_store::Commit;

/// A sample is used this long; what other nodes commit shows after this time at the latest.
const MAX_AGE: Duration = Duration::from_secs(30);
/// A tenant at its limit is sampled again no sooner, so that it cannot keep the database busy.
const MIN_AGE: Duration = Duration::from_secs(1);
/// The next sample waits at least this many times as long as the last one took.
const PAUSE_FACTOR: u32 = 20;

#[derive(Default)]
pub struct StorageCounters(Mutex<HashMap<TenantId, Arc<TenantCounter>>>);

#[derive(Default)]
pub struct TenantCounter {
    /// Bytes in the database, when the last sample was taken.
    sampled: AtomicU64,
    /// Bytes that this process has committed since.
    added: AtomicU64,
    /// Bytes of uploads that are under way.
    reserved: AtomicU64,
    folders: Mutex<HashMap<ConversationId, u64>>,
    sample: Mutex<Option<StorageSample>>,
    /// Held while a sample is taken.
    pub(super) sampling: tokio::sync::Mutex<()>,
}

#[derive(Clone, Copy)]
struct StorageSample {
    at: Instant,
    took: Duration,
}

impl StorageCounters {
    pub fn of(&self, tenant: &TenantId) -> Arc<TenantCounter> {
        let mut all = lock(&self.0);
        if let Some(counter) = all.get(tenant) {
            return Arc::clone(counter);
        }
        Arc::clone(all.entry(tenant.clone()).or_default())
    }

    pub fn forget(&self, tenant: &TenantId) {
        lock(&self.0).remove(tenant);
    }

    /// Counts what a commit wrote. Records that replace others are left to the next sample.
    pub fn add(&self, written: &CommitBytes) {
        for (tenant, bytes) in &written.0 {
            self.of(tenant).added.fetch_add(*bytes, Ordering::Relaxed);
        }
    }
}

/// How much a commit adds to each tenant's data.
pub struct CommitBytes(Vec<(TenantId, u64)>);

impl CommitBytes {
    pub fn of(commit: &Commit) -> Self {
        let mut all: Vec<(TenantId, u64)> = Vec::new();
        let events = commit.appends.iter().map(|append| {
            let bytes: usize = append.events.iter().map(|event| event.size()).sum();
            (&append.tenant, bytes)
        });
        let records = commit.records.iter().filter_map(|change| match change {
            RecordChange::Put { key, expect: ExpectedVersion::New, doc, .. } => {
                Some((&key.tenant, doc.len()))
            }
            _ => None,
        });
        for (tenant, bytes) in events.chain(records) {
            let bytes = bytes as u64;
            match all.iter_mut().find(|(known, _)| known == tenant) {
                Some((_, sum)) => *sum += bytes,
                None => all.push((tenant.clone(), bytes)),
            }
        }
        Self(all)
    }
}

impl TenantCounter {
    pub(super) fn bytes(&self) -> u64 {
        let folders = lock(&self.folders).values().fold(0_u64, |sum, b| sum.saturating_add(*b));
        let counted = [&self.sampled, &self.added, &self.reserved];
        counted.iter().fold(folders, |sum, n| sum.saturating_add(n.load(Ordering::Relaxed)))
    }

    pub(super) fn is_sampled(&self) -> bool {
        lock(&self.sample).is_some()
    }

    /// Whether a new sample is due. `now` if a request would be refused because of the old one.
    pub(super) fn is_old(&self, now: bool) -> bool {
        lock(&self.sample).is_none_or(|sample| {
            let age = if now { MIN_AGE } else { MAX_AGE };
            sample.at.elapsed() >= age.max(sample.took * PAUSE_FACTOR)
        })
    }

    /// The bytes added so far, which a sample of the database that begins now includes.
    pub(super) fn begin_sample(&self) -> u64 {
        self.added.load(Ordering::Relaxed)
    }

    pub(super) fn end_sample(&self, begun: Instant, added_before: u64, sampled: u64) {
        self.sampled.store(sampled, Ordering::Relaxed);
        self.added.fetch_sub(added_before, Ordering::Relaxed);
        *lock(&self.sample) = Some(StorageSample { at: Instant::now(), took: begun.elapsed() });
    }

    /// Folders that count as full because they could not be measured.
    pub(super) fn unmeasurable_folders(&self) -> Vec<ConversationId> {
        let folders = lock(&self.folders);
        let full = folders.iter().filter(|(_, bytes)| **bytes == u64::MAX);
        full.map(|(conversation, _)| conversation.clone()).collect()
    }

    pub(super) fn set_folder(&self, conversation: ConversationId, bytes: u64) {
        lock(&self.folders).insert(conversation, bytes);
    }

    /// Counts a file that was added or removed.
    pub fn change_folder(&self, conversation: &ConversationId, more: u64, less: u64) {
        let mut folders = lock(&self.folders);
        let bytes = folders.entry(conversation.clone()).or_default();
        *bytes = bytes.saturating_add(more).saturating_sub(less);
    }

    pub fn forget_folder(&self, conversation: &ConversationId) {
        lock(&self.folders).remove(conversation);
    }

    pub(super) fn reserve(&self, bytes: u64) {
        self.reserved.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn release(&self, bytes: u64) {
        self.reserved.fetch_sub(bytes, Ordering::Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
