//! `research_agent`: gathers findings and has a model of the caller's summarise them.
//!
//! A caller without a model still gets a result, which says that it has no summary.

use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Pace, check_text, read, work};
use crate::run::{Agent, AgentError, Context, ModelLimits};

pub struct ResearchAgent;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    #[serde(default = "trends")]
    topic: String,
    #[serde(default)]
    step_ms: Pace,
}

fn trends() -> String {
    "AI trends".to_owned()
}

impl Input {
    fn read(input: &Value) -> Result<Self, String> {
        let input: Self = read(input)?;
        check_text("topic", &input.topic)?;
        input.step_ms.check()?;
        Ok(input)
    }
}

/// How long a model has to answer.
const PATIENCE: Duration = Duration::from_secs(120);
const LIMITS: ModelLimits = ModelLimits { max_tokens: 100 };
const STEPS: [(&str, f64); 4] = [
    ("Gathering sources...", 25.0),
    ("Analyzing data...", 50.0),
    ("Summarizing findings...", 75.0),
    ("Finalizing report...", 100.0),
];

#[async_trait]
impl Agent for ResearchAgent {
    fn name(&self) -> &'static str {
        "research_agent"
    }

    fn description(&self) -> &'static str {
        "Researches a topic and has the findings summarised by a model"
    }

    fn check(&self, input: &Value) -> Result<(), String> {
        Input::read(input).map(drop)
    }

    async fn run(&self, context: Context, input: Value) -> Result<Value, AgentError> {
        let Input { topic, step_ms } =
            Input::read(&input).map_err(|reason| AgentError::new("INVALID_REQUEST", reason))?;
        let [search @ .., report] = STEPS;
        for (number, (step, done)) in (1..).zip(search) {
            context.progress(done, 100.0, step).await;
            work(&context, step, step_ms, number).await?;
        }
        let text = format!("Please summarize the key findings for research on: {topic}");
        let messages = json!([{ "role": "user", "content": { "type": "text", "text": text } }]);
        let answer = context.ask_model(&messages, &LIMITS, Some(PATIENCE)).await;
        let summary = answer.accepted().and_then(text_of);
        work(&context, report.0, step_ms, 4).await?;
        context.progress(report.1, 100.0, report.0).await;
        Ok(json!({
            "topic": topic,
            "summary_source": if summary.is_some() { "client" } else { "none" },
            "summary": summary.unwrap_or_default(),
        }))
    }
}

/// The text of a model's answer: a plain string, or a message with one text.
fn text_of(content: &Value) -> Option<String> {
    let text = content.as_str().or_else(|| content["text"].as_str());
    let text = text.or_else(|| content["content"]["text"].as_str());
    text.filter(|text| !text.trim().is_empty()).map(str::to_owned)
}
