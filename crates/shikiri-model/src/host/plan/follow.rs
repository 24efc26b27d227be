//! What may start, where, and what follows from how it went.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Map, Value};

use super::file::PlanTask;
use super::reference::fill;
use super::result::TaskResult;
use super::run::{PlanRun, PlanState, TaskRun, TaskState};
use crate::ids::HostCallId;
use crate::time::Timestamp;

/// Tasks of one plan that run at the same time.
pub const MAX_PARALLEL: usize = 16;
/// A server that is not there is asked again so often, even for a task without retries: nothing
/// has happened yet that could happen twice.
const MIN_LOOKS: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Which servers offer which tools, as far as is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offers {
    /// By tool, in the order of the configuration.
    pub tools: BTreeMap<String, Vec<String>>,
    /// Servers that could not be asked: they may offer anything.
    pub silent: BTreeSet<String>,
}

/// How one try of a task went.
#[derive(Clone, Debug, PartialEq)]
pub enum TaskOutcome {
    Answered(TaskResult),
    /// The tool did its work and says that it failed.
    ToolFailed {
        reason: String,
    },
    TimedOut {
        reason: String,
    },
    /// The server is gone or refuses. `sent`: the tool may have done its work.
    ServerFailed {
        reason: String,
        sent: bool,
    },
    Cancelled,
}

/// What follows from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Followed {
    Done,
    /// To be started at once, at another server.
    Rerouted,
    /// To be started again after a pause.
    Again(Duration),
    Failed,
}

impl Offers {
    /// Who can be asked for a task, the preferred first.
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
    /// Tasks that can be started now.
    pub fn ready(&self, now: Timestamp) -> Vec<String> {
        let room = MAX_PARALLEL.saturating_sub(self.in_flight().len());
        let can = |task: &&TaskRun| self.free_at(task).is_some_and(|at| at <= now);
        self.tasks.iter().filter(can).take(room).map(|task| task.id.clone()).collect()
    }

    /// When the next one can be started that waits for nothing but the time.
    pub fn next_start(&self, now: Timestamp) -> Option<Timestamp> {
        self.tasks.iter().filter_map(|task| self.free_at(task)).filter(|at| *at > now).min()
    }

    /// When a waiting task can be started; None while it needs something.
    fn free_at(&self, task: &TaskRun) -> Option<Timestamp> {
        let TaskState::Waiting { until } = task.state else { return None };
        let needs = self.plan.task(&task.id)?.needs();
        let is_done = |id: &&str| {
            self.task(id).is_some_and(|task| matches!(task.state, TaskState::Done { .. }))
        };
        needs.iter().all(is_done).then(|| until.unwrap_or(self.started_at))
    }

