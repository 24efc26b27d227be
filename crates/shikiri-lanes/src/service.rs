//! `Lanes`: the service that the REST API, the MCP endpoint and the asking agents call.

use std::sync::Arc;

use shikiri_runtime::Runtime;

use crate::{LaneOptions, LaneRuntime};

/// Lanes, questions and history.
#[derive(Clone)]
pub struct Lanes {
    pub(crate) runtime: Runtime,
    pub(crate) lanes: Arc<LaneRuntime>,
}

impl Lanes {
    pub fn new(runtime: Runtime, lanes: Arc<LaneRuntime>) -> Self {
        Self { runtime, lanes }
    }

    /// The same service, with its changes made through `runtime`.
    #[must_use]
    pub fn with_runtime(&self, runtime: Runtime) -> Self {
        Self { runtime, lanes: Arc::clone(&self.lanes) }
    }

    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    pub fn options(&self) -> &LaneOptions {
        &self.lanes.options
    }
}
