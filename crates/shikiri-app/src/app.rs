//! `App`: the services of all domains, as the doors use them.

use std::sync::Arc;

use shikiri_executions::execution::EngineRegistry;
use shikiri_executions::{ExecutionOptions, Executions};
use shikiri_lanes::{LaneOptions, LaneRuntime, LaneSweep, Lanes, NoBrowser};
use shikiri_model::audit::AuditOrigin;
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

/// The options of all domains.
#[derive(Clone, Debug, Default)]
pub struct AppOptions {
    pub runtime: RuntimeOptions,
    pub connections: ConnectionOptions,
    pub executions: ExecutionOptions,
    /// How long sessions, delegations and dialogues of teams may stay open.
    pub team: TeamLimits,
    pub lanes: LaneOptions,
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
        let runtime = Runtime::new(store, agents, options.runtime.clone());
        let tenancy = Tenancy::new(runtime.clone(), options.connections.clone());
        let engines = EngineRegistry::default();
        let executions = Executions::new(tenancy.clone(), engines, options.executions.clone());
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
