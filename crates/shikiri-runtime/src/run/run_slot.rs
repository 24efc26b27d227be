//! A slot in this process for a run that is being started, so that it need not wait in the queue.

use std::sync::Arc;

use shikiri_model::ids::NodeId;
use shikiri_model::lease::LeaseGuard;
use shikiri_model::record::StoredDocument;
use shikiri_model::run::Run;
use shikiri_store::{Commit, CommitError, CommitReceipt, StoreError};
use tokio::sync::OwnedSemaphorePermit;

use super::use_cases::RunCommitError;
use super::worker::{RunWorkload, Worker};
use crate::error::AppError;

/// A reserved slot, held until its run has ended in this process.
pub struct RunSlot {
    worker: Arc<Worker>,
    permit: OwnedSemaphorePermit,
}

impl RunSlot {
    pub(super) fn new(worker: Arc<Worker>, permit: OwnedSemaphorePermit) -> Self {
        Self { worker, permit }
    }

    pub fn node(&self) -> NodeId {
        self.worker.node.clone()
    }

    /// Whether this node claims runs from the queue. A node that does not will soon end, and its
    /// executions with it.
    pub fn is_lasting(&self) -> bool {
        self.worker.is_lasting
    }

    /// The guard of the commit that starts the run.
    pub fn guard(&self) -> LeaseGuard {
        self.worker.guard.clone()
    }

    /// Commits the run as started on this node, with this version of its record, then executes it. Both happen in a task of the
    /// worker: the caller may be gone before the commit is, and a started run must be executed.
    pub async fn start(
        self,
        run: Run,
        commit: Commit,
        version: u64,
        work: RunWorkload,
    ) -> Result<CommitReceipt, RunCommitError> {
        let Self { worker, permit } = self;
        let tasks = worker.tasks.clone();
        let (sender, receiver) = tokio::sync::oneshot::channel();
        tasks.spawn(async move {
            // Before the commit makes the run visible: a request to stop it must find it here.
            let id = run.id.to_string();
            let active = worker.acquire_run(&id).await;
            let committed = worker.services.runtime.commit_in_tenant(&run.tenant, commit).await;
            let receipt = match &committed {
                Ok(committed) => Some(committed.clone()),
                Err(RunCommitError::Commit(CommitError::Store(StoreError::Unknown(_)))) => {
                    // It may have been written. Then no node executes it.
                    worker.requeue_run(&run.tenant, &run.id).await;
                    None
                }
                Err(_) => None,
            };
            // The caller may have stopped waiting.
            let _ = sender.send(committed);
            if let Some(CommitReceipt { at, leases, .. }) = receipt {
                let attempts = 0;
                let started = StoredDocument {
                    version,
                    attempts,
                    created_at: at,
                    updated_at: at,
                    value: run,
                };
                let cancel = active.run.cancel.clone();
                worker.execute_new_run(&started, work, leases, cancel).await;
            }
            drop(active);
            drop(permit);
        });
        let lost = |_| AppError::Broken("the start of a run was not told".to_owned());
        receiver.await.map_err(lost)?
    }
}
