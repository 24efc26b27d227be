//! Work of a node besides runs, such as requests that wait for their turn.

use shikiri_model::ids::NodeId;
use shikiri_model::lease::LeaseGuard;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::worker::Worker;

/// A node that accepts such work.
pub struct NodeTasks {
    pub node: NodeId,
    /// Guards what is written for this node.
    pub guard: LeaseGuard,
    tasks: TaskTracker,
    lost: CancellationToken,
}

impl NodeTasks {
    /// None if the node is leaving.
    pub(super) fn of(worker: &Worker) -> Option<Self> {
        let accepts = !worker.lost.is_cancelled() && !worker.jobs.is_closed();
        accepts.then(|| Self {
            node: worker.node.clone(),
            guard: worker.guard.clone(),
            tasks: worker.tasks.clone(),
            lost: worker.lost.clone(),
        })
    }

    /// Spawns a task that must end when its token is cancelled: this node stops then, or has lost
    /// its lease.
    pub fn spawn<F>(&self, task: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.tasks.spawn(task(self.lost.clone()));
    }
}
