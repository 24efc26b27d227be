//! `App`: the services of all domains, as the doors use them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use shikiri_executions::execution::EngineRegistry;
use shikiri_executions::{EnvironmentVariables, ExecutionOptions, Executions};
use shikiri_lanes::{LaneOptions, LaneRuntime, LaneSweep, Lanes, NoBrowser};
use shikiri_model::audit::AuditOrigin;
use shikiri_model::confinement::ConfinementPolicy;
use shikiri_model::run::NodeProcess;
use shikiri_model::team::TeamLimits;
use shikiri_runtime::run::{DurableAgent, NodePlace, NodeServices, WorkerNode};
use shikiri_runtime::sealing::SealingKeys;
use shikiri_runtime::{Runtime, RuntimeOptions};
use shikiri_store::Store;
use shikiri_subagents::{HookFiles, Subagents};
use shikiri_teams::{ExpiryTask, Teams};
use shikiri_tenancy::connections::ConnectionSweep;
use shikiri_tenancy::{ConnectionOptions, Tenancy};

/// The settings of all domains.
#[derive(Clone, Debug)]
pub struct AppOptions {
    /// After this long without renewal, a node's runs are taken over.
    pub node_lease: Duration,
    /// Runs that one node works on at once.
    pub max_runs: usize,
    /// How long a run that was asked to stop may take to do so.
    pub cancel_grace: Duration,
    /// Events of ended streams are kept this long.
    pub retention: Duration,
    /// How long a connection may be idle before it ends.
    pub connection_idle: Duration,
    /// Connections that one principal may have. One more ends the one that was idle longest.
    pub max_connections: usize,
    /// The folder for files of conversations and engines. Without it there are none.
    pub data: Option<PathBuf>,
    /// Bytes in a workspace above which nothing more can be uploaded.
    pub max_workspace: u64,
    /// How long an engine may work on one execution.
    pub execution_timeout: Duration,
    /// How long a node that leaves waits for executions to end by themselves.
    pub drain_wait: Duration,
    /// How long a request waits for its conversation.
    pub lock_wait: Duration,
    /// How long a conversation stays locked by an execution that does not renew it.
    pub lock_lease: Duration,
    /// What engines see of this process's environment.
    pub engine_env: EnvironmentVariables,
    /// The confinement that engines must have.
    pub confinement_policy: ConfinementPolicy,
    /// How long sessions, delegations and dialogues of teams may stay open.
    pub team: TeamLimits,
    pub lanes: LaneOptions,
}

impl Default for AppOptions {
    fn default() -> Self {
        let (runtime, connections) = (RuntimeOptions::default(), ConnectionOptions::default());
        let executions = ExecutionOptions::default();
        Self {
            node_lease: runtime.node_lease,
            max_runs: runtime.max_runs,
            cancel_grace: runtime.cancel_grace,
            retention: runtime.retention,
            connection_idle: connections.idle,
            max_connections: connections.max_per_principal,
            data: runtime.data,
            max_workspace: executions.max_workspace,
            execution_timeout: executions.timeout,
            drain_wait: runtime.drain_wait,
            lock_wait: executions.lock_wait,
            lock_lease: executions.lock_lease,
            engine_env: executions.engine_env,
            confinement_policy: executions.confinement_policy,
            team: TeamLimits::default(),
            lanes: LaneOptions::default(),
        }
    }
}

impl AppOptions {
    fn runtime(&self) -> RuntimeOptions {
        RuntimeOptions {
            node_lease: self.node_lease,
            max_runs: self.max_runs,
            cancel_grace: self.cancel_grace,
            retention: self.retention,
            drain_wait: self.drain_wait,
            data: self.data.clone(),
        }
    }

    fn connections(&self) -> ConnectionOptions {
        ConnectionOptions { idle: self.connection_idle, max_per_principal: self.max_connections }
    }

    fn executions(&self) -> ExecutionOptions {
        ExecutionOptions {
            max_workspace: self.max_workspace,
            timeout: self.execution_timeout,
            lock_wait: self.lock_wait,
            lock_lease: self.lock_lease,
            engine_env: self.engine_env.clone(),
            confinement_policy: self.confinement_policy,
        }
    }
}

