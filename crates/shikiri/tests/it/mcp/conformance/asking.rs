//! Agents that ask: their caller's human, its model, or its client for its folders.

use std::time::Duration;

use serde_json::{Value, json};
use shikiri_model::run::{QuestionAnswer, QuestionKind};
use shikiri_runtime::run::{AgentError, ModelLimits, RunContext};

use super::fixture::{Lively, no_arguments, object, text};
use super::prompts::of_user;

/// Makes the text of a prompt.
pub(super) const CONTEXT_AGENT: &str = "test_context_agent";

/// Longer than the suite takes; but nothing waits for ever.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(120));

pub(super) fn agents() -> Vec<Lively> {
    let mut agents = asking_while_connected();
    agents.extend(asking_back());
    agents.push(Lively {
        insists_on: &[QuestionKind::Model],
        ..Lively::new("test_missing_capability", "Needs a model", |context, _| {
            Box::pin(async move { said_by_model(&context, "Say something", 100).await })
        })
    });
    agents.push(Lively::new(CONTEXT_AGENT, "Asks for a context", |context, _| {
        Box::pin(async move {
            let form = object(json!({ "context": { "type": "string" } }));
            let question = "What context should the prompt use?";
            let answer = ask(&context.named("user_context"), form, question).await?;
            let context = answer["context"].as_str().unwrap_or_default();
            Ok(of_user(vec![text(format!("Use this context: {context}"))]))
        })
    }));
    agents
}

/// What the suite asks for while the caller is connected.
fn asking_while_connected() -> Vec<Lively> {
    vec![
        Lively {
            input: object(json!({ "prompt": { "type": "string" } })),
            ..Lively::new("test_sampling", "Asks the caller's model", |context, input| {
                Box::pin(async move {
                    let prompt = input["prompt"].as_str().unwrap_or_default();
                    let said = said_by_model(&context, prompt, 100).await?;
                    Ok(json!(format!("LLM response: {}", said.as_str().unwrap_or_default())))
                })
            })
        },
        Lively {
            input: object(json!({ "message": { "type": "string" } })),
            ..Lively::new("test_elicitation", "Asks the caller's human", |context, input| {
                Box::pin(async move {
                    let text = json!({ "type": "string" });
                    let form = object(json!({ "username": text, "email": text }));
                    let message = input["message"].as_str().unwrap_or_default();
                    let answer = context.ask_human(form, message, PATIENCE).await;
                    Ok(told("User response", &answer))
                })
            })
        },
        Lively::new("test_elicitation_sep1034_defaults", "Suggests answers", |context, _| {
            Box::pin(async move {
                let answer = context.ask_human(defaults(), "Please check", PATIENCE).await;
                Ok(told("Elicitation completed", &answer))
            })
        }),
        Lively::new("test_elicitation_sep1330_enums", "Gives choices", |context, _| {
            Box::pin(async move {
                let answer = context.ask_human(choices(), "Please choose", PATIENCE).await;
                Ok(told("Elicitation completed", &answer))
            })
        }),
        Lively::new("test_streaming_elicitation", "Says something, then asks", |context, _| {
            Box::pin(async move {
                context.log("info", "conformance", "about to ask").await;
                let form = object(json!({ "name": { "type": "string" } }));
                Ok(told("User response", &context.ask_human(form, "Your name?", PATIENCE).await))
            })
        }),
    ]
}

