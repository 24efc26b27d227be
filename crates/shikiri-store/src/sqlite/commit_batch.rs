//! Chooses the commits that share a transaction.

use std::collections::VecDeque;
use std::time::Duration;

use super::write_queue::{CommitReplySender, SqliteWriteJob, SqliteWriteQueue};
use crate::commit::Commit;

/// The most bytes in one transaction.
const BATCH_BYTES: usize = 1024 * 1024;

/// The longest wait for callers that will probably return.
const LONGEST_GATHERING: Duration = Duration::from_micros(500);

/// Commits that share a transaction, and their callers.
#[derive(Default)]
pub(super) struct CommitBatch {
    pub(super) commits: Vec<Commit>,
    pub(super) replies: Vec<CommitReplySender>,
}

impl CommitBatch {
    /// Takes commits from the front, up to the first other job.
    pub(super) fn fill(&mut self, jobs: &mut VecDeque<SqliteWriteJob>, most: usize) {
        let mut bytes = 0;
        while self.commits.len() < most
            && bytes < BATCH_BYTES
            && let Some(job) = jobs.pop_front_if(|job| matches!(job, SqliteWriteJob::Commit { .. }))
            && let SqliteWriteJob::Commit { commit, reply } = job
        {
            bytes += commit.size();
            self.commits.push(commit);
            self.replies.push(reply);
        }
    }
}

/// Callers that got their replies together usually commit again together. Starting with the first
/// of them would spend one sync on it and another on the rest. So the writer waits briefly for as
/// many callers as before, and pauses this policy when they do not come.
#[derive(Debug, Default)]
pub(super) struct BatchWaitPolicy {
    expected: usize,
    patience: Duration,
    /// Batches until the policy is tried again, and the length of the last pause.
    resting: u32,
    last_rest: u32,
}

impl BatchWaitPolicy {
    pub(super) fn expect(&mut self, waiting: usize, batch_took: Duration) {
        self.expected = waiting;
        self.patience = (batch_took / 2).min(LONGEST_GATHERING);
    }

    pub(super) fn wait(&mut self, queue: &SqliteWriteQueue, most: usize) {
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