/// Cheap to clone: the clones share everything but the origin of their changes.
#[derive(Clone)]
pub struct App {
    pub runtime: Runtime,
    pub tenancy: Tenancy,
    pub executions: Executions,
    pub teams: Teams,
    pub lanes: Lanes,
    pub subagents: Subagents,
    options: Arc<AppOptions>,
}

impl App {
    /// Services without engines, without pages for lanes and without hook files.
    pub fn new(
        store: Arc<dyn Store>,
        agents: Vec<Arc<dyn DurableAgent>>,
        options: AppOptions,
    ) -> Self {
        let runtime = Runtime::new(store, agents, options.runtime());
        let tenancy = Tenancy::new(runtime.clone(), options.connections());
        let engines = EngineRegistry::default();
        let executions = Executions::new(tenancy.clone(), engines, options.executions());
        let teams = Teams::new(tenancy.clone(), executions.clone(), options.team.clone());
        let lane_runtime = LaneRuntime::new(Arc::new(NoBrowser), options.lanes.clone());
        let lanes = Lanes::new(runtime.clone(), Arc::new(lane_runtime));
        let subagents = Subagents::new(tenancy.clone(), None);
        Self { runtime, tenancy, executions, teams, lanes, subagents, options: Arc::new(options) }
    }

    /// With engines for executions.
    #[must_use]
    pub fn with_engines(mut self, engines: EngineRegistry) -> Self {
        self.executions = self.executions.with_engines(engines);
        let (tenancy, limits) = (self.tenancy.clone(), self.options.team.clone());
        self.teams = Teams::new(tenancy, self.executions.clone(), limits);
        self
    }

    /// With the lanes of this process, which all agents that ask share.
    #[must_use]
    pub fn with_lanes(mut self, lanes: Arc<LaneRuntime>) -> Self {
        self.lanes = Lanes::new(self.runtime.clone(), lanes);
        self
    }

    /// With a key that seals the secrets of records.
    #[must_use]
    pub fn with_sealing(self, keys: Arc<SealingKeys>) -> Self {
        let runtime = self.runtime.clone().with_sealing(keys);
        self.with_runtime(runtime)
    }

    /// With access to the files that hooks need.
    #[must_use]
    pub fn with_hook_files(mut self, files: Arc<dyn HookFiles>) -> Self {
        self.subagents = Subagents::new(self.tenancy.clone(), Some(files));
        self
    }

    /// The same app, whose changes are audited as made by `origin`.
    #[must_use]
    pub fn acting_as(&self, origin: AuditOrigin) -> Self {
        self.clone().with_runtime(self.runtime.acting_as(origin))
    }

    fn with_runtime(self, runtime: Runtime) -> Self {
        Self {
            tenancy: self.tenancy.with_runtime(runtime.clone()),
            executions: self.executions.with_runtime(runtime.clone()),
            teams: self.teams.with_runtime(runtime.clone()),
            lanes: self.lanes.with_runtime(runtime.clone()),
            subagents: self.subagents.with_runtime(runtime.clone()),
            runtime,
            options: self.options,
        }
    }

    pub fn options(&self) -> &AppOptions {
        &self.options
    }

    /// Joins as a node that executes runs: those started here and those in the queue.
    pub fn start_worker(&self) -> WorkerNode {
        self.start_worker_at(NodePlace { process: NodeProcess::Server, address: None })
    }

    /// The same, telling others which process it is and where it answers.
    pub fn start_worker_at(&self, place: NodePlace) -> WorkerNode {
        self.executions.empty_trash();
        WorkerNode::start(self.node_services(place))
    }

    /// Executes only the runs that are started in this process, and leaves the queue to other
    /// nodes: for a process that will soon end.
    pub fn start_own_worker(&self) -> WorkerNode {
        let place = NodePlace { process: NodeProcess::Command, address: None };
        WorkerNode::start_for_own(self.node_services(place))
    }

    fn node_services(&self, place: NodePlace) -> NodeServices {
        NodeServices {
            runtime: self.runtime.clone(),
            handlers: vec![Arc::new(self.executions.clone())],
            tasks: vec![
                Arc::new(ConnectionSweep(self.tenancy.clone())),
                Arc::new(ExpiryTask(self.teams.clone())),
                Arc::new(LaneSweep(self.lanes.clone())),
            ],
            place,
        }
    }
}
