//! Decides which tasks start, at which servers, and what follows from their outcomes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Map, Value};

use super::plan_file::PlanTask;
use super::plan_run::{PlanRun, PlanState, PlanTaskRun, PlanTaskState};
use super::result_reference::fill;
use super::task_result::PlanTaskResult;
use crate::ids::HostCallId;
use crate::time::Timestamp;

/// The most parallel tasks of one plan.
pub const MAX_PARALLEL: usize = 16;
/// Attempts to reach a server that is down, even for a task without retries: the tool has not run
/// yet.
const MIN_LOOKS: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The servers that offer each tool, as far as known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolOffers {
    /// Servers by tool, in the order of the configuration.
    pub tools: BTreeMap<String, Vec<String>>,
    /// Servers that did not answer. They may offer any tool.
    pub silent: BTreeSet<String>,
}

/// The outcome of one attempt of a task.
#[derive(Clone, Debug, PartialEq)]
pub enum PlanTaskOutcome {
    Answered(PlanTaskResult),
    /// The tool ran and reported an error.
    ToolFailed {
        reason: String,
    },
    TimedOut {
        reason: String,
    },
    /// The server is gone or refused. `sent`: the tool may have run.
    ServerFailed {
        reason: String,
        sent: bool,
    },
    Cancelled,
}

/// The decision after an outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanTaskDecision {
    Done,
    /// Start again at once, at another server.
    Rerouted,
    /// Start again after a pause.
    Again(Duration),
    Failed,
}

impl ToolOffers {
    /// The servers for a task, preferred ones first.
    fn candidates<'a>(&'a self, task: &'a PlanTask) -> Vec<&'a str> {
        let offering = self.tools.get(&task.tool);
        let offers = |name: &str| offering.is_some_and(|all| all.iter().any(|one| one == name));
        if task.servers.is_empty() {
            return offering.into_iter().flatten().map(String::as_str).collect();
        }
        let named = task.servers.0.iter().map(String::as_str);
        named.filter(|name| offers(name) || self.silent.contains(*name)).collect()
    }
}

impl PlanRun {
    /// Tasks that can start now.
    pub fn ready(&self, now: Timestamp) -> Vec<String> {
        let room = MAX_PARALLEL.saturating_sub(self.in_flight().len());
        let can = |task: &&PlanTaskRun| self.free_at(task).is_some_and(|at| at <= now);
        self.tasks.iter().filter(can).take(room).map(|task| task.id.clone()).collect()
    }

    /// The next time at which a task that only waits for time can start.
    pub fn next_start(&self, now: Timestamp) -> Option<Timestamp> {
        self.tasks.iter().filter_map(|task| self.free_at(task)).filter(|at| *at > now).min()
    }

    /// When a waiting task can start; None while it needs another task.
    fn free_at(&self, task: &PlanTaskRun) -> Option<Timestamp> {
        let PlanTaskState::Waiting { until } = task.state else { return None };
        let needs = self.plan.task(&task.id)?.needs();
        let is_done = |id: &&str| {
            self.task(id).is_some_and(|task| matches!(task.state, PlanTaskState::Done { .. }))
        };
        needs.iter().all(is_done).then(|| until.unwrap_or(self.started_at))
    }

    /// The arguments with their references replaced, or an error that names what is missing.
    pub fn arguments(&self, id: &str) -> Result<Map<String, Value>, String> {
        let Some(task) = self.plan.task(id) else { return Err("it is not in the plan".to_owned()) };
        let filled = task.args.iter().map(|(name, value)| {
            let filled = fill(value, &|reference| {
                let found = match self.task(reference.task).map(|task| &task.state) {
                    Some(PlanTaskState::Done { result, .. }) => {
                        result.value_at_path(&reference.path)
                    }
                    _ => Err("it has no result".to_owned()),
                };
                found.map_err(|why| {
                    format!("`${{{}}}`: {}: {why}", reference.written, reference.task)
                })
            })?;
            Ok((name.clone(), filled))
        });
        filled.collect()
    }

    /// Chooses the server with the fewest failures of this task and the fewest running tasks of
    /// this plan.
    pub fn choose(&self, id: &str, offers: &ToolOffers) -> Option<String> {
        let (task, run) = (self.plan.task(id)?, self.task(id)?);
        let busy = |name: &str| self.in_flight().iter().filter(|(_, at, _)| *at == name).count();
        let failed = |name: &str| run.failures.get(name).copied().unwrap_or(0);
        let candidates = offers.candidates(task);
        let is_free_choice = task.servers.is_empty();
        let best = candidates.into_iter().enumerate().min_by_key(|(place, name)| {
            // Named servers are taken in the order of the plan.
            let busy = if is_free_choice { busy(name) } else { 0 };
            (failed(name), offers.silent.contains(*name), busy, *place)
        });
        best.map(|(_, name)| name.to_owned())
    }

    /// Whether there is another server for the task.
    pub fn has_another(&self, id: &str, besides: &str, offers: &ToolOffers) -> bool {
        let (Some(task), Some(run)) = (self.plan.task(id), self.task(id)) else { return false };
        let is_fresh = |name: &&str| *name != besides && !run.failures.contains_key(*name);
        offers.candidates(task).iter().any(is_fresh)
    }

