//! The sample agents that come with Shikiri.

mod long_running;
mod research;
mod travel;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub use long_running::LongRunningAgent;
pub use research::ResearchAgent;
pub use travel::TravelAgent;

use crate::run::{Agent, Context, OnUnknown, StepError};

/// The agents of a plain server.
pub fn samples() -> Vec<Arc<dyn Agent>> {
    vec![Arc::new(LongRunningAgent), Arc::new(ResearchAgent), Arc::new(TravelAgent)]
}

/// How long a sample's step takes, in milliseconds, so that tests need not wait.
#[derive(Clone, Copy, Deserialize)]
#[serde(transparent)]
struct Pace(u64);

impl Default for Pace {
    fn default() -> Self {
        Self(2_000)
    }
}

const MAX_STEP_MS: u64 = 3_600_000;
const MAX_TEXT: usize = 1_000;

impl Pace {
    fn check(self) -> Result<(), String> {
        if self.0 > MAX_STEP_MS {
            return Err(format!("step_ms must be at most {MAX_STEP_MS}"));
        }
        Ok(())
    }
}

/// An input is an object; nothing at all counts as an empty one.
fn read<T: DeserializeOwned>(input: &Value) -> Result<T, String> {
    let input = if input.is_null() { json!({}) } else { input.clone() };
    serde_json::from_value(input).map_err(|error| error.to_string())
}

fn check_text(field: &str, text: &str) -> Result<(), String> {
    if text.trim().is_empty() || text.chars().count() > MAX_TEXT {
        return Err(format!("{field} must have 1 to {MAX_TEXT} characters"));
    }
    Ok(())
}

/// A step that takes its time, does no harm when done twice, and results in its number.
async fn work(context: &Context, name: &str, pace: Pace, number: u32) -> Result<u32, StepError> {
    let wait = async move {
        tokio::time::sleep(Duration::from_millis(pace.0)).await;
        Ok::<_, Infallible>(number)
    };
    context.step(name, OnUnknown::Retry, wait).await
}
