//! The stored run of a plan.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::plan_file::HostPlan;
use super::synthesis::SynthesisText;
use super::task_result::PlanTaskResult;
use crate::ids::{HostCallId, PlanId, TenantId};
use crate::macros::{document, text_enum};
use crate::record::RecordColumns;
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanRun {
    pub id: PlanId,
    pub tenant: TenantId,
    /// The digest of the plan, for finding an unfinished run of the same plan.
    pub digest: String,
    pub plan: HostPlan,
    pub state: PlanState,
    /// Tasks in the plan's order.
    pub tasks: Vec<PlanTaskRun>,
    pub started_at: Timestamp,
    #[serde(default)]
    pub ended_at: Option<Timestamp>,
    #[serde(default)]
    pub written: Option<SynthesisText>,
}

text_enum! {
    pub enum PlanState {
        Running = "running",
        /// Every task is done.
        Completed = "completed",
        /// A task or a result is missing.
        Failed = "failed",
        Cancelled = "cancelled",
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanTaskRun {
    pub id: String,
    pub state: PlanTaskState,
    /// The number of attempts.
    pub attempts: u32,
    /// The number of retries. Going to another server is not a retry.
    pub retried: u32,
    /// Failures by server.
    #[serde(default)]
    pub failures: BTreeMap<String, u32>,
    /// Why the last attempt failed.
    #[serde(default)]
    pub trouble: Option<String>,
    #[serde(default)]
    pub started_at: Option<Timestamp>,
    #[serde(default)]
    pub ended_at: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum PlanTaskState {
    /// Waits for other tasks, or until a time.
    Waiting {
        #[serde(default)]
        until: Option<Timestamp>,
    },
    Running {
        server: String,
        call: HostCallId,
    },
    Done {
        server: String,
        result: PlanTaskResult,
    },
    Failed {
        reason: String,
        #[serde(default)]
        server: Option<String>,
    },
    /// A task that it needs failed.
    Skipped {
        because: String,
    },
}

impl PlanTaskState {
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Waiting { .. } => "waiting",
            Self::Running { .. } => "running",
            Self::Done { .. } => "done",
            Self::Failed { .. } => "failed",
            Self::Skipped { .. } => "skipped",
        }
    }

    pub fn is_settled(&self) -> bool {
        !matches!(self, Self::Waiting { .. } | Self::Running { .. })
    }
}

impl PlanTaskRun {
    fn new(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            state: PlanTaskState::Waiting { until: None },
            attempts: 0,
            retried: 0,
            failures: BTreeMap::new(),
            trouble: None,
            started_at: None,
            ended_at: None,
        }
    }

    /// From its first start to its end.
    pub fn duration(&self) -> Option<Duration> {
        Some(self.ended_at?.since(self.started_at?))
    }

    /// The server of the present or last attempt.
    pub fn server(&self) -> Option<&str> {
        match &self.state {
            PlanTaskState::Running { server, .. } | PlanTaskState::Done { server, .. } => {
                Some(server)
            }
            PlanTaskState::Failed { server, .. } => server.as_deref(),
            _ => None,
        }
    }
}

impl PlanRun {
    pub fn new(
        id: PlanId,
        tenant: TenantId,
        plan: HostPlan,
        now: Timestamp,
    ) -> Result<Self, serde_json::Error> {
        let tasks = plan.tasks.iter().map(|task| PlanTaskRun::new(&task.id)).collect();
        Ok(Self {
            id,
            tenant,
            digest: plan.digest()?,
            plan,
            state: PlanState::Running,
            tasks,
            started_at: now,
            ended_at: None,
            written: None,
        })
    }

    pub fn task(&self, id: &str) -> Option<&PlanTaskRun> {
        self.tasks.iter().find(|task| task.id == id)
    }

    pub(super) fn task_mut(&mut self, id: &str) -> Option<&mut PlanTaskRun> {
        self.tasks.iter_mut().find(|task| task.id == id)
    }

    pub fn is_running(&self) -> bool {
        self.state == PlanState::Running
    }

    /// Whether every task has ended.
    pub fn is_settled(&self) -> bool {
        self.tasks.iter().all(|task| task.state.is_settled())
    }

    /// Calls without a known end.
    pub fn in_flight(&self) -> Vec<(&str, &str, &HostCallId)> {
        let running = self.tasks.iter().filter_map(|task| match &task.state {
            PlanTaskState::Running { server, call } => {
                Some((task.id.as_str(), server.as_str(), call))
            }
            _ => None,
        });
        running.collect()
    }
}

document!(PlanRun, "host_plan", tenant, id, |plan| RecordColumns {
    state: plan.state.as_str().to_owned(),
    parent: Some(plan.digest.clone()),
    ..RecordColumns::default()
});
