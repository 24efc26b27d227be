//! `Executions`: the service that the HTTP, MCP and team layers call.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use shikiri_model::confinement::ConfinementPolicy;
use shikiri_model::ids::NodeId;
use shikiri_model::lease::{Lease, LeaseGuard};
use shikiri_model::record::StoredDocument;
use shikiri_model::run::{Run, RunError};
use shikiri_runtime::run::{RunHandler, RunJob, StopSignals};
use shikiri_runtime::{AppError, Runtime};
use shikiri_tenancy::Tenancy;

use crate::execution::{EngineRegistry, ExecutionJob, WaitingLines, execute_job, resume_execution};
use crate::workspace::SharedWorkspaceState;

#[derive(Clone, Debug)]
pub struct ExecutionOptions {
    /// The size in bytes above which a workspace refuses uploads.
    pub max_workspace: u64,
    /// How long an engine may work on one execution.
    pub timeout: Duration,
    /// How long a request waits for its conversation.
    pub lock_wait: Duration,
    /// How long a conversation stays locked by an execution that no longer renews the lock.
    pub lock_lease: Duration,
    /// The part of this process's environment that engines see.
    pub engine_env: EnvironmentVariables,
    /// The confinement that engines must have.
    pub confinement_policy: ConfinementPolicy,
}

/// Environment variables. Their values may be secrets, so `Debug` shows only the names.
#[derive(Clone, Default)]
pub struct EnvironmentVariables(pub BTreeMap<String, String>);

impl fmt::Debug for EnvironmentVariables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Default for ExecutionOptions {
    fn default() -> Self {
        Self {
            max_workspace: 1024 * 1024 * 1024,
            timeout: Duration::from_secs(300),
            lock_wait: Duration::from_secs(5),
            lock_lease: Duration::from_secs(600),
            engine_env: EnvironmentVariables::default(),
            confinement_policy: ConfinementPolicy::default(),
        }
    }
}

/// Conversations and their turns, with the servers, skills and files that a turn needs.
#[derive(Clone)]
pub struct Executions {
    pub(crate) runtime: Runtime,
    pub(crate) tenancy: Tenancy,
    pub(crate) options: Arc<ExecutionOptions>,
    pub(crate) engines: EngineRegistry,
    pub(crate) workspaces: Arc<SharedWorkspaceState>,
    pub(crate) waiting: Arc<WaitingLines>,
}

impl Executions {
    pub fn new(tenancy: Tenancy, engines: EngineRegistry, options: ExecutionOptions) -> Self {
        Self {
            runtime: tenancy.runtime().clone(),
            tenancy,
            options: Arc::new(options),
            engines,
            workspaces: Arc::default(),
            waiting: Arc::default(),
        }
    }

    /// The same service on another `runtime`.
    #[must_use]
    pub fn with_runtime(&self, runtime: Runtime) -> Self {
        let tenancy = self.tenancy.with_runtime(runtime.clone());
        Self { runtime, tenancy, ..self.clone() }
    }

    /// The same service with these engines.
    #[must_use]
    pub fn with_engines(self, engines: EngineRegistry) -> Self {
        Self { engines, ..self }
    }

    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    pub fn tenancy(&self) -> &Tenancy {
        &self.tenancy
    }

    pub fn options(&self) -> &ExecutionOptions {
        &self.options
    }
}

#[async_trait]
impl RunHandler for Executions {
    fn handles(&self, run: &Run) -> bool {
        run.execution.is_some()
    }

    async fn resume(
        &self,
        started: &StoredDocument<Run>,
        node: LeaseGuard,
        stops: StopSignals,
    ) -> Result<(), AppError> {
        resume_execution(self, started, node, stops).await
    }

    async fn abort(
        &self,
        run: &Run,
        node: &NodeId,
        error: RunError,
        guard: Option<&LeaseGuard>,
    ) -> Result<(), AppError> {
        self.abort_execution(&run.tenant, &run.id, node, error, guard).await
    }
}

#[async_trait]
impl RunJob for ExecutionJob {
    async fn execute(
        self: Box<Self>,
        started: &StoredDocument<Run>,
        node: LeaseGuard,
        leases: &[Lease],
        stops: StopSignals,
    ) -> Result<(), AppError> {
        let Some(lock) = leases.first().map(Lease::guard) else {
            return Err(AppError::Broken("an execution was started without its lock".to_owned()));
        };
        let executions = self.executions.clone();
        execute_job(&executions, started, *self, node, lock, stops).await
    }
}
