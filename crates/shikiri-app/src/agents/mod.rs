//! The sample agents that come with Shikiri.

mod fields;
mod long_running;
mod research;
mod travel;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use self::fields::Pace;
pub use self::long_running::LongRunningAgent;
pub use self::research::ResearchAgent;
pub use self::travel::TravelAgent;
use crate::run::{Agent, Context, OnUnknown, StepError};

/// The agents of a plain server.
pub fn samples() -> Vec<Arc<dyn Agent>> {
    vec![Arc::new(LongRunningAgent), Arc::new(ResearchAgent), Arc::new(TravelAgent)]
}

/// A step that takes its time, does no harm when done twice, and results in its number.
async fn work(context: &Context, name: &str, pace: Pace, number: u32) -> Result<u32, StepError> {
    let wait = async move {
        tokio::time::sleep(Duration::from_millis(pace.millis())).await;
        Ok::<_, Infallible>(number)
    };
    context.step(name, OnUnknown::Retry, wait).await
}

/// A text that may be changed while the run works, and the agent that says so.
struct Redirectable {
    agent: &'static str,
    field: &'static str,
    read_update: fn(&Value) -> Result<String, String>,
    text: String,
}

impl Redirectable {
    /// Takes up what has come since the last look; of several the newest counts.
    async fn look(&mut self, context: &Context) {
        let updates = context.updates().await;
        let newest = updates.iter().rev().find_map(|update| (self.read_update)(update).ok());
        let Some(text) = newest.filter(|text| *text != self.text) else { return };
        let message = format!("Changed {} from {:?} to {text:?}", self.field, self.text);
        context.log("info", self.agent, &message).await;
        self.text = text;
    }

    /// Once others have been asked about the text, it stays; whoever wanted another is told.
    async fn settle(self, context: &Context) -> String {
        if !context.updates().await.is_empty() {
            let message = format!("Too late to change {}: it stays {:?}", self.field, self.text);
            context.log("warning", self.agent, &message).await;
        }
        self.text
    }
}
