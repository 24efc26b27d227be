//! What any living node does for all: runs of nodes that are gone are put back in the queue, and
//! events past their keeping are removed.

use std::time::Duration;

use shikiri_model::ids::{NodeId, RunId, TenantId};
use shikiri_model::lease::{Guard, Lease};
use shikiri_model::record::{Document, RecordQuery};
use shikiri_model::run::{Command, Run, RunError, RunStatus};
use shikiri_model::time::Timestamp;
use shikiri_store::{Append, Commit, CommitError, StoreExt, store};
use tokio_util::sync::CancellationToken;

use super::node::{LEASE_PREFIX, control_stream};
use crate::app::App;
use crate::error::AppError;
use crate::failpoint;

/// Chunks removed at a time, so that a purge never holds the writer for long.
const PURGE_BATCH: u32 = 200;
/// Time for removing events in one sweep: enough to keep up, and the nodes that are gone wait.
const PURGE_TIME: Duration = Duration::from_secs(1);

/// Sweeps until this node's own lease is lost.
pub(super) async fn sweep(app: App, lost: CancellationToken) {
    let pause = app.options.node_lease / 5;
    while !lost.is_cancelled() {
        if let Err(error) = sweep_once(&app).await {
            tracing::warn!(%error, "sweep failed; trying again");
        }
        let _ = tokio::time::timeout(pause, lost.cancelled()).await;
    }
}

async fn sweep_once(app: &App) -> Result<(), AppError> {
    for lapsed in app.store.lapsed_leases(LEASE_PREFIX).await? {
        sweep_node(app, &lapsed).await?;
    }
    app.sweep_connections().await?;
    purge(app).await
}

async fn sweep_node(app: &App, lapsed: &Lease) -> Result<(), AppError> {
    let node = lapsed.name.strip_prefix(LEASE_PREFIX).and_then(|id| id.parse::<NodeId>().ok());
    let Some(node) = node else { return Ok(app.store.forget_lease(&lapsed.guard()).await?) };
    // Taking its lease fences the node: what it had under way is committed by now, or refused.
    let taken = app.store.try_acquire(&lapsed.name, "sweep", app.options.node_lease).await;
    let guard = match taken {
        Ok(lease) => lease.guard(),
        // Another node sweeps it.
        Err(CommitError::Lease(_)) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    failpoint::hit("sweep.after_fence");
    requeue_runs_of(app, &node).await?;
    failpoint::hit("sweep.after_requeue");
    forget_node(app, &guard, &node).await
}

/// Removes what is left of a node that carries nothing any more.
pub(super) async fn forget_node(app: &App, guard: &Guard, node: &NodeId) -> Result<(), AppError> {
    let stream = control_stream(node);
    let close =
        Append { close: true, ..Append::to_existing(TenantId::system(), stream, Vec::new()) };
    match app.store.commit(Commit::new().append(close)).await {
        // Closed: nobody ever left it a note, or it was closed before.
        Ok(_) | Err(CommitError::Closed(_)) => {}
        Err(error) => return Err(error.into()),
    }
    app.store.release(guard).await?;
    Ok(app.store.forget_lease(guard).await?)
}

pub(super) async fn requeue_runs_of(app: &App, node: &NodeId) -> Result<(), AppError> {
    loop {
        let query = RecordQuery {
            kind: Run::KIND,
            owner: Some(node.to_string()),
            state: Some(RunStatus::Running.as_str().to_owned()),
            limit: 100,
            ..RecordQuery::default()
        };
        let records = app.store.list(query).await?;
        let mut put_back = 0;
        for record in &records {
            match store::decode::<Run>(record) {
                Ok(stored) => {
                    lose(app, &stored.value.tenant, &stored.value.id, node).await?;
                    put_back += 1;
                }
                // It must not keep the others from being put back.
                Err(error) => {
                    tracing::error!(run.id = %record.key.id, %error, "a run cannot be read");
                }
            }
        }
        if put_back == 0 {
            return Ok(());
        }
        tracing::info!(node.id = %node, "took {put_back} runs from {node}");
    }
}

/// Executions that lost so many nodes in a row are ended: they may be what ends the nodes.
const MOST_LOSSES: u32 = 40;

/// Puts one run back in the queue; an execution that cannot go on is ended. A run that is not the
/// node's any more needs nothing.
pub(super) async fn lose(
    app: &App,
    tenant: &TenantId,
    run: &RunId,
    node: &NodeId,
) -> Result<(), AppError> {
    let found = match app.load_run(tenant, run).await {
        Err(AppError::NotFound { .. }) => return Ok(()),
        found => found?,
    };
    let is_execution = found.value.execution.is_some();
    if is_execution && (!found.value.goes_on() || found.value.losses >= MOST_LOSSES) {
        let gone = RunError::new("INTERRUPTED", "the server that ran it is gone");
        return app.abort_execution(tenant, run, node, gone, None).await;
    }
    let command = |_: &Run| Command::Lose { node: node.clone() };
    match app.change_run(tenant, run, None, command).await {
        Ok(_) | Err(AppError::NotNow(_) | AppError::NotFound { .. }) => Ok(()),
        Err(other) => Err(other),
    }
}

async fn purge(app: &App) -> Result<(), AppError> {
    let kept = i64::try_from(app.options.retention.as_millis()).unwrap_or(i64::MAX);
    let before = app.store.now().await?.as_millis().saturating_sub(kept);
    let before = Timestamp::from_millis(before);
    let begun = tokio::time::Instant::now();
    while begun.elapsed() < PURGE_TIME {
        let events = app.store.purge(before, PURGE_BATCH).await?;
        let hooks = app.store.hooks().purge_log(before, PURGE_BATCH).await?;
        if events.max(hooks) < u64::from(PURGE_BATCH) {
            break;
        }
    }
    Ok(())
}
