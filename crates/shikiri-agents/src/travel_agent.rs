//! `travel_agent`: books a trip, after a person has confirmed its price.
//!
//! The agent books only after explicit approval. A refusal, silence or an answer without
//! `confirm: true` books nothing. The destination can be changed until the person is asked.

use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};
use shikiri_model::run::{QuestionAnswer, RunErrorCode};
use shikiri_runtime::run::{AgentError, DurableAgent, RunContext};

use super::input_fields::{
    StepDuration, check_text, object_schema, read, text_schema, with_default,
};
use super::{UpdatableText, run_step};

pub struct TravelAgent;

const NAME: &str = "travel_agent";
const DESTINATION: &str = "Paris";
const PRICE_USD: u32 = 1_200;
/// How long a person has to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3_600);
/// Each step, and the progress of the run when it begins.
const STEPS: [(&str, f64); 4] = [
    ("Checking flights...", 0.0),
    ("Finding available dates...", 25.0),
    ("Confirming prices...", 50.0),
    ("Booking flight...", 75.0),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TravelInput {
    #[serde(default = "paris")]
    destination: String,
    #[serde(default)]
    step_ms: StepDuration,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TravelUpdate {
    destination: String,
}

fn paris() -> String {
    DESTINATION.to_owned()
}

impl TravelInput {
    fn read(input: &Value) -> Result<Self, String> {
        let input: Self = read(input)?;
        check_text("destination", &input.destination)?;
        input.step_ms.check()?;
        Ok(input)
    }
}

impl TravelUpdate {
    fn read(update: &Value) -> Result<String, String> {
        let Self { destination } = read(update)?;
        check_text("destination", &destination)?;
        Ok(destination)
    }
}

#[async_trait]
impl DurableAgent for TravelAgent {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "Travel agent"
    }

    fn description(&self) -> &'static str {
        "Books a trip after a person has confirmed its price"
    }

    fn input_schema(&self) -> Value {
        let destination = with_default(destination_schema(), json!(DESTINATION));
        object_schema(json!({ "destination": destination, "step_ms": StepDuration::schema() }), &[])
    }

    fn output_schema(&self) -> Option<Value> {
        let properties = json!({
            "destination": { "type": "string" },
            "status": { "type": "string", "enum": ["booked", "cancelled"] },
            "booked": { "type": "boolean" },
            "price_usd": { "type": "integer" },
            "notes": {
                "type": "string",
                "description": "What the person added, or why nobody could be asked",
            },
        });
        let required = ["destination", "status", "booked", "price_usd", "notes"];
        Some(object_schema(properties, &required))
    }

    fn update_schema(&self) -> Option<Value> {
        Some(object_schema(json!({ "destination": destination_schema() }), &["destination"]))
    }

    fn tool_group(&self) -> &'static str {
        "samples"
    }

    /// It is for trying things out.
    fn allows_tool_answers(&self) -> bool {
        true
    }

    fn check(&self, input: &Value) -> Result<(), String> {
        TravelInput::read(input).map(drop)
    }

    fn check_update(&self, update: &Value) -> Result<(), String> {
        TravelUpdate::read(update).map(drop)
    }

    async fn run(&self, context: RunContext, input: Value) -> Result<Value, AgentError> {
        let TravelInput { destination, step_ms } = TravelInput::read(&input)
            .map_err(|reason| AgentError::new(RunErrorCode::InvalidRequest.as_str(), reason))?;
        let (field, read_update) = ("destination", TravelUpdate::read as fn(&Value) -> _);
        let mut trip = UpdatableText { agent: NAME, field, read_update, text: destination };
        let [search @ .., booking] = STEPS;
        for (number, (step, done)) in (1..).zip(search) {
            trip.apply_updates(&context).await;
            context.progress(done, 100.0, step).await;
            run_step(&context, step, step_ms, number).await?;
        }
        trip.apply_updates(&context).await;
        let message = format!(
            "Please confirm the estimated price of ${PRICE_USD} for your trip to {}",
            trip.text
        );
        let answer = context.ask_human(confirmation(), &message, Some(ANSWER_TIMEOUT)).await;
        let destination = trip.settle(&context).await;
        let confirmed = answer.accepted().is_some_and(|content| content["confirm"] == json!(true));
        if confirmed {
            context.progress(booking.1, 100.0, booking.0).await;
            run_step(&context, booking.0, step_ms, 4).await?;
        }
        context.progress(100.0, 100.0, if confirmed { "Booked" } else { "Cancelled" }).await;
        Ok(json!({
            "destination": destination,
            "status": if confirmed { "booked" } else { "cancelled" },
            "booked": confirmed,
            "price_usd": PRICE_USD,
            "notes": notes(&answer),
        }))
    }
}

/// The person's notes. If no person was asked, the reason.
fn notes(answer: &QuestionAnswer) -> String {
    let notes = answer.content["notes"].as_str().unwrap_or_default();
    let reason = answer.reason.as_deref().unwrap_or_default();
    let unexplained = answer.accepted().is_none() && notes.is_empty();
    if unexplained { reason.to_owned() } else { notes.to_owned() }
}

fn destination_schema() -> Value {
    text_schema("Where the trip goes")
}

/// The form that a person fills in.
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
