//! `long_running_agent`: many small steps, to see a run live, survive, resume and be redirected.

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};

use super::fields::{Pace, object_schema, read, whole, with_default};
use super::work;
use crate::run::{Agent, AgentError, Context};

pub struct LongRunningAgent;

const NAME: &str = "long_running_agent";
const STEPS: u32 = 50;
const MAX_STEPS: u32 = 10_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    #[serde(default = "fifty", deserialize_with = "whole")]
    steps: u64,
    #[serde(default)]
    step_ms: Pace,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Update {
    #[serde(deserialize_with = "whole")]
    steps: u64,
}

fn fifty() -> u64 {
    STEPS.into()
}

impl Input {
    fn read(input: &Value) -> Result<(u32, Pace), String> {
        let Self { steps, step_ms } = read(input)?;
        step_ms.check()?;
        Ok((check_steps(steps)?, step_ms))
    }
}

impl Update {
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

/// How many steps there are, and how far the run is: in hundredths of a percent, and never less
/// than it was, whatever becomes of the number of steps.
struct Course {
    steps: u32,
    done: u32,
    /// Steps done, and how far that was, when the number of steps was last set.
    since: (u32, u32),
}

const END: u32 = 10_000;

impl Course {
    fn new(steps: u32) -> Self {
        Self { steps, done: 0, since: (0, 0) }
    }

    /// How far the run is when `done` steps are done.
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
impl Agent for LongRunningAgent {
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
        object_schema(json!({ "steps": steps, "step_ms": Pace::schema() }), &[])
    }

    fn output_schema(&self) -> Option<Value> {
        let steps = json!({ "type": "integer", "description": "How many steps were done" });
        Some(object_schema(json!({ "steps": steps }), &["steps"]))
    }

    fn update_schema(&self) -> Option<Value> {
        Some(object_schema(json!({ "steps": steps_schema() }), &["steps"]))
    }

    fn check(&self, input: &Value) -> Result<(), String> {
        Input::read(input).map(drop)
    }

    fn check_update(&self, update: &Value) -> Result<(), String> {
        Update::read(update).map(drop)
    }

    async fn run(&self, context: Context, input: Value) -> Result<Value, AgentError> {
        let (steps, step_ms) =
            Input::read(&input).map_err(|reason| AgentError::new("INVALID_REQUEST", reason))?;
        let mut course = Course::new(steps);
        let mut told = 0;
        loop {
            look(&context, &mut course).await;
            if course.done == course.steps {
                break;
            }
            if context.is_cancelled() {
                return Err(AgentError::new("CANCELLED", "stopped between two steps"));
            }
            let (i, steps) = (course.done + 1, course.steps);
            let percent = course.at(i) / 100;
            context.log("info", NAME, &format!("Processing step {i}/{steps} ({percent}%)")).await;
            work(&context, &format!("step {i}"), step_ms, i).await?;
            course.done = i;
            tell(&context, &mut told, course.at(i), &format!("step {i} done")).await;
        }
        tell(&context, &mut told, END, "done").await;
        Ok(json!({ "steps": course.steps }))
    }
}

/// Takes up a new number of steps.
async fn look(context: &Context, course: &mut Course) {
    let updates = context.updates().await;
    let newest = updates.iter().rev().find_map(|update| Update::read(update).ok());
    let before = course.steps;
    if let Some(steps) = newest {
        course.change(steps);
    }
    if course.steps != before {
        let message = format!("Changed steps from {before} to {}", course.steps);
        context.log("info", NAME, &message).await;
    }
}

/// Tells how far the run is, if it has come further: progress that stands still is none.
async fn tell(context: &Context, told: &mut u32, reached: u32, message: &str) {
    if reached > *told {
        *told = reached;
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
        let mut course = Course::new(4);
        let mut reached = Vec::new();
        for (done, change) in [(1, Some(10)), (2, None), (3, Some(4)), (4, None)] {
            course.done = done;
            reached.push(course.at(done));
            if let Some(steps) = change {
                course.change(steps);
                assert_eq!(course.at(done), reached[reached.len() - 1]);
            }
        }
        assert_eq!(reached, [2_500, 3_333, 4_166, 10_000]);
    }

    #[test]
    fn steps_that_are_done_stay_done() {
        let mut course = Course { done: 3, ..Course::new(10) };
        course.change(1);
        assert_eq!((course.steps, course.at(3)), (3, END));
    }
}
