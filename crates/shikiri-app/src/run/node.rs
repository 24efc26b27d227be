//! A node: one living process that carries runs, known by a lease that it renews.
//!
//! Every write for a run is guarded by the node's lease. When the lease lapses, another node puts
//! its runs back in the queue; a node that was only paused finds its writes refused, drops what
//! it carried and joins again under a new id.

use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use shikiri_model::event::StreamId;
use shikiri_model::ids::NodeId;
use shikiri_model::lease::{Guard, Lease};
use shikiri_store::{CommitError, StoreError, StoreExt};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::invitation::Invitation;
use super::sweep::{forget_node, requeue_runs_of, sweep};
use super::vital::{Vital, bury_the_dead, is_dead};
use super::worker::Worker;
use crate::app::{App, entropy};
use crate::error::AppError;
use crate::lane::keep_lanes;
use crate::team::keep_time;

pub(super) const LEASE_PREFIX: &str = "node/";

/// Where other processes leave notes for a node, such as "stop this run".
pub(crate) fn control_stream(node: &NodeId) -> StreamId {
    StreamId::new(format!("node/{node}"))
}

/// A joined node. Dropping it does not stop it; `leave` does.
pub struct Node {
    stop: CancellationToken,
    tasks: TaskTracker,
    /// Cancelled once it carries runs.
    joined: CancellationToken,
}

/// Which runs a node takes up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Appetite {
    Everything,
    OwnOnly,
}

impl Node {
    /// Starts to carry runs in this process.
    pub fn start(app: App) -> Self {
        app.empty_trash();
        Self::start_as(app, Appetite::Everything)
    }

    /// Carries what is started in this process, and leaves the queue to others: for a process that
    /// will soon end.
    pub fn start_for_own(app: App) -> Self {
        Self::start_as(app, Appetite::OwnOnly)
    }

    fn start_as(app: App, appetite: Appetite) -> Self {
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let joined = CancellationToken::new();
        tasks.spawn(live(app, appetite, stop.clone(), joined.clone()));
        tasks.close();
        Self { stop, tasks, joined }
    }

    /// Waits until it carries runs. Before, a run waits in the queue, and an execution, which
    /// cannot, is refused.
    pub async fn joined(&self) {
        self.joined.cancelled().await;
    }

    /// Gives the runs back to the queue and the lease up, so that others need not wait.
    pub async fn leave(self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

/// Joins, works until the lease is lost, and joins again, until stopped.
async fn live(app: App, appetite: Appetite, stop: CancellationToken, joined: CancellationToken) {
    bury_the_dead(&app).await;
    while !stop.is_cancelled() {
        let (node, lease) = match join(&app).await {
            Ok(joined) => joined,
            Err(error) => {
                tracing::warn!(%error, "cannot join as a worker; trying again");
                let _ = tokio::time::timeout(Duration::from_secs(1), stop.cancelled()).await;
                continue;
            }
        };
        let tenure = Tenure { app: app.clone(), node, guard: lease.guard() };
        let _vital = Vital::show(&app, &tenure.node, &tenure.guard);
        tenure.work(appetite, &stop, &joined).await;
    }
}

async fn join(app: &App) -> Result<(NodeId, Lease), AppError> {
    let id = NodeId::mint(app.store.now().await?, entropy()?);
    let name = format!("{LEASE_PREFIX}{id}");
    let lease = app.store.try_acquire(&name, id.as_str(), app.options.node_lease).await?;
    tracing::debug!(node.id = %id, "joined as {id}");
    Ok((id, lease))
}

/// The time under one lease.
struct Tenure {
    app: App,
    node: NodeId,
    guard: Guard,
}

impl Tenure {
    async fn work(&self, appetite: Appetite, stop: &CancellationToken, joined: &CancellationToken) {
        let lost = CancellationToken::new();
        let worker = Arc::new(Worker::new(
            self.app.clone(),
            self.node.clone(),
            self.guard.clone(),
            lost.clone(),
            appetite == Appetite::Everything,
        ));
        self.app.here.set(Some(&worker));
        joined.cancel();
        let tasks = TaskTracker::new();
        if appetite == Appetite::Everything {
            tasks.spawn(Arc::clone(&worker).claim_runs());
        }
        tasks.spawn(Arc::clone(&worker).hear_notes());
        tasks.spawn(sweep(self.app.clone(), lost.clone()));
        tasks.spawn(keep_time(self.app.clone(), lost.clone()));
        tasks.spawn(keep_lanes(self.app.clone(), lost.clone()));
        tasks.close();
        tokio::select! {
            () = self.keep_lease() => tracing::warn!(node.id = %self.node, "lost the node lease"),
            () = stop.cancelled() => tokio::select! {
                () = self.keep_lease() => {}
                () = worker.wind_down() => {}
            },
        }
        lost.cancel();
        self.app.here.set(None);
        tasks.wait().await;
        worker.drop_runs().await;
        if stop.is_cancelled() {
            self.hand_back().await;
        }
    }

    /// Returns when the lease is lost.
    async fn keep_lease(&self) {
        let ttl = self.app.options.node_lease;
        let mut renewed = tokio::time::Instant::now();
        loop {
            tokio::time::sleep(ttl / 3).await;
            match self.app.store.renew(&self.guard, ttl).await {
                Ok(_) => renewed = tokio::time::Instant::now(),
                Err(CommitError::Store(StoreError::Unavailable(_) | StoreError::Unknown(_)))
                    if renewed.elapsed() < ttl => {}
                Err(_) => return,
            }
        }
    }

    async fn hand_back(&self) {
        if let Err(error) = requeue_runs_of(&self.app, &self.node).await {
            tracing::warn!(%error, "runs were not handed back; another node will find them");
            return;
        }
        // Whatever of this fails is done by the next sweep.
        let _ = forget_node(&self.app, &self.guard, &self.node).await;
    }
}

impl App {
    /// The node that this process is, while it carries runs.
    pub fn own_node(&self) -> Option<NodeId> {
        self.here.node()
    }

    /// Whether a node lives no more: its lease has run out, or its process is gone from this machine.
    pub(crate) async fn is_node_gone(&self, node: &NodeId) -> Result<bool, AppError> {
        // In this order: whoever buries it gives its lease back first and takes its sign away then.
        if is_dead(self, node) {
            return Ok(true);
        }
        let lease = self.store.lease(&format!("{LEASE_PREFIX}{node}")).await?;
        // Whoever sweeps what it left has its lease for as long as that takes.
        Ok(lease.is_none_or(|(lease, lapsed)| lapsed || lease.owner != node.as_str()))
    }
}

/// The worker of this process, if it carries runs.
#[derive(Default)]
pub(crate) struct Here(RwLock<Option<Weak<Worker>>>);

impl Here {
    fn set(&self, worker: Option<&Arc<Worker>>) {
        let mut here = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *here = worker.map(Arc::downgrade);
    }

    fn node(&self) -> Option<NodeId> {
        let here = self.0.read().unwrap_or_else(PoisonError::into_inner);
        here.as_ref().and_then(Weak::upgrade).map(|worker| worker.node())
    }

    /// A place for a run that is being started.
    pub(crate) fn invite(&self) -> Option<Invitation> {
        let here = self.0.read().unwrap_or_else(PoisonError::into_inner);
        here.as_ref().and_then(Weak::upgrade).and_then(|worker| worker.invite())
    }
}