    pub fn start(&mut self, id: &str, server: &str, call: HostCallId, now: Timestamp) {
        let Some(task) = self.task_mut(id) else { return };
        task.attempts += 1;
        task.started_at.get_or_insert(now);
        task.state = PlanTaskState::Running { server: server.to_owned(), call };
    }

    /// Records the outcome of an attempt. `server` is None if no server was available.
    pub fn apply_outcome(
        &mut self,
        id: &str,
        server: Option<&str>,
        outcome: PlanTaskOutcome,
        offers: &ToolOffers,
        now: Timestamp,
    ) -> PlanTaskDecision {
        let Some(plan) = self.plan.task(id).cloned() else { return PlanTaskDecision::Failed };
        let another = self.has_another(id, server.unwrap_or_default(), offers);
        let is_cancelled = self.state == PlanState::Cancelled;
        let Some(task) = self.task_mut(id) else { return PlanTaskDecision::Failed };
        if let (Some(server), false) = (server, matches!(outcome, PlanTaskOutcome::Answered(_))) {
            *task.failures.entry(server.to_owned()).or_default() += 1;
        }
        let followed = match decide_task(&plan, task, &outcome, another) {
            PlanTaskDecision::Rerouted | PlanTaskDecision::Again(_) if is_cancelled => {
                PlanTaskDecision::Failed
            }
            followed => followed,
        };
        let reason = match outcome {
            PlanTaskOutcome::Answered(result) => {
                let server = server.unwrap_or_default().to_owned();
                task.state = PlanTaskState::Done { server, result };
                task.ended_at = Some(now);
                return followed;
            }
            PlanTaskOutcome::Cancelled => "it was cancelled".to_owned(),
            PlanTaskOutcome::ToolFailed { reason }
            | PlanTaskOutcome::TimedOut { reason }
            | PlanTaskOutcome::ServerFailed { reason, .. } => reason,
        };
        task.trouble = Some(reason.clone());
        match followed {
            PlanTaskDecision::Rerouted => task.state = PlanTaskState::Waiting { until: None },
            PlanTaskDecision::Again(pause) => {
                task.retried += 1;
                task.state = PlanTaskState::Waiting { until: Some(now + pause) };
            }
            PlanTaskDecision::Done | PlanTaskDecision::Failed => self.fail(id, reason, server, now),
        }
        followed
    }

    /// Ends a task without a result, and skips the tasks that need it.
    pub fn fail(&mut self, id: &str, reason: String, server: Option<&str>, now: Timestamp) {
        let Some(task) = self.task_mut(id) else { return };
        let server = server.map(str::to_owned);
        task.state = PlanTaskState::Failed { reason, server };
        task.ended_at = Some(now);
        self.skip_blocked_tasks(now);
    }

    fn skip_blocked_tasks(&mut self, now: Timestamp) {
        while let Some((id, because)) = self.find_blocked_task() {
            let Some(task) = self.task_mut(&id) else { return };
            task.state = PlanTaskState::Skipped { because };
            task.ended_at = Some(now);
        }
    }

    /// A waiting task that needs a result that will not come.
    fn find_blocked_task(&self) -> Option<(String, String)> {
        let waiting =
            self.tasks.iter().filter(|task| matches!(task.state, PlanTaskState::Waiting { .. }));
        waiting.into_iter().find_map(|task| {
            let needs = self.plan.task(&task.id)?.needs();
            let because = needs.iter().find_map(|need| match &self.task(need)?.state {
                PlanTaskState::Failed { .. } => Some(format!("{need} failed")),
                PlanTaskState::Skipped { .. } => Some(format!("{need} was skipped")),
                _ => None,
            })?;
            Some((task.id.clone(), because))
        })
    }

    /// Cancels the plan: no more tasks are started.
    pub fn cancel(&mut self, now: Timestamp) {
        self.state = PlanState::Cancelled;
        for task in &mut self.tasks {
            if matches!(task.state, PlanTaskState::Waiting { .. }) {
                task.state =
                    PlanTaskState::Skipped { because: "the plan was cancelled".to_owned() };
                task.ended_at = Some(now);
            }
        }
    }
}

fn decide_task(
    plan: &PlanTask,
    task: &PlanTaskRun,
    outcome: &PlanTaskOutcome,
    another: bool,
) -> PlanTaskDecision {
    let allowed = match outcome {
        PlanTaskOutcome::Answered(_) => return PlanTaskDecision::Done,
        PlanTaskOutcome::Cancelled => return PlanTaskDecision::Failed,
        PlanTaskOutcome::ServerFailed { sent: true, .. } if plan.once => {
            return PlanTaskDecision::Failed;
        }
        PlanTaskOutcome::ServerFailed { .. } if another => return PlanTaskDecision::Rerouted,
        PlanTaskOutcome::ServerFailed { sent: false, .. } => plan.retries.max(MIN_LOOKS),
        _ => plan.retries,
    };
    match task.retried < allowed {
        true => PlanTaskDecision::Again(pause(task.retried)),
        false => PlanTaskDecision::Failed,
    }
}

/// Doubles each time, up to a limit.
fn pause(retried: u32) -> Duration {
    let factor = 1_u32.checked_shl(retried).unwrap_or(u32::MAX);
    FIRST_PAUSE.saturating_mul(factor).min(LONGEST_PAUSE)
}
