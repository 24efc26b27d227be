//! Which commits share a transaction.

use std::collections::VecDeque;
use std::time::Duration;

use super::queue::{Job, Queue, Reply};
use crate::commit::Commit;

/// Most bytes in one transaction.
const BATCH_BYTES: usize = 1024 * 1024;

/// Longest wait for callers that will probably come back.
const LONGEST_GATHERING: Duration = Duration::from_micros(500);

/// Commits that share a transaction, and who waits for them.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) commits: Vec<Commit>,
    pub(super) replies: Vec<Reply>,
}

impl Batch {
    /// Takes commits from the front, up to the first other job.
    pub(super) fn fill(&mut self, jobs: &mut VecDeque<Job>, most: usize) {
        let mut bytes = 0;
        while self.commits.len() < most
            && bytes < BATCH_BYTES
            && let Some(job) = jobs.pop_front_if(|job| matches!(job, Job::Commit { .. }))
            && let Job::Commit { commit, reply } = job
        {
            bytes += commit.size();
            self.commits.push(commit);
            self.replies.push(reply);
        }
    }
}

/// Callers that were answered together mostly come back together. Starting on the first of them
/// would spend one sync on it and another on the rest; so the writer waits a moment for as many as
/// have been waiting, and stops doing so for a while when they do not come.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    expected: usize,
    patience: Duration,
    /// Batches until it is tried again, and how many that was the last time.
    resting: u32,
    last_rest: u32,
}

impl Gathering {
    pub(super) fn expect(&mut self, waiting: usize, batch_took: Duration) {
        self.expected = waiting;
        self.patience = (batch_took / 2).min(LONGEST_GATHERING);
    }

    pub(super) fn wait(&mut self, queue: &Queue, most: usize) {
        let expected = self.expected.min(most);
        if expected < 2 {
            return;
        }
        if self.resting > 0 {
            self.resting -= 1;
        } else if queue.gather(expected, self.patience) {
            self.last_rest = 0;
        } else {
            self.last_rest = (self.last_rest * 2).clamp(1, 64);
            self.resting = self.last_rest;
        }
    }
}
