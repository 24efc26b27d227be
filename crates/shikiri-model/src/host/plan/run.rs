//! A plan that is being carried out, as it is kept.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::file::Plan;
use super::result::TaskResult;
use super::synthesis::Written;
use crate::ids::{HostCallId, PlanId, TenantId};
use crate::record::{Columns, Document};
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanRun {
    pub id: PlanId,
    pub tenant: TenantId,
    /// Of the plan: by it an unfinished run of the same plan is found.
    pub digest: String,
    pub plan: Plan,
    pub state: PlanState,
    /// In the plan's order.
    pub tasks: Vec<TaskRun>,
    pub started_at: Timestamp,
    #[serde(default)]
    pub ended_at: Option<Timestamp>,
    #[serde(default)]
    pub written: Option<Written>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanState {
    Running,
    /// Every task is done.
    Completed,
    /// Something is missing.
    Failed,
    Cancelled,
}

impl PlanState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskRun {
    pub id: String,
    pub state: TaskState,
    /// How often it was started.
    pub attempts: u32,
    /// How many of its retries are used up: going to another server is none.
    pub retried: u32,
    /// How often each server failed it.
    #[serde(default)]
    pub failures: BTreeMap<String, u32>,
    /// Why the last try came to nothing.
    #[serde(default)]
    pub trouble: Option<String>,
    #[serde(default)]
    pub started_at: Option<Timestamp>,
    #[serde(default)]
    pub ended_at: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum TaskState {
    /// For what it needs, or until a time.
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
        result: TaskResult,
    },
    Failed {
        reason: String,
        #[serde(default)]
        server: Option<String>,
    },
    /// Something that it needs failed.
    Skipped {
        because: String,
    },
}

impl TaskState {
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

impl TaskRun {
    fn new(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            state: TaskState::Waiting { until: None },
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

    /// Who has it, or had it last.
    pub fn server(&self) -> Option<&str> {
        match &self.state {
            TaskState::Running { server, .. } | TaskState::Done { server, .. } => Some(server),
            TaskState::Failed { server, .. } => server.as_deref(),
            _ => None,
        }
    }
}

impl PlanRun {
    pub fn new(
        id: PlanId,
        tenant: TenantId,
        plan: Plan,
        now: Timestamp,
    ) -> Result<Self, serde_json::Error> {
        let tasks = plan.tasks.iter().map(|task| TaskRun::new(&task.id)).collect();
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

    pub fn task(&self, id: &str) -> Option<&TaskRun> {
        self.tasks.iter().find(|task| task.id == id)
    }

    pub(super) fn task_mut(&mut self, id: &str) -> Option<&mut TaskRun> {
        self.tasks.iter_mut().find(|task| task.id == id)
    }

    pub fn is_running(&self) -> bool {
        self.state == PlanState::Running
    }

    /// Whether every task has come to an end.
    pub fn is_settled(&self) -> bool {
        self.tasks.iter().all(|task| task.state.is_settled())
    }

    /// Calls that were made and whose end is not known.
    pub fn in_flight(&self) -> Vec<(&str, &str, &HostCallId)> {
        let running = self.tasks.iter().filter_map(|task| match &task.state {
            TaskState::Running { server, call } => Some((task.id.as_str(), server.as_str(), call)),
            _ => None,
        });
        running.collect()
    }
}

impl Document for PlanRun {
    const KIND: &'static str = "host_plan";

    fn tenant(&self) -> TenantId {
        self.tenant.clone()
    }

    fn id(&self) -> &str {
        self.id.as_str()
    }

    fn columns(&self) -> Columns {
        Columns {
            state: self.state.as_str().to_owned(),
            parent: Some(self.digest.clone()),
            ..Columns::default()
        }
    }
}
