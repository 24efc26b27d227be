//! The sweep that every node performs: it puts the runs of dead nodes back in the queue, or ends
//! those that cannot be resumed, and removes events that are past their retention.

use std::time::Duration;

use shikiri_model::ids::{NodeId, RunId, TenantId};
use shikiri_model::lease::{Lease, LeaseGuard};
use shikiri_model::record::{Document, RecordQuery};
use shikiri_model::run::{Run, RunCommand, RunError, RunErrorCode, RunStatus};
use shikiri_model::time::Timestamp;
use shikiri_store::{Commit, CommitError, StoreExt, StreamAppend, store};
use tokio_util::sync::CancellationToken;

use super::node::{LEASE_PREFIX, control_stream};
use super::node_directory::delete_node_record;
use super::run_handler::NodeServices;
use crate::error::AppError;
use crate::failpoint;
use crate::runtime::Runtime;

/// Chunks removed at a time, so that a purge never holds the writer for long.
const PURGE_BATCH: u32 = 200;
/// Time for removing events in one sweep. It is short because the runs of dead nodes wait
/// meanwhile.
const PURGE_TIME: Duration = Duration::from_secs(1);

/// Sweeps until this node's own lease is lost.
pub(super) async fn sweep(services: NodeServices, lost: CancellationToken) {
    let pause = services.runtime.options.node_lease / 5;
    while !lost.is_cancelled() {
        if let Err(error) = sweep_once(&services).await {
            tracing::warn!(%error, "sweep failed; trying again");
        }
        let _ = tokio::time::timeout(pause, lost.cancelled()).await;
    }
}

async fn sweep_once(services: &NodeServices) -> Result<(), AppError> {
    for lapsed in services.runtime.store.lapsed_leases(LEASE_PREFIX).await? {
        sweep_node(services, &lapsed).await?;
    }
    purge(&services.runtime).await
}

async fn sweep_node(services: &NodeServices, lapsed: &Lease) -> Result<(), AppError> {
    let node = lapsed.name.strip_prefix(LEASE_PREFIX).and_then(|id| id.parse::<NodeId>().ok());
    let Some(node) = node else {
        return Ok(services.runtime.store.forget_lease(&lapsed.guard()).await?);
    };
    // Taking its lease fences the node: its writes are committed by now, or will be refused.
    let taken = services
        .runtime
        .store
        .try_acquire(&lapsed.name, "sweep", services.runtime.options.node_lease)
        .await;
    let guard = match taken {
        Ok(lease) => lease.guard(),
        // Another node sweeps it.
        Err(CommitError::Lease(_)) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    failpoint::hit("sweep.after_fence");
    requeue_or_abort_runs_of(services, &node).await?;
    failpoint::hit("sweep.after_requeue");
    forget_node(&services.runtime, &guard, &node).await
}

/// Removes the control stream, the record and the lease of a node that has no runs any more.
pub(super) async fn forget_node(
    runtime: &Runtime,
    guard: &LeaseGuard,
    node: &NodeId,
) -> Result<(), AppError> {
    let stream = control_stream(node);
    let close = StreamAppend {
        close: true,
        ..StreamAppend::to_existing(TenantId::system(), stream, Vec::new())
    };
    match runtime.store.commit(Commit::new().append(close)).await {
        // Closed: the stream was never written, or it was closed before.
        Ok(_) | Err(CommitError::Closed(_)) => {}
        Err(error) => return Err(error.into()),
    }
    delete_node_record(runtime, node).await?;
    runtime.store.release(guard).await?;
    Ok(runtime.store.forget_lease(guard).await?)
}

pub(super) async fn requeue_or_abort_runs_of(
    services: &NodeServices,
    node: &NodeId,
) -> Result<(), AppError> {
    loop {
        let query = RecordQuery {
            kind: Run::KIND,
            owner: Some(node.to_string()),
            state: Some(RunStatus::Running.as_str().to_owned()),
            limit: 100,
            ..RecordQuery::default()
        };
        let records = services.runtime.store.list(query).await?;
        let mut put_back = 0;
        for record in &records {
            match store::decode::<Run>(record) {
                Ok(stored) => {
                    requeue_or_abort_run(services, &stored.value.tenant, &stored.value.id, node)
                        .await?;
                    put_back += 1;
                }
                // One unreadable run must not keep the others from being put back.
                Err(error) => {
                    tracing::error!(run.id = %record.key.id, %error, "a run cannot be read");
                }
            }
        }
        if put_back == 0 {
            return abort_waiting_executions_of(services, node).await;
        }
        tracing::info!(node.id = %node, "took {put_back} runs from {node}");
    }
}

/// Ends the executions that waited at this node for their conversation: their requests, with the
/// secrets in them, were in its memory only.
async fn abort_waiting_executions_of(
    services: &NodeServices,
    node: &NodeId,
) -> Result<(), AppError> {
    let query = RecordQuery {
        kind: Run::KIND,
        owner: Some(node.to_string()),
        state: Some(RunStatus::Queued.as_str().to_owned()),
        ..RecordQuery::default()
    };
    let runs = services.runtime.list_all::<Run>(query).await?;
    for run in runs.iter().filter(|run| run.is_waiting_execution()) {
        if let Some(handler) = services.handler(run) {
            let text = "the server at which it waited for its conversation is gone";
            let error = RunError::new(RunErrorCode::Interrupted.as_str(), text);
            handler.abort(run, node, error, None).await?;
        }
    }
    Ok(())
}

/// Losses in a row after which a handler's run is ended: it may be what kills its nodes.
const MOST_LOSSES: u32 = 40;

/// Puts one run back in the queue, or ends it if its handler cannot resume it. A run that the node
/// no longer owns is left alone.
pub(super) async fn requeue_or_abort_run(
    services: &NodeServices,
    tenant: &TenantId,
    run: &RunId,
    node: &NodeId,
) -> Result<(), AppError> {
    let found = match services.runtime.load_run(tenant, run).await {
        Err(AppError::NotFound { .. }) => return Ok(()),
        found => found?,
    };
    if let Some(handler) = services.handler(&found.value)
        && (!found.value.is_resumable() || found.value.losses >= MOST_LOSSES)
    {
        let error =
            RunError::new(RunErrorCode::Interrupted.as_str(), "the server that ran it is gone");
        return handler.abort(&found.value, node, error, None).await;
    }
    let command = |_: &Run| RunCommand::Lose { node: node.clone() };
    match services.runtime.change_run(tenant, run, None, command).await {
        Ok(_) | Err(AppError::NotNow(_) | AppError::NotFound { .. }) => Ok(()),
        Err(other) => Err(other),
    }
}

async fn purge(runtime: &Runtime) -> Result<(), AppError> {
    let retention = i64::try_from(runtime.options.retention.as_millis()).unwrap_or(i64::MAX);
    let before = runtime.store.now().await?.as_millis().saturating_sub(retention);
    let before = Timestamp::from_millis(before);
    let begun = tokio::time::Instant::now();
    while begun.elapsed() < PURGE_TIME {
        let events = runtime.store.purge(before, PURGE_BATCH).await?;
        let hooks = runtime.store.hooks().purge_log(before, PURGE_BATCH).await?;
        if events.max(hooks) < u64::from(PURGE_BATCH) {
            break;
        }
    }
    Ok(())
}
