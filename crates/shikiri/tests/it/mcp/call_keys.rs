//! A caller's own name for a call: sent twice, it is one run.

use serde_json::{Value, json};
use shikiri_testkit::{McpClient, ModernClient, TestApp};

use super::{count_runs, linked_run};
use crate::PROGRAM;

fn params(key: &str, steps: u64) -> Value {
    json!({
        "name": "long_running_agent",
        "arguments": { "steps": steps, "step_ms": 1 },
        "_meta": { "shikiri/call": key },
    })
}

async fn run_of(host: &McpClient, key: &str, steps: u64) -> String {
    let mut call = host.request("tools/call", params(key, steps)).await;
    linked_run(&call.result().await)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_sent_again_is_the_same_run_in_any_session() {
    let app = TestApp::new(PROGRAM).start().await;
    let first = McpClient::connect(&app.client()).await;
    let second = McpClient::connect(&app.client()).await;
    let run = run_of(&first, "呼び出し", 3).await;
    assert_eq!(run_of(&first, "呼び出し", 3).await, run);
    assert_eq!(run_of(&second, "呼び出し", 3).await, run);
    // The newer era too: the same task.
    let newer = ModernClient::new(&app.client());
    let mut call = newer.request("tools/call", params("呼び出し", 3)).await;
    assert_eq!(linked_run(&call.result().await), run);
    assert_eq!(count_runs(&app.client(), "local").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_means_nothing_for_other_arguments_or_to_another_caller() {
    let app = TestApp::new(PROGRAM).start().await;
    let made = app.client().post("/v1/tenants/local/keys", &json!({ "name": "b" })).await;
    let made = made.expect(201);
    let other = app.client().with_key(made["key"].as_str().unwrap());
    let first = McpClient::connect(&app.client()).await;
    let stranger = McpClient::connect(&other).await;
    let run = run_of(&first, "k", 3).await;
    assert_ne!(run_of(&first, "k", 4).await, run, "other arguments");
    assert_ne!(run_of(&first, "k2", 3).await, run, "another key");
    assert_ne!(run_of(&stranger, "k", 3).await, run, "another caller");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_none_is_refused_and_nothing_is_run() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = McpClient::connect(&app.client()).await;
    for key in [json!(""), json!(1), json!("x".repeat(201)), json!({})] {
        let mut params = params("k", 1);
        params["_meta"]["shikiri/call"] = key.clone();
        let mut call = host.request("tools/call", params).await;
        call.error(-32602).await;
    }
    assert_eq!(count_runs(&app.client(), "local").await, 0);
}
