//! `Tenancy`: the service that the doors and the other domains call.

use std::sync::Arc;
use std::time::Duration;

use shikiri_runtime::Runtime;

use crate::connections::ConnectionCounts;
use crate::slot_pool::SlotPool;

/// How long connections of MCP clients are kept, and how many.
#[derive(Clone, Debug)]
pub struct ConnectionOptions {
    /// How long a connection may be idle before it ends.
    pub idle: Duration,
    /// Connections that one principal may have. One more ends the one that was idle longest.
    pub max_per_principal: usize,
}

impl Default for ConnectionOptions {
    fn default() -> Self {
        Self { idle: Duration::from_secs(24 * 3_600), max_per_principal: 4_096 }
    }
}

/// Tenants, keys, limits, models, usage, and connections of MCP clients.
#[derive(Clone)]
pub struct Tenancy {
    pub(crate) runtime: Runtime,
    pub(crate) options: Arc<ConnectionOptions>,
    pub(crate) connection_counts: Arc<ConnectionCounts>,
    execution_slots: Arc<SlotPool>,
}

impl Tenancy {
    pub fn new(runtime: Runtime, options: ConnectionOptions) -> Self {
        Self {
            runtime,
            options: Arc::new(options),
            connection_counts: Arc::default(),
            execution_slots: Arc::new(SlotPool::new("executions", usize::MAX)),
        }
    }

    /// The same service, whose changes are made through `runtime`.
    #[must_use]
    pub fn with_runtime(&self, runtime: Runtime) -> Self {
        Self { runtime, ..self.clone() }
    }

    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Slots for executions: how many of its limit a tenant has in use on this node.
    pub fn execution_slots(&self) -> &Arc<SlotPool> {
        &self.execution_slots
    }
}
