//! The one that writes, one at a time. Its thread takes every commit that waits, decides and writes
//! them in one transaction, and only after that is on the disk wakes the watchers and answers the
//! callers. While it syncs, the next batch gathers; so the more callers, the more share one sync.
//! A caller who finds it asleep writes on its own thread: two switches of threads cost as much as
//! the disk (docs/decisions/0007).

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use shikiri_sqlite::{Database, Wait};

use super::Durability;
use super::answers::Answers;
use super::batch::{Batch, Gathering};
use super::fault::{Fault, is_busy};
use super::known::KnownStreams;
use super::load::load;
use super::queue::{Job, Queue, Taken};
use super::tail::Tail;
use super::write::write;
use crate::clock::Clock;
use crate::commit::{Commit, Committed};
use crate::error::{CommitError, StoreError};
use crate::hub::{Hub, Topic, Wake};
use crate::settle::{Loaded, Needs, Writes, settle};

/// Most commits in one transaction.
const BATCH_COMMITS: usize = 1_024;

/// A batch that takes longer halves what the next may hold: hooks wait for this lock.
const BATCH_TIME: Duration = Duration::from_millis(5);

/// How often to look for other processes' writes while somebody waits for them, and while nobody
/// does.
const LOOK_OFTEN: Duration = Duration::from_millis(10);
const LOOK_SELDOM: Duration = Duration::from_millis(500);

/// How long to look often after somebody has asked for the hub.
const AFTER_NUDGE: Duration = Duration::from_secs(1);

/// The log is moved into the file when it has this many pages, between two batches.
const CHECKPOINT_PAGES: i32 = 8_000;

/// With this many, readers that never all pause have kept the log from starting over.
const OVERGROWN_PAGES: i32 = 32_000;

/// Callers write by themselves while a write takes no longer than this: the runtime's thread that
/// does it can do nothing else meanwhile.
const PROMPT: Duration = Duration::from_millis(1);

/// Attempts to get the write lock, each as long as the connection's busy timeout.
const LOCK_ATTEMPTS: u32 = 2;

#[derive(Debug)]
pub(super) struct Writer {
    pub(super) database: Database,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) hub: Arc<Hub>,
    known: KnownStreams,
    tail: Tail,
    wal_pages: Arc<AtomicI32>,
    batch_limit: usize,
    /// The last write was of one commit, and short enough to be made on its caller's thread.
    is_prompt: bool,
    gathering: Gathering,
    /// Somebody is about to subscribe: look often, although nobody has yet.
    watch_until: Option<Instant>,
    durability: Durability,
    /// What the connection is set to now.
    synchronous: Durability,
}

/// A batch as decided and written.
type Settled = (Vec<Result<Committed, CommitError>>, Writes);