    /// Its arguments, with what they refer to; else what is missing.
    pub fn arguments(&self, id: &str) -> Result<Map<String, Value>, String> {
        let Some(task) = self.plan.task(id) else { return Err("it is not in the plan".to_owned()) };
        let filled = task.args.iter().map(|(name, value)| {
            let filled = fill(value, &|reference| {
                let found = match self.task(reference.task).map(|task| &task.state) {
                    Some(TaskState::Done { result, .. }) => result.look(&reference.path),
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

    /// Who is to be called: whoever failed this task least and has least to do for this plan.
    pub fn choose(&self, id: &str, offers: &Offers) -> Option<String> {
        let (task, run) = (self.plan.task(id)?, self.task(id)?);
        let busy = |name: &str| self.in_flight().iter().filter(|(_, at, _)| *at == name).count();
        let failed = |name: &str| run.failures.get(name).copied().unwrap_or(0);
        let candidates = offers.candidates(task);
        let is_free_choice = task.servers.is_empty();
        let best = candidates.into_iter().enumerate().min_by_key(|(place, name)| {
            // Named servers are taken in the order of their names.
            let busy = if is_free_choice { busy(name) } else { 0 };
            (failed(name), offers.silent.contains(*name), busy, *place)
        });
        best.map(|(_, name)| name.to_owned())
    }

    /// Whether there is another server to go to.
    pub fn has_another(&self, id: &str, besides: &str, offers: &Offers) -> bool {
        let (Some(task), Some(run)) = (self.plan.task(id), self.task(id)) else { return false };
        let is_fresh = |name: &&str| *name != besides && !run.failures.contains_key(*name);
        offers.candidates(task).iter().any(is_fresh)
    }

    pub fn start(&mut self, id: &str, server: &str, call: HostCallId, now: Timestamp) {
        let Some(task) = self.task_mut(id) else { return };
        task.attempts += 1;
        task.started_at.get_or_insert(now);
        task.state = TaskState::Running { server: server.to_owned(), call };
    }

    /// Takes in how a try went. Without a server nobody could be called.
    pub fn learn(
        &mut self,
        id: &str,
        server: Option<&str>,
        outcome: TaskOutcome,
        offers: &Offers,
        now: Timestamp,
    ) -> Followed {
        let Some(plan) = self.plan.task(id).cloned() else { return Followed::Failed };
        let another = self.has_another(id, server.unwrap_or_default(), offers);
        let is_cancelled = self.state == PlanState::Cancelled;
        let Some(task) = self.task_mut(id) else { return Followed::Failed };
        if let (Some(server), false) = (server, matches!(outcome, TaskOutcome::Answered(_))) {
            *task.failures.entry(server.to_owned()).or_default() += 1;
        }
        let followed = match follow(&plan, task, &outcome, another) {
            Followed::Rerouted | Followed::Again(_) if is_cancelled => Followed::Failed,
            followed => followed,
        };
        let reason = match outcome {
            TaskOutcome::Answered(result) => {
                let server = server.unwrap_or_default().to_owned();
                task.state = TaskState::Done { server, result };
                task.ended_at = Some(now);
                return followed;
            }
            TaskOutcome::Cancelled => "it was cancelled".to_owned(),
            TaskOutcome::ToolFailed { reason }
            | TaskOutcome::TimedOut { reason }
            | TaskOutcome::ServerFailed { reason, .. } => reason,
        };
        task.trouble = Some(reason.clone());
        match followed {
            Followed::Rerouted => task.state = TaskState::Waiting { until: None },
            Followed::Again(pause) => {
                task.retried += 1;
                task.state = TaskState::Waiting { until: Some(now + pause) };
            }
            Followed::Done | Followed::Failed => self.fail(id, reason, server, now),
        }
        followed
    }

    /// Ends a task without a result, and skips whatever needs it.
    pub fn fail(&mut self, id: &str, reason: String, server: Option<&str>, now: Timestamp) {
        let Some(task) = self.task_mut(id) else { return };
        let server = server.map(str::to_owned);
        task.state = TaskState::Failed { reason, server };
        task.ended_at = Some(now);
        self.skip_the_stranded(now);
    }

    fn skip_the_stranded(&mut self, now: Timestamp) {
        while let Some((id, because)) = self.stranded() {
            let Some(task) = self.task_mut(&id) else { return };
            task.state = TaskState::Skipped { because };
            task.ended_at = Some(now);
        }
    }

    /// A waiting task that needs what will not come.
    fn stranded(&self) -> Option<(String, String)> {
        let waiting =
            self.tasks.iter().filter(|task| matches!(task.state, TaskState::Waiting { .. }));
        waiting.into_iter().find_map(|task| {
            let needs = self.plan.task(&task.id)?.needs();
            let because = needs.iter().find_map(|need| match &self.task(need)?.state {
                TaskState::Failed { .. } => Some(format!("{need} failed")),
                TaskState::Skipped { .. } => Some(format!("{need} was skipped")),
                _ => None,
            })?;
            Some((task.id.clone(), because))
        })
    }

    /// Nothing more is started.
    pub fn cancel(&mut self, now: Timestamp) {
        self.state = PlanState::Cancelled;
        for task in &mut self.tasks {
            if matches!(task.state, TaskState::Waiting { .. }) {
                task.state = TaskState::Skipped { because: "the plan was cancelled".to_owned() };
                task.ended_at = Some(now);
            }
        }
    }
}

fn follow(plan: &PlanTask, task: &TaskRun, outcome: &TaskOutcome, another: bool) -> Followed {
    let allowed = match outcome {
        TaskOutcome::Answered(_) => return Followed::Done,
        TaskOutcome::Cancelled => return Followed::Failed,
        TaskOutcome::ServerFailed { sent: true, .. } if plan.once => return Followed::Failed,
        TaskOutcome::ServerFailed { .. } if another => return Followed::Rerouted,
        TaskOutcome::ServerFailed { sent: false, .. } => plan.retries.max(MIN_LOOKS),
        _ => plan.retries,
    };
    match task.retried < allowed {
        true => Followed::Again(pause(task.retried)),
        false => Followed::Failed,
    }
}

/// Twice as long each time, up to a bound.
fn pause(retried: u32) -> Duration {
    let factor = 1_u32.checked_shl(retried).unwrap_or(u32::MAX);
    FIRST_PAUSE.saturating_mul(factor).min(LONGEST_PAUSE)
}
