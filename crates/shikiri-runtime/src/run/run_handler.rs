//! What domains register with a node: how runs of their kind are executed, and what every node does
//! in the background.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use shikiri_model::ids::NodeId;
use shikiri_model::lease::{Lease, LeaseGuard};
use shikiri_model::record::StoredDocument;
use shikiri_model::run::{NodeProcess, Run, RunError};
use tokio_util::sync::CancellationToken;

use crate::error::AppError;
use crate::runtime::Runtime;

/// The signals that end an attempt from outside.
#[derive(Clone)]
pub struct StopSignals {
    /// A caller cancelled the run.
    pub cancel: CancellationToken,
    /// This node is stopping, or lost its lease.
    pub lost: CancellationToken,
}

/// Executes runs of one kind that are not journaled agents.
#[async_trait]
pub trait RunHandler: Send + Sync + 'static {
    /// Whether the run is of this handler's kind.
    fn handles(&self, run: &Run) -> bool;

    /// Continues a run that another process began, to its end. `node` guards every write.
    async fn resume(
        &self,
        started: &StoredDocument<Run>,
        node: LeaseGuard,
        stops: StopSignals,
    ) -> Result<(), AppError>;

    /// Ends a run that cannot continue: its node is gone, or its work failed unexpectedly. Does
    /// nothing if `node` no longer owns it.
    async fn abort(
        &self,
        run: &Run,
        node: &NodeId,
        error: RunError,
        guard: Option<&LeaseGuard>,
    ) -> Result<(), AppError>;
}

/// The work of a new run, executed in the process that started it.
#[async_trait]
pub trait RunJob: Send {
    /// `leases` are those that the starting commit took.
    async fn execute(
        self: Box<Self>,
        started: &StoredDocument<Run>,
        node: LeaseGuard,
        leases: &[Lease],
        stops: StopSignals,
    ) -> Result<(), AppError>;
}

/// A task that every node performs in the background, such as expiring what is due.
#[async_trait]
pub trait BackgroundTask: Send + Sync + 'static {
    /// Returns when `stop` is cancelled.
    async fn run(&self, stop: CancellationToken);
}

/// A node's runtime and what the domains registered.
#[derive(Clone)]
pub struct NodeServices {
    pub runtime: Runtime,
    pub handlers: Vec<Arc<dyn RunHandler>>,
    pub tasks: Vec<Arc<dyn BackgroundTask>>,
    pub place: NodePlace,
}

/// What a node tells other processes about itself.
#[derive(Clone, Debug)]
pub struct NodePlace {
    pub process: NodeProcess,
    /// Where it listens, if it is a server.
    pub address: Option<SocketAddr>,
}

impl NodeServices {
    pub(super) fn handler(&self, run: &Run) -> Option<&Arc<dyn RunHandler>> {
        self.handlers.iter().find(|handler| handler.handles(run))
    }
}
