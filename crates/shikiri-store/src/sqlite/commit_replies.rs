//! Sends the results of a batch to its callers.

use std::sync::OnceLock;

use tokio::runtime::{Handle, RuntimeFlavor};

use super::write_queue::CommitReplySender;
use crate::commit::CommitReceipt;
use crate::error::CommitError;

/// From this many replies on, they are sent from a task of the runtime.
const MANY: usize = 4;

/// The results for the callers. They are sent at the latest when this is dropped.
pub(super) struct CommitReplies(Vec<(CommitReplySender, Result<CommitReceipt, CommitError>)>);

impl CommitReplies {
    pub(super) fn new(
        replies: impl Iterator<Item = CommitReplySender>,
        outcomes: impl IntoIterator<Item = Result<CommitReceipt, CommitError>>,
    ) -> Self {
        Self(replies.zip(outcomes).collect())
    }

    /// A reply from another thread may wake a sleeping worker with a system call. A worker of the
    /// runtime wakes the other workers without that cost.
    pub(super) fn send_all(self, callers: &CallerRuntime) {
        match callers.0.get() {
            // If the runtime has ended, it drops the task, which sends the replies.
            Some(runtime) if self.0.len() >= MANY => {
                runtime.spawn(async move { drop(self) });
            }
            _ => drop(self),
        }
    }
}

impl Drop for CommitReplies {
    fn drop(&mut self) {
        for (reply, outcome) in self.0.drain(..) {
            // A caller that is gone needs no reply.
            let _ = reply.send(outcome);
        }
    }
}

/// The runtime of the callers.
#[derive(Debug, Default)]
pub(super) struct CallerRuntime(OnceLock<Handle>);

impl CallerRuntime {
    /// Only a multi-threaded runtime: another one may not be running when a reply is due.
    pub(super) fn remember_runtime(&self) {
        if self.0.get().is_none()
            && let Ok(runtime) = Handle::try_current()
            && runtime.runtime_flavor() == RuntimeFlavor::MultiThread
        {
            // Another thread may have set it first, to the same runtime.
            let _ = self.0.set(runtime);
        }
    }
}
