//! A place in this process for a run that is being started, so that it need not wait in the queue.

use std::sync::Arc;

use shikiri_model::ids::NodeId;
use shikiri_model::lease::Guard;
use shikiri_model::record::Stored;
use shikiri_model::run::Run;
use shikiri_store::{Commit, CommitError, Committed, StoreError};
use tokio::sync::OwnedSemaphorePermit;

use super::use_cases::CommitOrRefusal;
use super::worker::{Work, Worker};
use crate::error::AppError;

/// A free place, taken until the run that it is used for has ended here.
pub(crate) struct Invitation {
    worker: Arc<Worker>,
    permit: OwnedSemaphorePermit,
}

impl Invitation {
    pub(super) fn new(worker: Arc<Worker>, permit: OwnedSemaphorePermit) -> Self {
        Self { worker, permit }
    }

    pub(crate) fn node(&self) -> NodeId {
        self.worker.node.clone()
    }

    /// Whether this node takes up what others have begun: one that does not will soon end, and an
    /// execution with it.
    pub(crate) fn is_lasting(&self) -> bool {
        self.worker.is_lasting
    }

    /// What the commit that starts the run must carry.
    pub(crate) fn guard(&self) -> Guard {
        self.worker.guard.clone()
    }

    /// Commits the run as started here, and carries it. In a task of the worker's: whoever asked
    /// may be gone before the commit is, and a run that was started must be carried.
    pub(crate) async fn start(
        self,
        run: Run,
        commit: Commit,
        work: Work,
    ) -> Result<Committed, CommitOrRefusal> {
        let Self { worker, permit } = self;
        let tasks = worker.tasks.clone();
        let (told, outcome) = tokio::sync::oneshot::channel();
        tasks.spawn(async move {
            // Before anybody can know of the run: who wants it stopped must find it here.
            let id = run.id.to_string();
            let place = worker.take_up(&id).await;
            let committed = worker.app.commit_in_tenant(&run.tenant, commit).await;
            let carry = match &committed {
                Ok(committed) => Some(committed.clone()),
                Err(CommitOrRefusal::Commit(CommitError::Store(StoreError::Unknown(_)))) => {
                    // It may have been written: then nobody carries it.
                    worker.put_back(&run.tenant, &run.id).await;
                    None
                }
                Err(_) => None,
            };
            // Nobody may be waiting any more.
            let _ = told.send(committed);
            if let Some(Committed { at, leases, .. }) = carry {
                let (version, attempts) = (1, 0);
                let started =
                    Stored { version, attempts, created_at: at, updated_at: at, value: run };
                let cancel = place.carried.cancel.clone();
                worker.carry_new(&started, work, leases, cancel).await;
            }
            drop(place);
            drop(permit);
        });
        let lost = |_| AppError::Broken("the start of a run was not told".to_owned());
        outcome.await.map_err(lost)?
    }
}