impl Writer {
    pub(super) fn new(
        mut database: Database,
        durability: Durability,
        clock: Arc<dyn Clock>,
        hub: Arc<Hub>,
    ) -> rusqlite::Result<Self> {
        let wal_pages = Arc::new(AtomicI32::new(0));
        // In place of SQLite's own checkpoint, which would run inside COMMIT and delay the answers.
        let seen = Arc::clone(&wal_pages);
        database.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages| {
            seen.store(pages, Ordering::Relaxed);
            Ok(())
        }))?;
        database.set_prepared_statement_cache_capacity(64);
        let tail = Tail::new(&database)?;
        let known = KnownStreams::default();
        Ok(Self {
            database,
            clock,
            hub,
            known,
            tail,
            wal_pages,
            batch_limit: BATCH_COMMITS,
            is_prompt: false,
            gathering: Gathering::default(),
            watch_until: None,
            durability,
            synchronous: durability,
        })
    }

    /// What the thread does until the queue is closed and empty.
    pub(super) fn run(shared: &Mutex<Self>, queue: &Arc<Queue>) {
        let _abandon = AbandonOnExit(Arc::clone(queue));
        let mut jobs = VecDeque::new();
        let mut batch = Batch::default();
        let mut patience = LOOK_OFTEN;
        loop {
            let patience_now = if jobs.is_empty() { patience } else { Duration::ZERO };
            let room = BATCH_COMMITS.saturating_sub(jobs.len());
            let taken = queue.take(&mut jobs, room, patience_now);
            if taken == Taken::Closed && jobs.is_empty() {
                return;
            }
            // What a panic may have left behind was rolled back where it was caught.
            let mut writer = shared.lock().unwrap_or_else(PoisonError::into_inner);
            if taken == Taken::Nudged {
                writer.watch_until = Some(Instant::now() + AFTER_NUDGE);
            }
            batch.fill(&mut jobs, writer.batch_limit);
            if !batch.commits.is_empty() {
                writer.commit_batch(&mut batch, jobs.len(), queue);
                if jobs.is_empty() {
                    let most = writer.batch_limit;
                    writer.gathering.wait(queue, most);
                }
            } else if let Some(Job::Task(task)) = jobs.pop_front() {
                writer.guarded(|writer| task(writer)).unwrap_or_else(|_| writer.roll_back());
            } else {
                writer.look_around();
            }
            writer.checkpoint_if_large();
            patience = writer.patience();
        }
    }

    /// How long to sleep before the next look for other processes' writes.
    fn patience(&self) -> Duration {
        let nudged = self.watch_until.is_some_and(|until| Instant::now() < until);
        if nudged || !self.hub.is_idle() { LOOK_OFTEN } else { LOOK_SELDOM }
    }

    /// `taken` jobs wait for the next batch, and what is in the queue.
    fn commit_batch(&mut self, batch: &mut Batch, taken: usize, queue: &Queue) {
        let started = Instant::now();
        let outcome = self.settle_batch(&batch.commits);
        let (size, took) = (batch.commits.len(), started.elapsed());
        self.adapt(size, took);
        self.is_prompt = size == 1 && took < PROMPT;
        match outcome {
            Ok((outcomes, writes)) => {
                self.gathering.expect(size + taken + queue.len(), took);
                self.publish(&writes);
                Answers::new(batch.replies.drain(..), outcomes).give(&queue.callers);
                // After the answers: their callers go on while this one tidies up.
                batch.commits.clear();
            }
            Err(fault) if fault.is_of_one_commit && size > 1 => {
                self.commit_one_by_one(batch, queue);
            }
            Err(Fault { error, .. }) => {
                tracing::error!(%error, commits = size, "{size} commits were not written: {error}");
                batch.commits.clear();
                let told = std::iter::repeat_with(|| Err(error.clone().into()));
                Answers::new(batch.replies.drain(..), told).give(&queue.callers);
            }
        }
        self.tail.publish(&self.hub);
    }

    /// Writes one commit on the thread of its caller, without waiting for other processes. None if
    /// it was not written at once: that is for the thread, which may wait.
    pub(super) fn commit_here(
        &mut self,
        commit: &Commit,
        queue: &Queue,
    ) -> Option<Result<Committed, CommitError>> {
        if !self.is_prompt || self.database.wait_for_locks(Wait::Never).is_err() {
            return None;
        }
        let started = Instant::now();
        let settled = self.settle_batch(std::slice::from_ref(commit));
        self.is_prompt = started.elapsed() < PROMPT;
        let outcome = match settled {
            Ok((mut outcomes, writes)) => {
                self.publish(&writes);
                outcomes.pop()
            }
            // Whether it was written is not known: it must not be written again.
            Err(Fault { error: error @ StoreError::Unknown(_), .. }) => Some(Err(error.into())),
            Err(_) => None,
        };
        if let Err(error) = self.database.wait_for_locks(Wait::Usual) {
            tracing::error!(%error, "writes will not wait for other processes: {error}");
        }
        if self.log_is_long() {
            queue.rouse();
        }
        outcome
    }

    /// One commit of the batch cannot be written: the others must not suffer.
    fn commit_one_by_one(&mut self, batch: &mut Batch, queue: &Queue) {
        let commits = std::mem::take(&mut batch.commits);
        let replies = std::mem::take(&mut batch.replies);
        for (commit, reply) in commits.into_iter().zip(replies) {
            let mut alone = Batch { commits: vec![commit], replies: vec![reply] };
            self.commit_batch(&mut alone, 0, queue);
        }
    }

    fn settle_batch(&mut self, commits: &[Commit]) -> Result<Settled, Fault> {
        // Leases need not outlive the machine, and whatever is written under one syncs it too.
        let only_leases = commits.iter().all(Commit::is_of_leases);
        let durability = if only_leases { Durability::Normal } else { self.durability };
        let clock = Arc::clone(&self.clock);
        let settled = self.guarded(|writer| {
            writer.transaction_as(durability, |connection, known, last_event| {
                let now = clock.now();
                let mut loaded = Loaded { now, lease_now: clock.lease_now(), ..Loaded::default() };
                load(connection, &Needs::of(commits), known, &mut loaded)?;
                let (outcomes, writes) = settle(commits, loaded);
                let own = write(connection, &writes, now, known, last_event)?;
                Ok((outcomes, writes, own))
            })
        });
        let (outcomes, writes, own) = match settled {
            Ok(settled) => settled?,
            Err(panic) => {
                self.roll_back();
                return Err(Fault::panic(&*panic));
            }
        };
        self.tail.wrote(own);
        Ok((outcomes, writes))
    }

    /// Runs `work` in a write transaction that is as durable as the store promises when this
    /// returns. It is told the number of the newest chunk.
    pub(super) fn transaction<T>(
        &mut self,
        work: impl FnOnce(&Connection, &mut KnownStreams, i64) -> rusqlite::Result<T>,
    ) -> Result<T, Fault> {
        self.transaction_as(self.durability, work)
    }

    fn transaction_as<T>(
        &mut self,
        durability: Durability,
        work: impl FnOnce(&Connection, &mut KnownStreams, i64) -> rusqlite::Result<T>,
    ) -> Result<T, Fault> {
        let begun = self.set_synchronous(durability).and_then(|()| self.begin());
        let written = begun.and_then(|()| {
            if self.tail.look(&self.database)? {
                self.known.clear();
            }
            work(&self.database, &mut self.known, self.tail.last_event())
        });
        let committed = written.map_err(Fault::of_sqlite).and_then(|value| {
            let commit = self.database.prepare_cached("COMMIT").and_then(|mut s| s.execute([]));
            commit.map(|_| value).map_err(|error| Fault::of_commit(&error))
        });
        if committed.is_err() {
            self.roll_back();
        }
        committed
    }

    fn set_synchronous(&mut self, wanted: Durability) -> rusqlite::Result<()> {
        if self.synchronous != wanted {
            // Not cached: this pragma acts when it is prepared.
            self.database.execute_batch(match wanted {
                Durability::Full => "PRAGMA synchronous = FULL",
                Durability::Normal => "PRAGMA synchronous = NORMAL",
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

    /// Leaves no transaction open and nothing remembered that was not committed.
    pub(super) fn roll_back(&mut self) {
        self.known.clear();
        self.tail.doubt();
        if !self.database.is_autocommit()
            && let Err(error) = self.database.execute_batch("ROLLBACK")
        {
            tracing::error!(%error, "a failed write could not be rolled back: {error}");
        }
    }

    fn guarded<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> Result<T, Box<dyn Any + Send>> {
        catch_unwind(AssertUnwindSafe(|| work(self)))
    }

    fn publish(&mut self, writes: &Writes) {
        // First, so that nobody takes our chunk for the next one after what they have.
        self.tail.publish(&self.hub);
        if self.hub.is_idle() {
            return;
        }
        for stream in &writes.streams {
            let topic = Topic::Stream(stream.stream.clone());
            let last = stream.chunks.len().saturating_sub(1);
            for (index, chunk) in stream.chunks.iter().enumerate() {
                let closes = stream.row.closed && index == last;
                self.hub.publish(&topic, &Wake::Chunk { chunk: chunk.clone(), closes });
            }
            if stream.chunks.is_empty() {
                self.hub.publish(&topic, &Wake::Behind);
            }
        }
        for topic in &writes.wakes {
            self.hub.publish(topic, &Wake::Behind);
        }
    }

    fn look_around(&mut self) {
        match self.tail.look(&self.database) {
            Ok(true) => self.known.clear(),
            Ok(false) => {}
            Err(error) => tracing::debug!(%error, "could not look for other processes' writes"),
        }
        self.tail.publish(&self.hub);
    }

    fn adapt(&mut self, commits: usize, took: Duration) {
        if took > BATCH_TIME {
            self.batch_limit = (commits / 2).max(16);
        } else if took < BATCH_TIME / 2 {
            self.batch_limit = (self.batch_limit * 2).min(BATCH_COMMITS);
        }
    }

    /// As if the last write had taken next to no time.
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
        // The log is whole without it; the next one tries again.
        if let Err(error) = done {
            tracing::debug!(%error, pages, "could not checkpoint the log");
        }
    }
}

/// However the thread ends, nobody waits for it for ever.
struct AbandonOnExit(Arc<Queue>);

impl Drop for AbandonOnExit {
    fn drop(&mut self) {
        self.0.abandon();
    }
}
