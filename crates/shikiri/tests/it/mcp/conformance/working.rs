//! Agents that tell how far they are, and those that callers come back for.

use std::time::Duration;

use serde_json::json;
use shikiri_runtime::run::{AgentError, CallerWaitPolicy};

use super::asking::{ask, ask_name};
use super::fixture::{Lively, object};

/// Between two things that are told.
const PAUSE: Duration = Duration::from_millis(50);

pub(super) fn agents() -> Vec<Lively> {
    let mut agents = telling();
    agents.extend(jobs());
    agents
}

fn telling() -> Vec<Lively> {
    vec![
        Lively::new("test_tool_with_logging", "Says what it does", |context, _| {
            Box::pin(async move {
                context.log("info", "conformance", "Tool execution started").await;
                context.sleep(PAUSE).await;
                context.log("info", "conformance", "Tool processing data").await;
                context.sleep(PAUSE).await;
                context.log("info", "conformance", "Tool execution completed").await;
                Ok(json!("Tool with logging executed successfully"))
            })
        }),
        Lively::new("test_logging_tool", "Says more than is wanted", |context, _| {
            Box::pin(async move {
                for level in ["debug", "info", "error"] {
                    context.log(level, "conformance", "not asked for").await;
                }
                Ok(json!("Done"))
            })
        }),
        Lively::new("test_tool_with_progress", "Tells how far it is", |context, _| {
            Box::pin(async move {
                for done in [0.0, 50.0, 100.0] {
                    context.progress(done, 100.0, "working").await;
                    context.sleep(PAUSE).await;
                }
                Ok(json!("Tool with progress executed successfully"))
            })
        }),
        Lively::new("test_reconnection", "Lets its caller come back", |context, _| {
            Box::pin(async move {
                context.release_callers().await;
                context.sleep(Duration::from_millis(100)).await;
                Ok(json!("Reconnection test completed"))
            })
        }),
    ]
}

fn jobs() -> Vec<Lively> {
    let text = json!({ "type": "string" });
    vec![
        Lively {
            input: object(json!({ "name": text })),
            attendance: CallerWaitPolicy::Stays,
            ..Lively::new("greet", "Greets", |_, input| {
                Box::pin(async move {
                    Ok(json!(format!("Hello, {}!", input["name"].as_str().unwrap_or_default())))
                })
            })
        },
        Lively {
            input: json!({
                "type": "object",
                "properties": { "seconds": { "type": "number", "minimum": 0 }, "label": text },
                "required": ["seconds"],
            }),
            ..Lively::new("slow_compute", "Takes as long as it is told", |context, input| {
                Box::pin(async move {
                    let seconds = input["seconds"].as_f64().unwrap_or_default();
                    context.sleep(Duration::from_secs_f64(seconds)).await;
                    Ok(json!(format!("{} took {seconds} s", input["label"])))
                })
            })
        },
        Lively {
            attendance: CallerWaitPolicy::Leaves,
            ..Lively::new("failing_job", "Fails after a while", |context, _| {
                Box::pin(async move {
                    context.sleep(Duration::from_secs(1)).await;
                    Err(AgentError::new("JOB_FAILED", "This job always fails"))
                })
            })
        },
        Lively::new("protocol_error_job", "Fails as only a server can", |_, _| {
            Box::pin(async move { Err(AgentError::new("INTERNAL_ERROR", "Broken on purpose")) })
        }),
        Lively {
            input: object(json!({ "filename": text })),
            ..Lively::new("confirm_delete", "Deletes nothing, after a yes", |context, input| {
                Box::pin(async move {
                    let form = object(json!({ "confirm": { "type": "boolean" } }));
                    let answer = ask(&context, form, "Really delete it?").await?;
                    Ok(json!(format!("{}: {}", input["filename"], answer["confirm"])))
                })
            })
        },
        Lively::new("multi_input", "Asks two things at once", |context, _| {
            Box::pin(async move {
                let form = object(json!({ "confirm": { "type": "boolean" } }));
                let (name, sure) = tokio::join!(
                    ask_name(&context, "What is your name?"),
                    ask(&context, form, "Are you sure?"),
                );
                Ok(json!(format!("{}: {}", name?, sure?["confirm"])))
            })
        }),
        Lively {
            attendance: CallerWaitPolicy::LeavesOnceAsked,
            ..Lively::new("test_tool_with_task", "Asks, then takes its time", |context, _| {
                Box::pin(async move {
                    let name = ask_name(&context.named("user_name"), "What is your name?").await?;
                    context.sleep(Duration::from_millis(200)).await;
                    Ok(json!(format!("Hello, {name}!")))
                })
            })
        },
    ]
}
