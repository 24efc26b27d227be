//! `long_running_agent`: many small steps, to see a run live, survive and resume.

use std::convert::Infallible;
use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::run::{Agent, AgentError, Context, OnUnknown};

pub struct LongRunningAgent;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Input {
    steps: u32,
    step_ms: u64,
}

impl Default for Input {
    fn default() -> Self {
        Self { steps: 50, step_ms: 2_000 }
    }
}

const MAX_STEPS: u32 = 10_000;
const MAX_STEP_MS: u64 = 3_600_000;

impl Input {
    fn read(input: &Value) -> Result<Self, String> {
        let input = if input.is_null() { json!({}) } else { input.clone() };
        let input: Self = serde_json::from_value(input).map_err(|e| e.to_string())?;
        if !(1..=MAX_STEPS).contains(&input.steps) {
            return Err(format!("steps must be between 1 and {MAX_STEPS}"));
        }
        if input.step_ms > MAX_STEP_MS {
            return Err(format!("step_ms must be at most {MAX_STEP_MS}"));
        }
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
            let work = async {
                tokio::time::sleep(Duration::from_millis(step_ms)).await;
                Ok::<_, Infallible>(i)
            };
            context.step(&format!("step {i}"), OnUnknown::Retry, work).await?;
            context.progress(f64::from(i), f64::from(steps), &format!("step {i} done")).await;
        }
        Ok(json!({ "steps": steps }))
    }
}
