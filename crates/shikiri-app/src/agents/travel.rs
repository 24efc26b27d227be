//! `travel_agent`: books a trip, after a person has confirmed its price.
//!
//! The fail-safe rule: whatever is not a clear yes (a refusal, silence, an answer without
//! `confirm: true`) means that nothing is booked.

use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Pace, check_text, read, work};
use crate::run::{Agent, AgentError, Context};

pub struct TravelAgent;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    #[serde(default = "paris")]
    destination: String,
    #[serde(default)]
    step_ms: Pace,
}

fn paris() -> String {
    "Paris".to_owned()
}

impl Input {
    fn read(input: &Value) -> Result<Self, String> {
        let input: Self = read(input)?;
        check_text("destination", &input.destination)?;
        input.step_ms.check()?;
        Ok(input)
    }
}

const PRICE_USD: u32 = 1_200;
/// How long a person has to answer.
const PATIENCE: Duration = Duration::from_secs(3_600);
/// Each step, and how far the run is when it is done.
const STEPS: [(&str, f64); 4] = [
    ("Checking flights...", 25.0),
    ("Finding available dates...", 50.0),
    ("Confirming prices...", 75.0),
    ("Booking flight...", 100.0),
];

#[async_trait]
impl Agent for TravelAgent {
    fn name(&self) -> &'static str {
        "travel_agent"
    }

    fn description(&self) -> &'static str {
        "Books a trip after a person has confirmed its price"
    }

    fn check(&self, input: &Value) -> Result<(), String> {
        Input::read(input).map(drop)
    }

    async fn run(&self, context: Context, input: Value) -> Result<Value, AgentError> {
        let Input { destination, step_ms } =
            Input::read(&input).map_err(|reason| AgentError::new("INVALID_REQUEST", reason))?;
        let [search @ .., booking] = STEPS;
        for (number, (step, done)) in (1..).zip(search) {
            context.progress(done, 100.0, step).await;
            work(&context, step, step_ms, number).await?;
        }
        let message = format!(
            "Please confirm the estimated price of ${PRICE_USD} for your trip to {destination}"
        );
        let answer = context.ask_human(confirmation(), &message, Some(PATIENCE)).await;
        let notes = answer.content["notes"].as_str().unwrap_or_default().to_owned();
        let confirmed = answer.accepted().is_some_and(|content| content["confirm"] == json!(true));
        if confirmed {
            work(&context, booking.0, step_ms, 4).await?;
        }
        context.progress(booking.1, 100.0, if confirmed { booking.0 } else { "Cancelled" }).await;
        Ok(json!({
            "destination": destination,
            "status": if confirmed { "booked" } else { "cancelled" },
            "booked": confirmed,
            "price_usd": PRICE_USD,
            "notes": notes,
        }))
    }
}

/// What a person is asked for.
fn confirmation() -> Value {
    json!({
        "type": "object",
        "properties": {
            "confirm": { "type": "boolean", "description": "Book at this price" },
            "notes": { "type": "string", "description": "Anything to keep in mind" },
        },
        "required": ["confirm"],
    })
}
