//! The writer of the SQLite store. Its thread takes all waiting commits, decides and writes them in
//! one transaction, and after the sync wakes subscribers and replies to the callers. During the
//! sync the next batch collects, so with more callers more commits share one sync. A caller that
//! finds the writer idle writes on its own thread, because two thread switches cost as much as the
//! disk (docs/decisions/0007).

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use shikiri_sqlite::{LockWait, SqliteDatabase};

use super::SqliteDurability;
use super::batch_load::load;
use super::batch_write::write;
use super::commit_batch::{BatchWaitPolicy, CommitBatch};
use super::commit_replies::CommitReplies;
use super::error_mapping::{SqliteWriteError, is_busy};
use super::foreign_writes::ForeignWriteDetector;
use super::stream_cache::StreamCache;
use super::write_queue::{QueueTakeResult, SqliteWriteJob, SqliteWriteQueue};
use crate::batch_decision::{BatchNeeds, BatchWrites, LoadedRows, decide_batch};
use crate::clock::Clock;
use crate::commit::{Commit, CommitReceipt};
use crate::error::{CommitError, StoreError};
use crate::hub::{Hub, HubTopic, HubWake};

/// The most commits in one transaction.
const BATCH_COMMITS: usize = 1_024;

/// A batch that takes longer halves the size of the next one, because hooks wait for this lock.
const BATCH_TIME: Duration = Duration::from_millis(5);

/// How often to check for other processes' writes, with and without subscribers.
const LOOK_OFTEN: Duration = Duration::from_millis(10);
const LOOK_SELDOM: Duration = Duration::from_millis(500);

/// How long to check often after a caller has asked for the hub.
const AFTER_NUDGE: Duration = Duration::from_secs(1);

/// The log is moved into the file between two batches when it has this many pages.
const CHECKPOINT_PAGES: i32 = 8_000;

/// At this size, readers that never all pause have kept the log from restarting.
const OVERGROWN_PAGES: i32 = 32_000;

/// Callers write on their own thread while a write takes no longer than this, because it blocks a
/// thread of the runtime.
const PROMPT: Duration = Duration::from_millis(1);

/// Attempts to get the write lock, each as long as the connection's busy timeout.
const LOCK_ATTEMPTS: u32 = 2;

#[derive(Debug)]
pub(super) struct SqliteWriter {
    pub(super) database: SqliteDatabase,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) hub: Arc<Hub>,
    known: StreamCache,
    tail: ForeignWriteDetector,
    wal_pages: Arc<AtomicI32>,
    batch_limit: usize,
    /// The last write had one commit and was fast enough for the caller's thread.
    is_prompt: bool,
    gathering: BatchWaitPolicy,
    /// A caller is about to subscribe: check often until then.
    watch_until: Option<Instant>,
    durability: SqliteDurability,
    /// The connection's present setting.
    synchronous: SqliteDurability,
}

/// A decided and written batch.
type DecidedBatch = (Vec<Result<CommitReceipt, CommitError>>, BatchWrites);

