//! The queue between callers and the writer thread, which takes all waiting jobs at once.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, oneshot};

use super::commit_replies::CallerRuntime;
use super::writer_thread::SqliteWriter;
use crate::commit::{Commit, CommitReceipt};
use crate::error::{CommitError, StoreError};

pub(super) type CommitReplySender = oneshot::Sender<Result<CommitReceipt, CommitError>>;

pub(super) enum SqliteWriteJob {
    Commit {
        commit: Commit,
        reply: CommitReplySender,
    },
    /// Another write. It sends its result through what it captured.
    Task(Box<dyn FnOnce(&mut SqliteWriter) + Send>),
}

/// The most jobs in the queue. When it is full, callers wait in order.
const WAITING_JOBS: usize = 8_192;

#[derive(Debug)]
pub(super) struct SqliteWriteQueue {
    state: Mutex<WriteQueueState>,
    news: Condvar,
    room: Semaphore,
    pub(super) callers: CallerRuntime,
}

#[derive(Default)]
struct WriteQueueState {
    jobs: VecDeque<SqliteWriteJob>,
    /// The writer sleeps. The caller that adds job number `wake_at` wakes it.
    asleep: bool,
    wake_at: usize,
    nudged: bool,
    closed: bool,
}

/// The result of taking jobs from the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueTakeResult {
    /// Jobs, or none within the time.
    Jobs,
    /// Possibly jobs; a caller is about to wait for other processes' writes.
    Nudged,
    /// The queue is closed and empty.
    Closed,
}

impl std::fmt::Debug for WriteQueueState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("jobs", &self.jobs.len()).finish_non_exhaustive()
    }
}

impl SqliteWriteQueue {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::default(),
            news: Condvar::new(),
            room: Semaphore::new(WAITING_JOBS),
            callers: CallerRuntime::default(),
        }
    }

    /// Adds a job, at once if there is room, which is nearly always the case.
    pub(super) async fn push(&self, job: SqliteWriteJob) -> Result<(), StoreError> {
        let permit = match self.room.try_acquire() {
            Ok(permit) => permit,
            Err(_) => self.room.acquire().await.map_err(|_| writer_ended())?,
        };
        permit.forget();
        self.callers.remember_runtime();
        let mut state = self.lock();
        if state.closed {
            return Err(writer_ended());
        }
        state.jobs.push_back(job);
        let wake = state.asleep && state.jobs.len() >= state.wake_at;
        state.asleep &= !wake;
        drop(state);
        if wake {
            self.news.notify_one();
        }
        Ok(())
    }

    /// The writer, if it sleeps and the queue is empty. The caller can then write without waking
    /// it. Tried while the queue is locked, so that no later caller can overtake.
    pub(super) fn try_borrow_writer<'a>(
        &self,
        writer: &'a Mutex<SqliteWriter>,
    ) -> Option<MutexGuard<'a, SqliteWriter>> {
        let state = self.lock();
        let sleeps = state.asleep && state.wake_at == 1;
        if sleeps && state.jobs.is_empty() && !state.closed { writer.try_lock().ok() } else { None }
    }

    /// Moves up to `most` jobs to `into`. Waits for the first one until `patience` is over.
    pub(super) fn take(
        &self,
        into: &mut VecDeque<SqliteWriteJob>,
        most: usize,
        patience: Duration,
    ) -> QueueTakeResult {
        let mut state = self.lock();
        if state.jobs.is_empty() && !state.closed && !state.nudged {
            state = self.sleep(state, 1, patience);
        }
        let count = state.jobs.len().min(most);
        into.extend(state.jobs.drain(..count));
        let taken = match (count, std::mem::take(&mut state.nudged), state.closed) {
            (0, _, true) => QueueTakeResult::Closed,
            (_, true, _) => QueueTakeResult::Nudged,
            _ => QueueTakeResult::Jobs,
        };
        drop(state);
        self.room.add_permits(count);
        taken
    }

    pub(super) fn len(&self) -> usize {
        self.lock().jobs.len()
    }

    /// Waits until `count` jobs are in the queue. Returns false if `patience` is over before.
    pub(super) fn gather(&self, count: usize, patience: Duration) -> bool {
        let mut state = self.lock();
        if state.jobs.len() < count && !state.closed {
            state = self.sleep(state, count, patience);
        }
        state.jobs.len() >= count
    }

    fn sleep<'a>(
        &self,
        mut state: MutexGuard<'a, WriteQueueState>,
        wake_at: usize,
        patience: Duration,
    ) -> MutexGuard<'a, WriteQueueState> {
        let until = Instant::now() + patience;
        state.asleep = true;
        state.wake_at = wake_at;
        while state.asleep {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self
                .news
                .wait_timeout(state, left)
                .map_or_else(|poison| poison.into_inner().0, |(state, _)| state);
        }
        state.asleep = false;
        state
    }

    /// Wakes the writer without a job.
    pub(super) fn wake_writer(&self) {
        self.lock().asleep = false;
        self.news.notify_one();
    }

    /// Wakes the writer and makes it poll often for a while.
    pub(super) fn wake_and_watch(&self) {
        self.lock().nudged = true;
        self.wake_writer();
    }

    /// Closes the queue. Waiting jobs are still done.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.asleep = false;
        drop(state);
        self.room.close();
        self.news.notify_one();
    }

    /// Closes the queue and drops waiting jobs; their callers get an error.
    pub(super) fn abandon(&self) {
        self.close();
        self.lock().jobs.clear();
    }

    /// Every change under the lock is complete, so a panic of another thread leaves no broken
    /// state.
    fn lock(&self) -> MutexGuard<'_, WriteQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The job was not accepted.
fn writer_ended() -> StoreError {
    StoreError::unavailable("the writer has ended")
}
