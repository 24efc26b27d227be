//! Answers a batch's callers.

use std::sync::OnceLock;

use tokio::runtime::{Handle, RuntimeFlavor};

use super::queue::Reply;
use crate::commit::Committed;
use crate::error::CommitError;

/// From this many on, it pays to have them given from inside the runtime.
const MANY: usize = 4;

/// What each caller is told, at the latest when this is dropped.
pub(super) struct Answers(Vec<(Reply, Result<Committed, CommitError>)>);

impl Answers {
    pub(super) fn new(
        replies: impl Iterator<Item = Reply>,
        outcomes: impl IntoIterator<Item = Result<Committed, CommitError>>,
    ) -> Self {
        Self(replies.zip(outcomes).collect())
    }

    /// Every answer that another thread gives may wake a sleeping worker by a system call; one
    /// worker that gives them all wakes its neighbours for nothing more than that.
    pub(super) fn give(self, callers: &Callers) {
        match callers.0.get() {
            // If that runtime has ended, it drops the task, and with it the answers are given.
            Some(runtime) if self.0.len() >= MANY => {
                runtime.spawn(async move { drop(self) });
            }
            _ => drop(self),
        }
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        for (reply, outcome) in self.0.drain(..) {
            // A caller that is gone needs no answer.
            let _ = reply.send(outcome);
        }
    }
}

/// The runtime that callers come from.
#[derive(Debug, Default)]
pub(super) struct Callers(OnceLock<Handle>);

impl Callers {
    /// Only one whose workers run by themselves: another may not be driven when an answer is due.
    pub(super) fn note(&self) {
        if self.0.get().is_none()
            && let Ok(runtime) = Handle::try_current()
            && runtime.runtime_flavor() == RuntimeFlavor::MultiThread
        {
            // Somebody else may have been first: theirs is as good.
            let _ = self.0.set(runtime);
        }
    }
}
