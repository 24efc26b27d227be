//! `research_agent`: gathers findings and asks the caller's model for a summary.
//!
//! A caller without a model still gets a result, which says that it has no summary. The topic can
//! be changed until the model is asked.

use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};
use shikiri_model::run::RunErrorCode;
use shikiri_runtime::run::{AgentError, DurableAgent, ModelLimits, RunContext};

use super::input_fields::{
    StepDuration, check_text, object_schema, read, text_schema, with_default,
};
use super::{UpdatableText, run_step};

pub struct ResearchAgent;

const NAME: &str = "research_agent";
const TOPIC: &str = "AI trends";
/// How long a model has to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
const LIMITS: ModelLimits = ModelLimits::new(100);
/// Each step, and the progress of the run when it begins.
const STEPS: [(&str, f64); 4] = [
    ("Gathering sources...", 0.0),
    ("Analyzing data...", 25.0),
    ("Summarizing findings...", 50.0),
    ("Finalizing report...", 75.0),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResearchInput {
    #[serde(default = "trends")]
    topic: String,
    #[serde(default)]
    step_ms: StepDuration,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResearchUpdate {
    topic: String,
}

fn trends() -> String {
    TOPIC.to_owned()
}

impl ResearchInput {
    fn read(input: &Value) -> Result<Self, String> {
        let input: Self = read(input)?;
        check_text("topic", &input.topic)?;
        input.step_ms.check()?;
        Ok(input)
    }
}

impl ResearchUpdate {
    fn read(update: &Value) -> Result<String, String> {
        let Self { topic } = read(update)?;
        check_text("topic", &topic)?;
        Ok(topic)
    }
}

#[async_trait]
impl DurableAgent for ResearchAgent {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        "Research agent"
    }

    fn description(&self) -> &'static str {
        "Researches a topic and has the findings summarised by a model"
    }

    fn input_schema(&self) -> Value {
        let topic = with_default(topic_schema(), json!(TOPIC));
        object_schema(json!({ "topic": topic, "step_ms": StepDuration::schema() }), &[])
    }

    fn output_schema(&self) -> Option<Value> {
        let properties = json!({
            "topic": { "type": "string" },
            "summary": { "type": "string", "description": "Empty if there is none" },
            "summary_source": {
                "type": "string",
                "enum": ["client", "engine", "none"],
                "description": "Whose model wrote the summary",
            },
        });
        Some(object_schema(properties, &["topic", "summary", "summary_source"]))
    }

    fn update_schema(&self) -> Option<Value> {
        Some(object_schema(json!({ "topic": topic_schema() }), &["topic"]))
    }

    fn tool_group(&self) -> &'static str {
        "samples"
    }

    /// It is for trying things out.
    fn allows_tool_answers(&self) -> bool {
        true
    }

    fn check(&self, input: &Value) -> Result<(), String> {
        ResearchInput::read(input).map(drop)
    }

    fn check_update(&self, update: &Value) -> Result<(), String> {
        ResearchUpdate::read(update).map(drop)
    }

    async fn run(&self, context: RunContext, input: Value) -> Result<Value, AgentError> {
        let ResearchInput { topic, step_ms } = ResearchInput::read(&input)
            .map_err(|reason| AgentError::new(RunErrorCode::InvalidRequest.as_str(), reason))?;
        let (field, read_update) = ("topic", ResearchUpdate::read as fn(&Value) -> _);
        let mut subject = UpdatableText { agent: NAME, field, read_update, text: topic };
        let [search @ .., report] = STEPS;
        for (number, (step, done)) in (1..).zip(search) {
            subject.apply_updates(&context).await;
            context.progress(done, 100.0, step).await;
            run_step(&context, step, step_ms, number).await?;
        }
        subject.apply_updates(&context).await;
        let text = format!("Please summarize the key findings for research on: {}", subject.text);
        let messages = json!([{ "role": "user", "content": { "type": "text", "text": text } }]);
        let answer = context.ask_model(&messages, &LIMITS, Some(ANSWER_TIMEOUT)).await;
        let topic = subject.settle(&context).await;
        let summary = answer.accepted().and_then(text_of);
        context.progress(report.1, 100.0, report.0).await;
        run_step(&context, report.0, step_ms, 4).await?;
        context.progress(100.0, 100.0, "Report ready").await;
        Ok(json!({
            "topic": topic,
            "summary_source": if summary.is_some() { "client" } else { "none" },
            "summary": summary.unwrap_or_default(),
        }))
    }
}

fn topic_schema() -> Value {
    text_schema("What is researched")
}

/// The text of a model's answer: a plain string, or a message with one text or several.
fn text_of(content: &Value) -> Option<String> {
    let text = content.as_str().or_else(|| content["text"].as_str());
    let text = text.or_else(|| content["content"]["text"].as_str()).map(str::to_owned);
    let blocks = content["content"].as_array().into_iter().flatten();
    let joined = || blocks.filter_map(|block| block["text"].as_str()).collect::<String>();
    Some(text.unwrap_or_else(joined)).filter(|text| !text.trim().is_empty())
}
