//! A node: one living process that executes runs, known by a lease that it renews.
//!
//! Every write for a run is guarded by the node's lease. When the lease expires, another node puts
//! its runs back in the queue, or ends those that cannot be resumed. A node that was only paused finds its writes refused, drops its runs
//! and joins again under a new id.

use std::slice;
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use shikiri_model::event::StreamId;
use shikiri_model::ids::NodeId;
use shikiri_model::lease::{Lease, LeaseChange, LeaseGuard};
use shikiri_model::record::{ExpectedVersion, RecordChange};
use shikiri_store::Commit;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::dead_node_sweep::{forget_node, requeue_or_abort_runs_of, sweep};
use super::liveness_file::{LivenessFile, is_process_dead, reap_dead_nodes};
use super::node_directory::describe_node;
use super::node_tasks::NodeTasks;
use super::run_handler::NodeServices;
use super::run_slot::RunSlot;
use super::worker::Worker;
use crate::error::AppError;
use crate::lease_keeper::keep_leases;
use crate::runtime::{Runtime, entropy};

pub(super) const LEASE_PREFIX: &str = "node/";

/// The stream of notes from other processes to a node, such as "stop this run".
pub(super) fn control_stream(node: &NodeId) -> StreamId {
    StreamId::new(format!("node/{node}"))
}

/// A joined node. Dropping it does not stop it; `leave` does.
pub struct WorkerNode {
    stop: CancellationToken,
    tasks: TaskTracker,
    /// Cancelled once the node executes runs.
    joined: CancellationToken,
}

/// Which runs a node claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClaimScope {
    Everything,
    OwnOnly,
}

impl WorkerNode {
    /// Starts to execute runs in this process.
    pub fn start(services: NodeServices) -> Self {
        Self::start_as(services, ClaimScope::Everything)
    }

    /// Executes only the runs that are started in this process, and leaves the queue to other
    /// nodes: for a process that will soon end.
    pub fn start_for_own(services: NodeServices) -> Self {
        Self::start_as(services, ClaimScope::OwnOnly)
    }

    fn start_as(services: NodeServices, scope: ClaimScope) -> Self {
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let joined = CancellationToken::new();
        tasks.spawn(run_node(services, scope, stop.clone(), joined.clone()));
        tasks.close();
        Self { stop, tasks, joined }
    }

    /// Waits until the node executes runs. Before that, a new run waits in the queue. An execution
    /// cannot wait and is refused.
    pub async fn joined(&self) {
        self.joined.cancelled().await;
    }

