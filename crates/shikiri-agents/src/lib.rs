//! The sample agents that come with Shikiri: a trip to book, a topic to research, and a long task with
//! many steps.
//!
//! Each implements `DurableAgent` of `shikiri-runtime`. Its work is a function that calls `step`,
//! `ask_human`, `ask_model` and `sleep` on its context. What these return is stored in the journal of the
//! run, so that after a crash the function is called again and gets the stored results. A question to a
//! person has an answer for a caller that cannot be asked: the trip is then not booked.
//!
//! To write one, begin with [`samples`] and `long_running.rs`, the smallest. An agent knows neither MCP
//! nor REST: both start it as a run, and its schemas become those of a tool.

mod input_fields;
mod long_running;
mod research_agent;
mod travel_agent;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use self::input_fields::StepDuration;
pub use self::long_running::LongRunningAgent;
pub use self::research_agent::ResearchAgent;
pub use self::travel_agent::TravelAgent;
use shikiri_runtime::run::{DurableAgent, RunContext, StepError, UnknownStepPolicy};

/// The agents of a plain server.
pub fn samples() -> Vec<Arc<dyn DurableAgent>> {
    vec![Arc::new(LongRunningAgent), Arc::new(ResearchAgent), Arc::new(TravelAgent)]
}

/// A step that sleeps, may be repeated, and returns its number.
async fn run_step(
    context: &RunContext,
    name: &str,
    duration: StepDuration,
    number: u32,
) -> Result<u32, StepError> {
    let wait = async move {
        tokio::time::sleep(Duration::from_millis(duration.millis())).await;
        Ok::<_, Infallible>(number)
    };
    context.step(name, UnknownStepPolicy::Retry, wait).await
}

/// A text of an agent's input that updates may change while the run works.
struct UpdatableText {
    agent: &'static str,
    field: &'static str,
    read_update: fn(&Value) -> Result<String, String>,
    text: String,
}

impl UpdatableText {
    /// Applies the updates since the last call. The newest one counts.
    async fn apply_updates(&mut self, context: &RunContext) {
        let updates = context.updates().await;
        let newest = updates.iter().rev().find_map(|update| (self.read_update)(update).ok());
        let Some(text) = newest.filter(|text| *text != self.text) else { return };
        let message = format!("Changed {} from {:?} to {text:?}", self.field, self.text);
        context.log("info", self.agent, &message).await;
        self.text = text;
    }

    /// Fixes the text once it was used in a question. A later update is logged as too late.
    async fn settle(self, context: &RunContext) -> String {
        if !context.updates().await.is_empty() {
            let message = format!("Too late to change {}: it stays {:?}", self.field, self.text);
            context.log("warning", self.agent, &message).await;
        }
        self.text
    }
}
