//! `long_running_agent`: many small steps, to see a run live, survive, resume and be redirected.

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};
use shikiri_model::run::RunErrorCode;
use shikiri_runtime::run::{AgentError, DurableAgent, RunContext};

use super::input_fields::{StepDuration, object_schema, read, whole, with_default};
use super::run_step;

pub struct LongRunningAgent;

const NAME: &str = "long_running_agent";
const STEPS: u32 = 50;
const MAX_STEPS: u32 = 10_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LongRunningInput {
    #[serde(default = "fifty", deserialize_with = "whole")]
    steps: u64,
    #[serde(default)]
    step_ms: StepDuration,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LongRunningUpdate {
    #[serde(deserialize_with = "whole")]
    steps: u64,
}

fn fifty() -> u64 {
    STEPS.into()
}

impl LongRunningInput {
    fn read(input: &Value) -> Result<(u32, StepDuration), String> {
        let Self { steps, step_ms } = read(input)?;
        step_ms.check()?;
        Ok((check_steps(steps)?, step_ms))
    }
}

impl LongRunningUpdate {
    fn read(update: &Value) -> Result<u32, String> {
        let Self { steps } = read(update)?;
        check_steps(steps)
    }
}

fn check_steps(steps: u64) -> Result<u32, String> {
    match u32::try_from(steps) {
        Ok(steps @ 1..=MAX_STEPS) => Ok(steps),
        _ => Err(format!("steps must be between 1 and {MAX_STEPS}")),
    }
}

/// The number of steps, and the progress of the run in hundredths of a percent. Progress never goes
/// back, even if the number of steps changes.
struct StepProgress {
    steps: u32,
    done: u32,
    /// The steps done and the progress, when the number of steps was last set.
    since: (u32, u32),
}

const END: u32 = 10_000;

impl StepProgress {
    fn new(steps: u32) -> Self {
        Self { steps, done: 0, since: (0, 0) }
    }

    /// The progress when `done` steps are done.
    fn at(&self, done: u32) -> u32 {
        let (before, reached) = self.since;
        let left = (END - reached) * (done - before);
        left.checked_div(self.steps - before).map_or(END, |share| reached + share)
    }

    /// Steps that are done stay done.
    fn change(&mut self, steps: u32) {
        self.since = (self.done, self.at(self.done));
        self.steps = steps.max(self.done);
    }
}

#[async_trait]
impl DurableAgent for LongRunningAgent {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "Long-running agent"
    }

    fn description(&self) -> &'static str {
        "Works through many small steps and tells how far it is"
    }

    fn input_schema(&self) -> Value {
        let steps = with_default(steps_schema(), json!(STEPS));
        object_schema(json!({ "steps": steps, "step_ms": StepDuration::schema() }), &[])
    }

    fn output_schema(&self) -> Option<Value> {
        let steps = json!({ "type": "integer", "description": "How many steps were done" });
        Some(object_schema(json!({ "steps": steps }), &["steps"]))
    }

    fn update_schema(&self) -> Option<Value> {
        Some(object_schema(json!({ "steps": steps_schema() }), &["steps"]))
    }

    fn tool_group(&self) -> &'static str {
        "samples"
    }

    /// It is for trying things out.
    fn allows_tool_answers(&self) -> bool {
        true
    }

    fn check(&self, input: &Value) -> Result<(), String> {
        LongRunningInput::read(input).map(drop)
    }

    fn check_update(&self, update: &Value) -> Result<(), String> {
        LongRunningUpdate::read(update).map(drop)
    }

    async fn run(&self, context: RunContext, input: Value) -> Result<Value, AgentError> {
        let (steps, step_ms) = LongRunningInput::read(&input)
            .map_err(|reason| AgentError::new(RunErrorCode::InvalidRequest.as_str(), reason))?;
        let mut progress = StepProgress::new(steps);
        let mut reported = 0;
        loop {
            apply_updates(&context, &mut progress).await;
            if progress.done == progress.steps {
                break;
            }
            if context.is_cancelled() {
                return Err(AgentError::new(
                    RunErrorCode::Cancelled.as_str(),
                    "stopped between two steps",
                ));
            }
            let (i, steps) = (progress.done + 1, progress.steps);
            let percent = progress.at(i) / 100;
            context.log("info", NAME, &format!("Processing step {i}/{steps} ({percent}%)")).await;
            run_step(&context, &format!("step {i}"), step_ms, i).await?;
            progress.done = i;
            report(&context, &mut reported, progress.at(i), &format!("step {i} done")).await;
        }
        report(&context, &mut reported, END, "done").await;
        Ok(json!({ "steps": progress.steps }))
    }
}

/// Applies updates of the number of steps.
async fn apply_updates(context: &RunContext, progress: &mut StepProgress) {
    let updates = context.updates().await;
    let newest = updates.iter().rev().find_map(|update| LongRunningUpdate::read(update).ok());
    let before = progress.steps;
    if let Some(steps) = newest {
        progress.change(steps);
    }
    if progress.steps != before {
        let message = format!("Changed steps from {before} to {}", progress.steps);
        context.log("info", NAME, &message).await;
    }
}

/// Reports the progress of the run, if it has increased.
async fn report(context: &RunContext, reported: &mut u32, reached: u32, message: &str) {
    if reached > *reported {
        *reported = reached;
        context.progress(f64::from(reached) / 100.0, 100.0, message).await;
    }
}

fn steps_schema() -> Value {
    json!({
        "type": "integer",
        "description": "How many steps there are",
        "minimum": 1,
        "maximum": MAX_STEPS,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_course_goes_forward_whatever_becomes_of_the_number_of_steps() {
        let mut progress = StepProgress::new(4);
        let mut reached = Vec::new();
        for (done, change) in [(1, Some(10)), (2, None), (3, Some(4)), (4, None)] {
            progress.done = done;
            reached.push(progress.at(done));
            if let Some(steps) = change {
                progress.change(steps);
                assert_eq!(progress.at(done), reached[reached.len() - 1]);
            }
        }
        assert_eq!(reached, [2_500, 3_333, 4_166, 10_000]);
    }

    #[test]
    fn steps_that_are_done_stay_done() {
        let mut progress = StepProgress { done: 3, ..StepProgress::new(10) };
        progress.change(1);
        assert_eq!((progress.steps, progress.at(3)), (3, END));
    }
}