    /// Puts its runs back in the queue and releases its lease, so that other nodes need not wait.
    pub async fn leave(self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

/// Joins, works until the lease is lost, and joins again, until stopped.
async fn run_node(
    services: NodeServices,
    scope: ClaimScope,
    stop: CancellationToken,
    joined: CancellationToken,
) {
    reap_dead_nodes(&services.runtime).await;
    while !stop.is_cancelled() {
        let (node, lease) = match join(&services).await {
            Ok(joined) => joined,
            Err(error) => {
                tracing::warn!(%error, "cannot join as a worker; trying again");
                let _ = tokio::time::timeout(Duration::from_secs(1), stop.cancelled()).await;
                continue;
            }
        };
        let term = NodeTerm { services: services.clone(), node, guard: lease.guard() };
        let _liveness = LivenessFile::create_locked(&services.runtime, &term.node, &term.guard);
        term.work(scope, &stop, &joined).await;
    }
}

/// Takes a node's lease and writes its record, in one commit.
async fn join(services: &NodeServices) -> Result<(NodeId, Lease), AppError> {
    let runtime = &services.runtime;
    let id = NodeId::mint(runtime.store.now().await?, entropy()?);
    let (name, ttl) = (format!("{LEASE_PREFIX}{id}"), runtime.options.node_lease);
    let acquire = LeaseChange::Acquire { name, owner: id.to_string(), ttl };
    let record = describe_node(&id, &services.place);
    let put = RecordChange::put(&record, ExpectedVersion::New)?;
    let committed = runtime.store.commit(Commit::new().lease(acquire).record(put)).await?;
    let lease = committed.leases.into_iter().next();
    let lease = lease.ok_or_else(|| AppError::Broken("joining gave no lease".to_owned()))?;
    tracing::debug!(node.id = %id, "joined as {id}");
    Ok((id, lease))
}

/// The time of a node under one lease.
struct NodeTerm {
    services: NodeServices,
    node: NodeId,
    guard: LeaseGuard,
}

impl NodeTerm {
    async fn work(&self, scope: ClaimScope, stop: &CancellationToken, joined: &CancellationToken) {
        let lost = CancellationToken::new();
        let worker = Arc::new(Worker::new(
            self.services.clone(),
            self.node.clone(),
            self.guard.clone(),
            lost.clone(),
            scope == ClaimScope::Everything,
        ));
        self.services.runtime.local_worker.set(Some(&worker));
        joined.cancel();
        let tasks = TaskTracker::new();
        if scope == ClaimScope::Everything {
            tasks.spawn(Arc::clone(&worker).claim_runs());
        }
        tasks.spawn(Arc::clone(&worker).follow_control_stream());
        tasks.spawn(sweep(self.services.clone(), lost.clone()));
        for task in self.services.tasks.clone() {
            let stop = lost.clone();
            tasks.spawn(async move { task.run(stop).await });
        }
        tasks.close();
        tokio::select! {
            () = self.keep_lease() => tracing::warn!(node.id = %self.node, "lost the node lease"),
            () = stop.cancelled() => tokio::select! {
                () = self.keep_lease() => {}
                () = worker.drain_jobs() => {}
            },
        }
        lost.cancel();
        self.services.runtime.local_worker.set(None);
        tasks.wait().await;
        worker.drop_runs().await;
        if stop.is_cancelled() {
            self.hand_back().await;
        }
    }

    /// Returns when the lease is lost.
    async fn keep_lease(&self) {
        let runtime = &self.services.runtime;
        let ttl = runtime.options.node_lease;
        keep_leases(runtime.store.as_ref(), slice::from_ref(&self.guard), ttl, ttl).await;
    }

    async fn hand_back(&self) {
        if let Err(error) = requeue_or_abort_runs_of(&self.services, &self.node).await {
            tracing::warn!(%error, "runs were not handed back; another node will find them");
            return;
        }
        // If this fails, the next sweep does it.
        let _ = forget_node(&self.services.runtime, &self.guard, &self.node).await;
    }
}

impl Runtime {
    /// A slot for a run that is being started, if this process executes runs and has a free one.
    pub fn reserve_slot(&self) -> Option<RunSlot> {
        self.local_worker.reserve_slot()
    }

    /// This process as a node, while it accepts work.
    pub fn node_tasks(&self) -> Option<NodeTasks> {
        let local = self.local_worker.0.read().unwrap_or_else(PoisonError::into_inner);
        local.as_ref().and_then(Weak::upgrade).and_then(|worker| NodeTasks::of(&worker))
    }

    /// The id of this process as a node, while it executes runs.
    pub fn own_node(&self) -> Option<NodeId> {
        self.local_worker.node()
    }

    /// Whether a node is gone: its lease has expired, or its process on this machine has ended.
    pub async fn is_node_gone(&self, node: &NodeId) -> Result<bool, AppError> {
        // In this order: reaping releases the lease before deleting the liveness file.
        if is_process_dead(self, node) {
            return Ok(true);
        }
        let lease = self.store.lease(&format!("{LEASE_PREFIX}{node}")).await?;
        // While another node sweeps its runs, that node owns the lease.
        Ok(lease.is_none_or(|(lease, lapsed)| lapsed || lease.owner != node.as_str()))
    }
}

/// The worker of this process, if it executes runs.
#[derive(Default)]
pub struct LocalWorker(RwLock<Option<Weak<Worker>>>);

impl LocalWorker {
    fn set(&self, worker: Option<&Arc<Worker>>) {
        let mut local = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *local = worker.map(Arc::downgrade);
    }

    fn node(&self) -> Option<NodeId> {
        let local = self.0.read().unwrap_or_else(PoisonError::into_inner);
        local.as_ref().and_then(Weak::upgrade).map(|worker| worker.node())
    }

    /// A slot for a run that is being started.
    pub fn reserve_slot(&self) -> Option<RunSlot> {
        let local = self.0.read().unwrap_or_else(PoisonError::into_inner);
        local.as_ref().and_then(Weak::upgrade).and_then(|worker| worker.reserve_slot())
    }
}
