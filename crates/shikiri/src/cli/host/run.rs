//! `shikiri host run PLAN.toml`.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Map, Value, json};
use shikiri_host::{Host, ServerSurvey};
use shikiri_model::host::plan::{
    HostPlan, MAX_PLAN, PlanRun, PlanState, PlanTaskRun, PlanTaskState,
};
use shikiri_model::host::sanitize_text;
use tokio_util::sync::CancellationToken;

use super::count;
use super::plan_view::PlanView;
use super::seat::{Attended, attend};
use crate::exit::{Exit, Failure};
use crate::output::{Output, note};

#[derive(Args)]
pub(super) struct Arguments {
    /// The plan: [[task]] with id, tool, server, args, after, retries, timeout_seconds
    plan: PathBuf,
    /// Start over, though a run of this plan was left unfinished
    #[arg(long, conflicts_with = "resume")]
    fresh: bool,
    /// Only go on with a run that was left unfinished
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    telling: Telling,
}

#[derive(Args, Clone, Copy)]
pub(super) struct Telling {
    /// Answer every question of a server with its defaults, and yes
    #[arg(long = "yes", conflicts_with = "no_input")]
    pub(super) agree: bool,
    /// Decline all questions
    #[arg(long)]
    pub(super) no_input: bool,
    /// Call tools though their servers say something else of them than before
    #[arg(long)]
    pub(super) accept_changes: bool,
    /// Print the whole report as JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// Which run of a plan to use.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    Fresh,
    Unfinished,
    /// The unfinished run, if there is one.
    Either,
}

pub(super) async fn run(host: &Host, arguments: Arguments) -> Result<(), Failure> {
    let plan = read(&arguments.plan)?;
    let which = match (arguments.fresh, arguments.resume) {
        (true, _) => Which::Fresh,
        (_, true) => Which::Unfinished,
        _ => Which::Either,
    };
    carry_out(host, plan, which, arguments.telling).await
}

pub(super) async fn carry_out(
    host: &Host,
    plan: HostPlan,
    which: Which,
    telling: Telling,
) -> Result<(), Failure> {
    let left = match which {
        Which::Fresh => None,
        _ => host.unfinished_plan(&plan).await?,
    };
    if which == Which::Unfinished && left.is_none() {
        let what = "no run of this plan was left unfinished";
        return Err(Failure::new(Exit::NotFound, what, "leave --resume out to start one"));
    }
    let ServerSurvey { offers, troubles, changed } = host.survey().await;
    for (server, error) in troubles {
        note(&format!("shikiri: {server}: {error}"));
    }
    let view = PlanView::new(telling);
    let agreed = host.approve_plan_tools(&plan, changed, &view).await;
    if agreed.is_err() {
        view.end();
    }
    agreed?;
    let stored = match left {
        Some(left) => {
            let taken = host.resume_plan(&left).await?;
            note(&going_on(&taken.value));
            taken
        }
        None => {
            host.check_plan(&plan, &offers)?;
            let begun = host.begin_plan(plan).await?;
            let tasks = count(begun.value.tasks.len(), "task");
            note(&format!("shikiri: plan {} begins: {tasks}", begun.value.id));
            begun
        }
    };
    view.begin(&stored.value);
    let cancel = CancellationToken::new();
    let carrying = Box::pin(host.execute_plan(stored, offers, &view, &cancel));
    let cancelling = || {
        view.say("shikiri: cancelling; once more to leave it as it is");
        cancel.cancel();
    };
    let attended = attend(carrying, view.interrupts(), cancelling).await;
    view.end();
    match attended? {
        Attended::Done(ended) => report(&ended?.value, telling.json),
        Attended::Left(signal) => {
            note("shikiri: left as it is; run the plan again to go on with it");
            Err(Failure::Stopped(signal))
        }
    }
}

fn going_on(run: &PlanRun) -> String {
    let done = run.tasks.iter().filter(|task| task.state.is_settled()).count();
    format!(
        "shikiri: goes on with plan {} of {}: {done} of {} have ended (--fresh starts over)",
        run.id,
        run.started_at,
        count(run.tasks.len(), "task")
    )
}