impl SqliteWriter {
    pub(super) fn new(
        mut database: SqliteDatabase,
        durability: SqliteDurability,
        clock: Arc<dyn Clock>,
        hub: Arc<Hub>,
    ) -> rusqlite::Result<Self> {
        let wal_pages = Arc::new(AtomicI32::new(0));
        // Instead of SQLite's automatic checkpoint, which would run inside COMMIT and delay the
        // replies.
        let seen = Arc::clone(&wal_pages);
        database.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages| {
            seen.store(pages, Ordering::Relaxed);
            Ok(())
        }))?;
        database.set_prepared_statement_cache_capacity(64);
        let tail = ForeignWriteDetector::new(&database)?;
        let known = StreamCache::default();
        Ok(Self {
            database,
            clock,
            hub,
            known,
            tail,
            wal_pages,
            batch_limit: BATCH_COMMITS,
            is_prompt: false,
            gathering: BatchWaitPolicy::default(),
            watch_until: None,
            durability,
            synchronous: durability,
        })
    }

    /// Runs on the thread until the queue is closed and empty.
    pub(super) fn run(shared: &Mutex<Self>, queue: &Arc<SqliteWriteQueue>) {
        let _abandon = AbandonOnExit(Arc::clone(queue));
        let mut jobs = VecDeque::new();
        let mut batch = CommitBatch::default();
        let mut patience = LOOK_OFTEN;
        loop {
            let patience_now = if jobs.is_empty() { patience } else { Duration::ZERO };
            let room = BATCH_COMMITS.saturating_sub(jobs.len());
            let taken = queue.take(&mut jobs, room, patience_now);
            if taken == QueueTakeResult::Closed && jobs.is_empty() {
                return;
            }
            // A panic was caught and its transaction rolled back there.
            let mut writer = shared.lock().unwrap_or_else(PoisonError::into_inner);
            if taken == QueueTakeResult::Nudged {
                writer.watch_until = Some(Instant::now() + AFTER_NUDGE);
            }
            batch.fill(&mut jobs, writer.batch_limit);
            if !batch.commits.is_empty() {
                writer.commit_batch(&mut batch, jobs.len(), queue);
                if jobs.is_empty() {
                    let most = writer.batch_limit;
                    writer.gathering.wait(queue, most);
                }
            } else if let Some(SqliteWriteJob::Task(task)) = jobs.pop_front() {
                writer.catch_panic(|writer| task(writer)).unwrap_or_else(|_| writer.roll_back());
            } else {
                writer.poll_foreign_writes();
            }
            writer.checkpoint_if_large();
            patience = writer.patience();
        }
    }

    /// The time until the next check for other processes' writes.
    fn patience(&self) -> Duration {
        let nudged = self.watch_until.is_some_and(|until| Instant::now() < until);
        if nudged || !self.hub.is_idle() { LOOK_OFTEN } else { LOOK_SELDOM }
    }

    /// `taken` jobs wait for the next batch, besides those in the queue.
    fn commit_batch(&mut self, batch: &mut CommitBatch, taken: usize, queue: &SqliteWriteQueue) {
        let started = Instant::now();
        let outcome = self.decide_and_write_batch(&batch.commits);
        let (size, took) = (batch.commits.len(), started.elapsed());
        self.adjust_batch_limit(size, took);
        self.is_prompt = size == 1 && took < PROMPT;
        match outcome {
            Ok((outcomes, writes)) => {
                self.gathering.expect(size + taken + queue.len(), took);
                self.publish(&writes);
                CommitReplies::new(batch.replies.drain(..), outcomes).send_all(&queue.callers);
                // After the replies, so that callers continue during the clean-up.
                batch.commits.clear();
            }
            Err(fault) if fault.is_of_one_commit && size > 1 => {
                self.commit_one_by_one(batch, queue);
            }
            Err(SqliteWriteError { error, .. }) => {
                tracing::error!(%error, commits = size, "{size} commits were not written: {error}");
                batch.commits.clear();
                let told = std::iter::repeat_with(|| Err(error.clone().into()));
                CommitReplies::new(batch.replies.drain(..), told).send_all(&queue.callers);
            }
        }
        self.tail.publish(&self.hub);
    }

    /// Writes one commit on its caller's thread without waiting for other processes. Returns None
    /// if it was not written; the writer thread then does it.
    pub(super) fn commit_on_caller_thread(
        &mut self,
        commit: &Commit,
        queue: &SqliteWriteQueue,
    ) -> Option<Result<CommitReceipt, CommitError>> {
        if !self.is_prompt || self.database.wait_for_locks(LockWait::Never).is_err() {
            return None;
        }
        let started = Instant::now();
        let settled = self.decide_and_write_batch(std::slice::from_ref(commit));
        self.is_prompt = started.elapsed() < PROMPT;
        let outcome = match settled {
            Ok((mut outcomes, writes)) => {
                self.publish(&writes);
                outcomes.pop()
            }
            // It is unknown whether the commit was written, so it must not be written again.
            Err(SqliteWriteError { error: error @ StoreError::Unknown(_), .. }) => {
                Some(Err(error.into()))
            }
            Err(_) => None,
        };
        if let Err(error) = self.database.wait_for_locks(LockWait::Usual) {
            tracing::error!(%error, "writes will not wait for other processes: {error}");
        }
        if self.log_is_long() {
            queue.wake_writer();
        }
        outcome
    }

    /// One commit of the batch cannot be written. The others must not fail because of it.
    fn commit_one_by_one(&mut self, batch: &mut CommitBatch, queue: &SqliteWriteQueue) {
        let commits = std::mem::take(&mut batch.commits);
        let replies = std::mem::take(&mut batch.replies);
        for (commit, reply) in commits.into_iter().zip(replies) {
            let mut alone = CommitBatch { commits: vec![commit], replies: vec![reply] };
            self.commit_batch(&mut alone, 0, queue);
        }
    }

    fn decide_and_write_batch(
        &mut self,
        commits: &[Commit],
    ) -> Result<DecidedBatch, SqliteWriteError> {
        // Leases need not survive a restart of the machine, and any write under one syncs it as
        // well.
        let only_leases = commits.iter().all(Commit::is_lease_only);
        let durability = if only_leases { SqliteDurability::Normal } else { self.durability };
        let clock = Arc::clone(&self.clock);
        let settled = self.catch_panic(|writer| {
            writer.transaction_as(durability, |connection, known, last_event| {
                let now = clock.now();
                let mut loaded =
                    LoadedRows { now, lease_now: clock.lease_now(), ..LoadedRows::default() };
                load(connection, &BatchNeeds::of(commits), known, &mut loaded)?;
                let (outcomes, writes) = decide_batch(commits, loaded);
                let own = write(connection, &writes, now, known, last_event)?;
                Ok((outcomes, writes, own))
            })
        });
        let (outcomes, writes, own) = match settled {
            Ok(settled) => settled?,
            Err(panic) => {
                self.roll_back();
                return Err(SqliteWriteError::panic(&*panic));
            }
        };
        self.tail.record_own_writes(own);
        Ok((outcomes, writes))
    }

    /// Runs `work` in a write transaction that is durable when this returns. `work` gets the number
    /// of the newest chunk.
    pub(super) fn transaction<T>(
        &mut self,
        work: impl FnOnce(&Connection, &mut StreamCache, i64) -> rusqlite::Result<T>,
    ) -> Result<T, SqliteWriteError> {
        self.transaction_as(self.durability, work)
    }

    fn transaction_as<T>(
        &mut self,
        durability: SqliteDurability,
        work: impl FnOnce(&Connection, &mut StreamCache, i64) -> rusqlite::Result<T>,
    ) -> Result<T, SqliteWriteError> {
        let begun = self.set_synchronous(durability).and_then(|()| self.begin());
        let written = begun.and_then(|()| {
            if self.tail.detect_writes(&self.database)? {
                self.known.clear();
            }
            work(&self.database, &mut self.known, self.tail.last_event())
        });
        let committed = written.map_err(SqliteWriteError::of_sqlite).and_then(|value| {
            let commit = self.database.prepare_cached("COMMIT").and_then(|mut s| s.execute([]));
            commit.map(|_| value).map_err(|error| SqliteWriteError::of_commit(&error))
        });
        if committed.is_err() {
            self.roll_back();
        }
        committed
    }

    fn set_synchronous(&mut self, wanted: SqliteDurability) -> rusqlite::Result<()> {
        if self.synchronous != wanted {
            // Not cached, because this pragma takes effect when it is prepared.
            self.database.execute_batch(match wanted {
                SqliteDurability::Full => "PRAGMA synchronous = FULL",
                SqliteDurability::Normal => "PRAGMA synchronous = NORMAL",
            })?;
            self.synchronous = wanted;
        }
        Ok(())
    }

    fn begin(&self) -> rusqlite::Result<()> {
        let mut attempt = 1;
        loop {
            let begun =
                self.database.prepare_cached("BEGIN IMMEDIATE").and_then(|mut s| s.execute([]));
            match begun {
                Err(error) if is_busy(&error) && attempt < LOCK_ATTEMPTS => attempt += 1,
                outcome => return outcome.map(drop),
            }
        }
    }

    /// Ends an open transaction and forgets everything that was not committed.
    pub(super) fn roll_back(&mut self) {
        self.known.clear();
        self.tail.invalidate_version();
        if !self.database.is_autocommit()
            && let Err(error) = self.database.execute_batch("ROLLBACK")
        {
            tracing::error!(%error, "a failed write could not be rolled back: {error}");
        }
    }

    fn catch_panic<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> T,
    ) -> Result<T, Box<dyn Any + Send>> {
        catch_unwind(AssertUnwindSafe(|| work(self)))
    }

    fn publish(&mut self, writes: &BatchWrites) {
        // First, so that no process takes this chunk for the next one after its own position.
        self.tail.publish(&self.hub);
        if self.hub.is_idle() {
            return;
        }
        for stream in &writes.streams {
            let topic = HubTopic::Stream(stream.stream.clone());
            let last = stream.chunks.len().saturating_sub(1);
            for (index, chunk) in stream.chunks.iter().enumerate() {
                let closes = stream.row.closed && index == last;
                self.hub.publish(&topic, &HubWake::Chunk { chunk: chunk.clone(), closes });
            }
            if stream.chunks.is_empty() {
                self.hub.publish(&topic, &HubWake::Behind);
            }
        }
        for topic in &writes.wakes {
            self.hub.publish(topic, &HubWake::Behind);
        }
    }

    fn poll_foreign_writes(&mut self) {
        match self.tail.detect_writes(&self.database) {
            Ok(true) => self.known.clear(),
            Ok(false) => {}
            Err(error) => tracing::debug!(%error, "could not look for other processes' writes"),
        }
        self.tail.publish(&self.hub);
    }

    fn adjust_batch_limit(&mut self, commits: usize, took: Duration) {
        if took > BATCH_TIME {
            self.batch_limit = (commits / 2).max(16);
        } else if took < BATCH_TIME / 2 {
            self.batch_limit = (self.batch_limit * 2).min(BATCH_COMMITS);
        }
    }

    /// Marks the last write as fast.
    #[cfg(test)]
    pub(super) fn set_prompt(&mut self) {
        self.is_prompt = true;
    }

    fn log_is_long(&self) -> bool {
        self.wal_pages.load(Ordering::Relaxed) >= CHECKPOINT_PAGES
    }

    fn checkpoint_if_large(&mut self) {
        if !self.log_is_long() {
            return;
        }
        let pages = self.wal_pages.load(Ordering::Relaxed);
        self.wal_pages.store(0, Ordering::Relaxed);
        let done = if pages < OVERGROWN_PAGES {
            self.database.checkpoint()
        } else {
            self.database.checkpoint_and_restart()
        };
        // The log is complete without a checkpoint. The next one tries again.
        if let Err(error) = done {
            tracing::debug!(%error, pages, "could not checkpoint the log");
        }
    }
}

/// However the thread ends, no caller waits forever.
struct AbandonOnExit(Arc<SqliteWriteQueue>);

impl Drop for AbandonOnExit {
    fn drop(&mut self) {
        self.0.abandon();
    }
}
