//! Checks before the first call whether a plan can be executed.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::plan_file::{HostPlan, PlanSynthesis, PlanTask};
use super::result_reference::{named_in, unreadable_in};

const MAX_TASKS: usize = 100;
const MAX_ID: usize = 64;
const MAX_NAME: usize = 256;
const MAX_ARGUMENTS: usize = 256 * 1024;
const MAX_TEXT: usize = 64 * 1024;
const MAX_RETRIES: u32 = 10;
const MAX_TIMEOUT_SECONDS: u64 = 24 * 3_600;

/// Why it cannot, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error("the plan has no task: write at least one [[task]] with an id and a tool")]
    Empty,
    #[error("the plan has {0} tasks: split it into plans of at most {MAX_TASKS}")]
    TooMany(usize),
    #[error("task {0:?}: an id has 1 to {MAX_ID} letters, digits, - and _: give it such a one")]
    BadId(String),
    #[error("task {0}: there are two of that id: rename one")]
    Twice(String),
    #[error("task {task}: {what}")]
    Task { task: String, what: String },
    #[error(
        "task {task}: `after` names {named}, which is not in the plan: add that task, or take the \
         name out"
    )]
    UnknownAfter { task: String, named: String },
    #[error(
        "{place}: `${{{named}…}}` names no task of the plan: correct the name, or write `$${{` for \
         a plain `${{`"
    )]
    UnknownReference { place: String, named: String },
    #[error("tasks wait for one another: {0}: take one of these out of `after` or `args`")]
    Cycle(String),
    #[error("synthesis: {0}")]
    Synthesis(String),
}

pub(super) fn check(plan: &HostPlan) -> Result<(), PlanError> {
    match plan.tasks.len() {
        0 => return Err(PlanError::Empty),
        many if many > MAX_TASKS => return Err(PlanError::TooMany(many)),
        _ => {}
    }
    let mut ids = BTreeSet::new();
    for task in &plan.tasks {
        let id = &task.id;
        let is_id_char = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if id.is_empty() || id.len() > MAX_ID || !id.chars().all(is_id_char) {
            return Err(PlanError::BadId(id.chars().take(MAX_ID).collect()));
        }
        if !ids.insert(id.as_str()) {
            return Err(PlanError::Twice(id.clone()));
        }
    }
    plan.tasks.iter().try_for_each(|task| check_task(task, &ids))?;
    if let Some(cycle) = cycle(plan) {
        return Err(PlanError::Cycle(cycle.join(" → ")));
    }
    if plan.goal.as_ref().is_some_and(|goal| goal.len() > MAX_TEXT) {
        return Err(PlanError::Synthesis(format!("the goal is over {MAX_TEXT} bytes: shorten it")));
    }
    check_synthesis(&plan.synthesis, &ids)
}

fn check_task(task: &PlanTask, ids: &BTreeSet<&str>) -> Result<(), PlanError> {
    let wrong = |what: String| Err(PlanError::Task { task: task.id.clone(), what });
    let is_name = |name: &str| {
        !name.is_empty() && name.len() <= MAX_NAME && !name.chars().any(char::is_control)
    };
    if !is_name(&task.tool) {
        return wrong("`tool` is no name: `shikiri host tools` lists them".to_owned());
    }
    if let Some(server) = task.servers.0.iter().find(|name| !is_name(name)) {
        return wrong(format!("`server` {server:?} is no name: `shikiri host list` lists them"));
    }
    if task.retries > MAX_RETRIES {
        return wrong(format!("`retries` is {}: write at most {MAX_RETRIES}", task.retries));
    }
    if task.once && task.retries > 0 {
        return wrong("`once` and `retries` contradict each other: leave one out".to_owned());
    }
    if !(1..=MAX_TIMEOUT_SECONDS).contains(&task.timeout_seconds) {
        let what = format!("`timeout_seconds` is {}", task.timeout_seconds);
        return wrong(format!("{what}: write 1 to {MAX_TIMEOUT_SECONDS}"));
    }
    let args = Value::Object(task.args.clone());
    let size = args.to_string().len();
    if size > MAX_ARGUMENTS {
        return wrong(format!("`args` has {size} bytes: write at most {MAX_ARGUMENTS}"));
    }
    if let Some(unreadable) = unreadable_in(&args) {
        return wrong(format!(
            "`args`: {unreadable}: write `${{task.path}}`, or `$${{` for a plain `${{`"
        ));
    }
    if let Some(named) = task.after.iter().find(|named| !ids.contains(named.as_str())) {
        let (task, named) = (task.id.clone(), named.clone());
        return Err(PlanError::UnknownAfter { task, named });
    }
    match named_in(&args).into_iter().find(|named| !ids.contains(named)) {
        Some(named) => Err(PlanError::UnknownReference {
            place: format!("task {}", task.id),
            named: named.to_owned(),
        }),
        None => Ok(()),
    }
}

fn check_synthesis(synthesis: &PlanSynthesis, ids: &BTreeSet<&str>) -> Result<(), PlanError> {
    let wrong = |what: &str| Err(PlanError::Synthesis(what.to_owned()));
    let PlanSynthesis { template, engine, prompt } = synthesis;
    if template.is_some() && *engine {
        return wrong("`template` and `engine` are two ways: leave one out");
    }
    if prompt.is_some() && !engine {
        return wrong("`prompt` is for a model: add `engine = true`");
    }
    for text in [template, prompt].into_iter().flatten() {
        if text.len() > MAX_TEXT {
            return wrong("its text is too long: write at most 64 KiB");
        }
        if let Some(unreadable) = unreadable_in(&Value::String(text.clone())) {
            let what = format!("{unreadable}: write `${{task}}`, or `$${{` for a plain `${{`");
            return Err(PlanError::Synthesis(what));
        }
    }
    match synthesis.names().into_iter().find(|named| !ids.contains(named)) {
        Some(named) => Err(PlanError::UnknownReference {
            place: "synthesis".to_owned(),
            named: named.to_owned(),
        }),
        None => Ok(()),
    }
}

/// Tasks that wait for one another, with the first again at the end.
fn cycle(plan: &HostPlan) -> Option<Vec<String>> {
    let needs: BTreeMap<&str, BTreeSet<&str>> =
        plan.tasks.iter().map(|task| (task.id.as_str(), task.needs())).collect();
    // Tasks that never become free, when all others are done, are part of a cycle or wait for one.
    let mut stuck: BTreeSet<&str> = needs.keys().copied().collect();
    while let Some(free) = stuck.iter().find(|id| needs[**id].is_disjoint(&stuck)).copied() {
        stuck.remove(free);
    }
    // Each of them needs another of them, so a walk along the needs reaches one twice.
    let mut walk = vec![*stuck.iter().next()?];
    loop {
        let last = *walk.last()?;
        let next = *needs[last].intersection(&stuck).next()?;
        if let Some(at) = walk.iter().position(|id| *id == next) {
            let circle = walk[at..].iter().chain([&next]);
            return Some(circle.map(|id| (*id).to_owned()).collect());
        }
        walk.push(next);
    }
}