/// Prints the synthesis. What is missing from it becomes the command's failure.
fn report(run: &PlanRun, as_json: bool) -> Result<(), Failure> {
    if as_json {
        Output::stdout().json(&as_value(run))?;
    } else if let Some(written) = &run.written {
        if let Some(remark) = &written.remark {
            note(&format!("shikiri: no model wrote this text: {}", sanitize_text(remark)));
        }
        Output::stdout().line(&sanitize_text(&written.text))?;
    }
    let of = |wanted: &str| run.tasks.iter().filter(|task| task.state.as_str() == wanted).count();
    let what = format!(
        "plan {}: {} of {} failed, {} skipped",
        run.id,
        of("failed"),
        count(run.tasks.len(), "task"),
        of("skipped")
    );
    match run.state {
        PlanState::Completed => Ok(()),
        PlanState::Cancelled => Err(Failure::told(Exit::Failed, format!("{what}: cancelled"))),
        _ => Err(Failure::new(Exit::Failed, what, "the text says what is missing and why")),
    }
}

fn as_value(run: &PlanRun) -> Value {
    json!({
        "plan_id": run.id,
        "goal": run.plan.goal,
        "state": run.state,
        "started_at": run.started_at,
        "ended_at": run.ended_at,
        "tasks": run.tasks.iter().map(task_value).collect::<Vec<_>>(),
        "synthesis": run.written.as_ref().map(|written| &written.text),
        "synthesis_by": run.written.as_ref().map(|written| written.by),
        "synthesis_remark": run.written.as_ref().and_then(|written| written.remark.as_ref()),
        "missing": run.missing(),
    })
}

fn task_value(task: &PlanTaskRun) -> Value {
    let mut value = json!({
        "id": task.id,
        "state": task.state.as_str(),
        "server": task.server(),
        "attempts": task.attempts,
        "failures": task.failures,
        "duration_ms": task.duration().map(|took| took.as_millis()),
    });
    match &task.state {
        PlanTaskState::Done { result, .. } => value["result"] = json!(result),
        PlanTaskState::Failed { reason, .. } => value["reason"] = json!(reason),
        PlanTaskState::Skipped { because } => value["reason"] = json!(because),
        PlanTaskState::Waiting { .. } | PlanTaskState::Running { .. } => {}
    }
    value
}

/// A plan's file, checked.
fn read(path: &Path) -> Result<HostPlan, Failure> {
    let name = path.display();
    let text = super::places::read_bounded(path, MAX_PLAN as u64).map_err(|error| {
        let what = format!("{name} cannot be read: {error}");
        Failure::new(Exit::Usage, what, "name a plan's file")
    })?;
    parse(&text).map_err(|reason| Failure::told(Exit::Usage, format!("{name}: {reason}")))
}

/// Parses and checks a plan in TOML.
pub(super) fn parse(text: &str) -> Result<HostPlan, String> {
    let mut plan: HostPlan = toml::from_str(text).map_err(|error| {
        let line = error.span().map(|span| 1 + text[..span.start].matches('\n').count());
        let at = line.map(|line| format!("line {line}: ")).unwrap_or_default();
        format!("{at}{}: a plan is TOML with [[task]] and [synthesis]", error.message())
    })?;
    for task in &mut plan.tasks {
        task.args.values_mut().for_each(dates_to_text);
    }
    plan.validate().map_err(|error| error.to_string())
}

/// TOML has dates and JSON has none, so dates become text.
fn dates_to_text(value: &mut Value) {
    const DATE: &str = "$__toml_private_datetime";
    let text =
        |fields: &Map<String, Value>| fields.get(DATE).filter(|_| fields.len() == 1).cloned();
    match value {
        Value::Array(items) => items.iter_mut().for_each(dates_to_text),
        Value::Object(fields) => match text(fields) {
            Some(date) => *value = date,
            None => fields.values_mut().for_each(dates_to_text),
        },
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_read_from_toml_with_dates_as_text() {
        let plan = parse(
            r#"
            [[task]]
            id = "a"
            tool = "t"
            args = { day = 2026-12-24, deep = [{ at = 2026-12-24T10:00:00Z }], n = 1.5, yes = true }
            [synthesis]
            template = """${a}"""
            "#,
        )
        .unwrap();
        let wanted = json!({
            "day": "2026-12-24", "deep": [{ "at": "2026-12-24T10:00:00Z" }], "n": 1.5, "yes": true,
        });
        assert_eq!(json!(plan.tasks[0].args), wanted);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let refused = |text: &str| parse(text).unwrap_err();
        let unknown = refused("[[task]]\nid = \"a\"\ntool = \"t\"\nargz = 1\n");
        assert!(unknown.contains("line 4") && unknown.contains("argz"), "{unknown}");
        assert!(refused("[[task]\n").starts_with("line 1: "));
        assert!(refused("").contains("no task"));
    }
}