/// What the suite asks for by an answer that asks back.
fn asking_back() -> Vec<Lively> {
    vec![
        Lively::new("test_input_required_result_elicitation", "Asks a name", |context, _| {
            Box::pin(async move {
                let name = ask_name(&context.named("user_name"), "What is your name?").await?;
                Ok(json!(format!("Hello, {name}!")))
            })
        }),
        Lively::new("test_input_required_result_sampling", "Asks a model", |context, _| {
            Box::pin(async move {
                let context = context.named("capital_question");
                said_by_model(&context, "What is the capital of France?", 100).await
            })
        }),
        Lively::new("test_input_required_result_list_roots", "Asks for folders", |context, _| {
            Box::pin(async move {
                let answer = context.named("client_roots").ask_roots(PATIENCE).await;
                Ok(told("Roots", &answer))
            })
        }),
        Lively::new("test_input_required_result_request_state", "Asks for a yes", confirm),
        Lively::new("test_input_required_result_tampered_state", "Asks for a yes", confirm),
        Lively::new("test_input_required_result_multiple_inputs", "Asks for all", |context, _| {
            Box::pin(async move {
                let (human, model) = (context.named("user_name"), context.named("greeting"));
                let (name, greeting, roots) = tokio::join!(
                    ask_name(&human, "What is your name?"),
                    said_by_model(&model, "Generate a greeting", 50),
                    context.named("client_roots").ask_roots(PATIENCE),
                );
                Ok(json!(format!("{}, {}! {}", greeting?, name?, told("Roots", &roots))))
            })
        }),
        Lively::new("test_input_required_result_multi_round", "Asks twice", |context, _| {
            Box::pin(async move {
                let name = ask_name(&context.named("step1"), "Step 1: What is your name?").await?;
                let form = object(json!({ "color": { "type": "string" } }));
                let question = "Step 2: What is your favorite color?";
                let answer = ask(&context.named("step2"), form, question).await?;
                Ok(json!(format!("{name} likes {}", answer["color"])))
            })
        }),
        Lively::new("test_input_required_result_capabilities", "Asks whom it can", |context, _| {
            Box::pin(async move {
                let form = object(json!({ "name": { "type": "string" } }));
                let (human, model) = (context.named("human"), context.named("model"));
                let (human, model) = tokio::join!(
                    human.ask_human(form, "What is your name?", PATIENCE),
                    said_by_model(&model, "Generate a greeting", 50),
                );
                Ok(json!(format!("{}, {model:?}", told("Human", &human))))
            })
        }),
    ]
}

fn confirm(
    context: RunContext,
    _: Value,
) -> futures_util::future::BoxFuture<'static, Result<Value, AgentError>> {
    Box::pin(async move {
        let form = object(json!({ "ok": { "type": "boolean" } }));
        let answer = ask(&context.named("confirm"), form, "Please confirm").await?;
        Ok(json!(format!("state-ok: {}", answer["ok"])))
    })
}

pub(super) async fn ask_name(context: &RunContext, question: &str) -> Result<String, AgentError> {
    let form = object(json!({ "name": { "type": "string" } }));
    let answer = ask(context, form, question).await?;
    Ok(answer["name"].as_str().unwrap_or_default().to_owned())
}

/// The content of a yes; anything else fails the agent.
pub(super) async fn ask(
    context: &RunContext,
    form: Value,
    question: &str,
) -> Result<Value, AgentError> {
    accepted(context.ask_human(form, question, PATIENCE).await)
}

async fn said_by_model(
    context: &RunContext,
    prompt: &str,
    max_tokens: u32,
) -> Result<Value, AgentError> {
    let messages = json!([{ "role": "user", "content": text(prompt) }]);
    let limits = ModelLimits::new(max_tokens);
    let answer = accepted(context.ask_model(&messages, &limits, PATIENCE).await)?;
    Ok(answer["content"]["text"].clone())
}

fn accepted(answer: QuestionAnswer) -> Result<Value, AgentError> {
    match answer.accepted() {
        Some(content) => Ok(content.clone()),
        None => Err(AgentError::new("NOT_ANSWERED", told("Answer", &answer).to_string())),
    }
}

fn told(what: &str, answer: &QuestionAnswer) -> Value {
    json!(format!("{what}: action={}, content={}", json!(answer.action), answer.content))
}

fn defaults() -> Value {
    let property = |kind: &str, default: Value| json!({ "type": kind, "default": default });
    let mut form = object(json!({
        "name": property("string", json!("John Doe")),
        "age": property("integer", json!(30)),
        "score": property("number", json!(95.5)),
        "status": property("string", json!("active")),
        "verified": property("boolean", json!(true)),
    }));
    form["properties"]["status"]["enum"] = json!(["active", "inactive", "pending"]);
    form["required"] = json!([]);
    form
}

fn choices() -> Value {
    let titled = json!([
        { "const": "value1", "title": "First Option" },
        { "const": "value2", "title": "Second Option" },
        { "const": "value3", "title": "Third Option" },
    ]);
    let plain = json!({ "type": "string", "enum": ["option1", "option2", "option3"] });
    let mut form = no_arguments();
    form["properties"] = json!({
        "untitledSingle": plain,
        "titledSingle": { "type": "string", "oneOf": titled },
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": { "type": "array", "items": plain },
        "titledMulti": { "type": "array", "items": { "anyOf": titled } },
    });
    form
}
