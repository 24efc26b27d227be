//! `Teams`: the service that the REST API, the MCP endpoint and the command line call.

use std::sync::Arc;

use shikiri_executions::Executions;
use shikiri_model::team::TeamLimits;
use shikiri_runtime::Runtime;
use shikiri_tenancy::Tenancy;

use crate::delivery_receipt::DeliveryTracker;
use crate::login_throttle::LoginThrottle;

/// Projects, agents and tasks; logins; delegations and dialogues.
#[derive(Clone)]
pub struct Teams {
    pub(crate) runtime: Runtime,
    pub(crate) tenancy: Tenancy,
    pub(crate) executions: Executions,
    /// How long sessions, delegations and dialogues may stay open.
    pub(crate) limits: Arc<TeamLimits>,
    pub(crate) arrivals: Arc<DeliveryTracker>,
    pub(crate) login_throttle: Arc<LoginThrottle>,
}

impl Teams {
    pub fn new(tenancy: Tenancy, executions: Executions, limits: TeamLimits) -> Self {
        Self {
            runtime: tenancy.runtime().clone(),
            tenancy,
            executions,
            limits: Arc::new(limits),
            arrivals: Arc::default(),
            login_throttle: Arc::default(),
        }
    }

    /// The same service, with its changes made through `runtime`.
    #[must_use]
    pub fn with_runtime(&self, runtime: Runtime) -> Self {
        Self {
            tenancy: self.tenancy.with_runtime(runtime.clone()),
            executions: self.executions.with_runtime(runtime.clone()),
            runtime,
            ..self.clone()
        }
    }

    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }
}
