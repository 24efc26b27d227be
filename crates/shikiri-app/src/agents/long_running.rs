//! `long_running_agent`: many small steps, to see a run live, survive and resume.

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Pace, read, work};
use crate::run::{Agent, AgentError, Context};

pub struct LongRunningAgent;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    #[serde(default = "fifty")]
    steps: u32,
    #[serde(default)]
    step_ms: Pace,
}

fn fifty() -> u32 {
    50
}

const MAX_STEPS: u32 = 10_000;

impl Input {
    fn read(input: &Value) -> Result<Self, String> {
        let input: Self = read(input)?;
        if !(1..=MAX_STEPS).contains(&input.steps) {
            return Err(format!("steps must be between 1 and {MAX_STEPS}"));
        }
        input.step_ms.check()?;
        Ok(input)
    }
}

#[async_trait]
impl Agent for LongRunningAgent {
    fn name(&self) -> &'static str {
        "long_running_agent"
    }

    fn description(&self) -> &'static str {
        "Works through many small steps and tells how far it is"
    }

    fn check(&self, input: &Value) -> Result<(), String> {
        Input::read(input).map(drop)
    }

    async fn run(&self, context: Context, input: Value) -> Result<Value, AgentError> {
        let Input { steps, step_ms } =
            Input::read(&input).map_err(|reason| AgentError::new("INVALID_REQUEST", reason))?;
        for i in 1..=steps {
            if context.is_cancelled() {
                return Err(AgentError::new("CANCELLED", "stopped between two steps"));
            }
            let percent = i * 100 / steps;
            context
                .log("info", self.name(), &format!("Processing step {i}/{steps} ({percent}%)"))
                .await;
            work(&context, &format!("step {i}"), step_ms, i).await?;
            context.progress(f64::from(i), f64::from(steps), &format!("step {i} done")).await;
        }
        Ok(json!({ "steps": steps }))
    }
}
