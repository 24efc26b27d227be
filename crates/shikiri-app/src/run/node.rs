//! A node: one living process that carries runs, known by a lease that it renews.
//!
//! Every write for a run is guarded by the node's lease. When the lease lapses, another node puts
//! its runs back in the queue; a node that was only paused finds its writes refused, drops what
//! it carried and joins again under a new id.

use std::sync::Arc;
use std::time::Duration;

use shikiri_model::event::StreamId;
use shikiri_model::ids::{NodeId, RunId, TenantId};
use shikiri_model::lease::{Guard, Lease};
use shikiri_model::record::{Document, RecordQuery};
use shikiri_model::run::{Command, Run, RunStatus};
use shikiri_store::{Append, Commit, CommitError, StoreError, StoreExt, store};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::worker::Worker;
use crate::app::{App, entropy};
use crate::error::AppError;

const LEASE_PREFIX: &str = "node/";
/// Chunks removed at a time, so that a purge never holds the writer for long.
const PURGE_BATCH: u32 = 200;

/// Where other processes leave notes for a node, such as "stop this run".
pub(crate) fn control_stream(node: &NodeId) -> StreamId {
    StreamId::new(format!("node/{node}"))
}

/// A joined node. Dropping it does not stop it; `leave` does.
pub struct Node {
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Node {
    /// Starts to carry runs in this process.
    pub fn start(app: App) -> Self {
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        tasks.spawn(live(app, stop.clone()));
        tasks.close();
        Self { stop, tasks }
    }

    /// Gives the runs back to the queue and the lease up, so that others need not wait.
    pub async fn leave(self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

/// Joins, works until the lease is lost, and joins again, until stopped.
async fn live(app: App, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let joined = match join(&app).await {
            Ok(joined) => joined,
            Err(error) => {
                tracing::warn!(%error, "cannot join as a worker; trying again");
                let _ = tokio::time::timeout(Duration::from_secs(1), stop.cancelled()).await;
                continue;
            }
        };
        let session = Session { app: app.clone(), node: joined.0, guard: joined.1.guard() };
        session.work(&stop).await;
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
struct Session {
    app: App,
    node: NodeId,
    guard: Guard,
}

impl Session {
    async fn work(&self, stop: &CancellationToken) {
        let lost = CancellationToken::new();
        let worker = Arc::new(Worker::new(
            self.app.clone(),
            self.node.clone(),
            self.guard.clone(),
            lost.clone(),
        ));
        let tasks = TaskTracker::new();
        tasks.spawn(Arc::clone(&worker).claim_runs());
        tasks.spawn(Arc::clone(&worker).hear_notes());
        tasks.spawn(sweep(self.app.clone(), lost.clone()));
        tasks.close();
        tokio::select! {
            () = self.keep_lease() => tracing::warn!(node.id = %self.node, "lost the node lease"),
            () = stop.cancelled() => {}
        }
        lost.cancel();
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
        if let Err(error) = requeue_runs_of(&self.app, &self.guard, &self.node).await {
            tracing::warn!(%error, "runs were not handed back; another node will find them");
            return;
        }
        let close = Append { close: true, ..note(&self.node) };
        let _ = self.app.store.commit(Commit::new().append(close)).await;
        if self.app.store.release(&self.guard).await.is_ok() {
            let _ = self.app.store.forget_lease(&self.guard).await;
        }
    }
}

fn note(node: &NodeId) -> Append {
    Append::new(TenantId::system(), control_stream(node), Vec::new())
}

/// Finds nodes that are gone and puts their runs back; removes events past their keeping.
async fn sweep(app: App, lost: CancellationToken) {
    let pause = app.options.node_lease / 5;
    while !lost.is_cancelled() {
        if let Err(error) = sweep_once(&app).await {
            tracing::warn!(%error, "sweep failed; trying again");
        }
        let _ = tokio::time::timeout(pause, lost.cancelled()).await;
    }
}

async fn sweep_once(app: &App) -> Result<(), AppError> {
    for lease in app.store.lapsed_leases(LEASE_PREFIX).await? {
        let guard = lease.guard();
        if let Ok(node) = lease.owner.parse::<NodeId>() {
            requeue_runs_of(app, &guard, &node).await?;
            let close = Append { close: true, ..note(&node) };
            let _ = app.store.commit(Commit::new().append(close)).await;
        }
        app.store.forget_lease(&guard).await?;
    }
    let kept = i64::try_from(app.options.retention.as_millis()).unwrap_or(i64::MAX);
    let before = app.store.now().await?.as_millis().saturating_sub(kept);
    app.store.purge(shikiri_model::time::Timestamp::from_millis(before), PURGE_BATCH).await?;
    Ok(())
}

async fn requeue_runs_of(app: &App, guard: &Guard, node: &NodeId) -> Result<(), AppError> {
    loop {
        let query = RecordQuery {
            kind: Run::KIND,
            owner: Some(node.to_string()),
            state: Some(RunStatus::Running.as_str().to_owned()),
            limit: 100,
            ..RecordQuery::default()
        };
        let records = app.store.list(query).await?;
        if records.is_empty() {
            return Ok(());
        }
        tracing::info!(node.id = %node, lease = %guard.name, "putting {} runs back", records.len());
        for record in &records {
            let run: Run = store::decode::<Run>(record)?.value;
            lose(app, &run.tenant, &run.id, node).await?;
        }
    }
}

/// Puts one run back in the queue. A run that is not the node's any more needs nothing.
pub(super) async fn lose(
    app: &App,
    tenant: &TenantId,
    run: &RunId,
    node: &NodeId,
) -> Result<(), AppError> {
    let command = |_: &Run| Command::Lose { node: node.clone() };
    match app.change_run(tenant, run, None, command).await {
        Ok(_) | Err(AppError::NotNow(_) | AppError::NotFound { .. }) => Ok(()),
        Err(other) => Err(other),
    }
}
