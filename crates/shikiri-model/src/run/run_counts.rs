//! The number of a tenant's runs by status. The store keeps it as totals: each commit that changes
//! a run's status adds to them, so that no question about numbers reads the runs.

use super::{Run, RunStatus};
use crate::record::{Document, RecordKey};
use crate::total::{StoredTotal, TotalKey};

/// The kind of the totals that count runs.
pub const RUN_COUNTS: &str = "run_count";

const AGENT: &str = "agent";
const EXECUTION: &str = "execution";

/// How many runs of a tenant have which status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunCounts {
    /// Runs of agents.
    pub agents: StatusCounts,
    /// Runs that are executions.
    pub executions: StatusCounts,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatusCounts {
    pub queued: u64,
    pub running: u64,
    pub waiting: u64,
    pub completed: u64,
    pub failed: u64,
    pub cancelled: u64,
}

/// The total that counts this record while it has this state; None for other records than runs.
pub fn count_key(key: &RecordKey, state: &str) -> Option<TotalKey> {
    if key.kind != Run::KIND {
        return None;
    }
    let what = if key.id.starts_with("exe_") { EXECUTION } else { AGENT };
    Some(TotalKey {
        kind: RUN_COUNTS,
        tenant: key.tenant.clone(),
        period: String::new(),
        name: format!("{what} {state}"),
    })
}

impl RunCounts {
    pub fn from_totals(totals: &[StoredTotal]) -> Self {
        let count = |what: &str, status: RunStatus| {
            let name = format!("{what} {}", status.as_str());
            let parts = totals.iter().filter(|total| total.name == name);
            let sum: i128 = parts.filter_map(|total| total.value.amounts.first()).sum();
            u64::try_from(sum).unwrap_or(0)
        };
        let counts = |what: &str| StatusCounts {
            queued: count(what, RunStatus::Queued),
            running: count(what, RunStatus::Running),
            waiting: count(what, RunStatus::Waiting),
            completed: count(what, RunStatus::Completed),
            failed: count(what, RunStatus::Failed),
            cancelled: count(what, RunStatus::Cancelled),
        };
        Self { agents: counts(AGENT), executions: counts(EXECUTION) }
    }
}

impl StatusCounts {
    pub fn of(&self, status: RunStatus) -> u64 {
        match status {
            RunStatus::Queued => self.queued,
            RunStatus::Running => self.running,
            RunStatus::Waiting => self.waiting,
            RunStatus::Completed => self.completed,
            RunStatus::Failed => self.failed,
            RunStatus::Cancelled => self.cancelled,
        }
    }

    /// Runs that have not ended.
    pub fn open(&self) -> u64 {
        self.queued + self.running + self.waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::TenantId;
    use crate::total::TotalValue;

    #[test]
    fn runs_are_counted_by_status_and_executions_apart() {
        let key = |kind, id: &str| RecordKey { kind, tenant: TenantId::local(), id: id.to_owned() };
        assert_eq!(count_key(&key("task", "exe_1"), "failed"), None);
        let total = |id, state, amount| StoredTotal {
            period: String::new(),
            name: count_key(&key("run", id), state).unwrap().name,
            value: TotalValue::of(vec![amount]),
        };
        // One total may lie in several parts, of which one is below zero.
        let totals = [
            total("run_1", "waiting", 5),
            total("run_2", "waiting", -2),
            total("exe_1", "failed", 7),
        ];
        let counts = RunCounts::from_totals(&totals);
        assert_eq!((counts.agents.waiting, counts.agents.open()), (3, 3));
        assert_eq!(counts.executions, StatusCounts { failed: 7, ..StatusCounts::default() });
        assert_eq!(counts.executions.of(RunStatus::Failed), 7);
    }
}
