//! Where callers leave their writes and the writer thread takes them, all that wait at once.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, oneshot};

use super::answers::Callers;
use super::writer::Writer;
use crate::commit::{Commit, Committed};
use crate::error::{CommitError, StoreError};

pub(super) type Reply = oneshot::Sender<Result<Committed, CommitError>>;

pub(super) enum Job {
    Commit {
        commit: Commit,
        reply: Reply,
    },
    /// Something else that writes; it answers through what it captured.
    Task(Box<dyn FnOnce(&mut Writer) + Send>),
}

/// Jobs that may wait. When that many do, callers wait for room, in their order.
const WAITING_JOBS: usize = 8_192;

#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    news: Condvar,
    room: Semaphore,
    pub(super) callers: Callers,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// The writer sleeps: whoever brings the job that makes them `wake_at` wakes it.
    asleep: bool,
    wake_at: usize,
    nudged: bool,
    closed: bool,
}

/// What the writer found in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// Jobs, or none in time.
    Jobs,
    /// Perhaps jobs, and somebody is about to wait for other processes' writes.
    Nudged,
    /// Nothing, and nothing will come.
    Closed,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("jobs", &self.jobs.len()).finish_non_exhaustive()
    }
}

impl Queue {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::default(),
            news: Condvar::new(),
            room: Semaphore::new(WAITING_JOBS),
            callers: Callers::default(),
        }
    }

    /// Hands in a job at once if there is room, which is nearly always.
    pub(super) async fn push(&self, job: Job) -> Result<(), StoreError> {
        let permit = match self.room.try_acquire() {
            Ok(permit) => permit,
            Err(_) => self.room.acquire().await.map_err(|_| writer_ended())?,
        };
        permit.forget();
        self.callers.note();
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

    /// The writer, if it sleeps and nothing waits for it: then whoever has something to write need
    /// not wake it. Tried while the queue is locked, so nobody who comes later overtakes.
    pub(super) fn borrow<'a>(&self, writer: &'a Mutex<Writer>) -> Option<MutexGuard<'a, Writer>> {
        let state = self.lock();
        let sleeps = state.asleep && state.wake_at == 1;
        if sleeps && state.jobs.is_empty() && !state.closed { writer.try_lock().ok() } else { None }
    }

    /// Moves up to `most` waiting jobs to `into`; waits for the first one until `patience` is
    /// over.
    pub(super) fn take(&self, into: &mut VecDeque<Job>, most: usize, patience: Duration) -> Taken {
        let mut state = self.lock();
        if state.jobs.is_empty() && !state.closed && !state.nudged {
            state = self.sleep(state, 1, patience);
        }
        let count = state.jobs.len().min(most);
        into.extend(state.jobs.drain(..count));
        let taken = match (count, std::mem::take(&mut state.nudged), state.closed) {
            (0, _, true) => Taken::Closed,
            (_, true, _) => Taken::Nudged,
            _ => Taken::Jobs,
        };
        drop(state);
        self.room.add_permits(count);
        taken
    }

    pub(super) fn len(&self) -> usize {
        self.lock().jobs.len()
    }

    /// Waits until `count` jobs are here, not longer than `patience`. False if they did not come.
    pub(super) fn gather(&self, count: usize, patience: Duration) -> bool {
        let mut state = self.lock();
        if state.jobs.len() < count && !state.closed {
            state = self.sleep(state, count, patience);
        }
        state.jobs.len() >= count
    }

    fn sleep<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        wake_at: usize,
        patience: Duration,
    ) -> MutexGuard<'a, State> {
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

    /// Makes a sleeping writer look around, without a job.
    pub(super) fn rouse(&self) {
        self.lock().asleep = false;
        self.news.notify_one();
    }

    /// The same, and have it look often for a while.
    pub(super) fn nudge(&self) {
        self.lock().nudged = true;
        self.rouse();
    }

    /// No more jobs; those that wait are still done.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.asleep = false;
        drop(state);
        self.room.close();
        self.news.notify_one();
    }

    /// No more jobs, and those that wait are given up: their callers are told.
    pub(super) fn abandon(&self) {
        self.close();
        self.lock().jobs.clear();
    }

    /// Each step under the lock leaves the state whole, so a panic elsewhere does not spoil it.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The job was not taken.
fn writer_ended() -> StoreError {
    StoreError::unavailable("the writer has ended")
}
