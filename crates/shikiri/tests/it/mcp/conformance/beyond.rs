//! What the suite does not look at in what it made necessary: answers before they are asked for,
//! agents that insist, and callers that are let go.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use shikiri::wiring::Offer;
use shikiri_mcp::McpOptions;
use shikiri_runtime::run::{CallerWaitPolicy, DurableAgent};
use shikiri_testkit::{Client, Hello, McpClient, ModernClient, until};

use super::asking::ask;
use super::fixture::{Lively, object};
use super::start;
use crate::mcp::served::Served;
use crate::mcp::{count_runs, linked_run};

const ASKS: &str = "test_input_required_result_elicitation";

fn accept(content: Value) -> Value {
    json!({ "action": "accept", "content": content })
}

/// The first call of a tool, with answers to questions that were not asked yet.
async fn call_with(host: &ModernClient, tool: &str, responses: Value) -> Value {
    let params = json!({ "name": tool, "arguments": {}, "inputResponses": responses });
    host.result("tools/call", params).await
}

/// Asks "confirm" for a low price, and again for a high one.
fn haggler() -> Arc<dyn DurableAgent> {
    Arc::new(Lively::new("haggler", "Asks the same twice", |context, _| {
        Box::pin(async move {
            let form = || object(json!({ "ok": { "type": "boolean" } }));
            let context = context.named("confirm");
            let low = ask(&context, form(), "1 dollar?").await?;
            let high = ask(&context, form(), "1000 dollars?").await?;
            Ok(json!(format!("{}, {}", low["ok"], high["ok"])))
        })
    }))
}

async fn haggling() -> (Served, ModernClient) {
    let served = Served::start(vec![haggler()]).await;
    let host = ModernClient::new(served.client());
    (served, host)
}

fn message(asked: &Value) -> &str {
    asked["inputRequests"]["confirm"]["params"]["message"].as_str().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_was_brought_along_is_used_only_if_it_fits() {
    let served = start().await;
    let host = ModernClient::new(served.client());
    let right = json!({ "user_name": accept(json!({ "name": "Akiko" })) });
    let done = call_with(&host, ASKS, right).await;
    assert_eq!(done["content"][0]["text"], "Hello, Akiko!", "{done}");
    for wrong in [accept(json!({ "name": 7 })), accept(json!({})), json!({}), json!("Akiko")] {
        let asked = call_with(&host, ASKS, json!({ "user_name": wrong })).await;
        assert_eq!(asked["resultType"], "input_required", "{asked}");
        assert!(asked["inputRequests"]["user_name"].is_object(), "{asked}");
    }
    let params = json!({ "name": ASKS, "inputResponses": [] });
    host.request("tools/call", params).await.error(-32602).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_was_brought_along_answers_once() {
    let (_served, host) = haggling().await;
    let brought = json!({ "confirm": accept(json!({ "ok": true })) });
    let asked = call_with(&host, "haggler", brought).await;
    assert_eq!(message(&asked), "1000 dollars?", "{asked}");
}

/// A yes to one question must never become a yes to another that has its name.
#[tokio::test(flavor = "multi_thread")]
async fn a_ticket_answers_what_was_asked_with_it_and_nothing_later() {
    let (served, host) = haggling().await;
    let cheap = host.called("haggler", json!({})).await;
    assert_eq!(message(&cheap), "1 dollar?");
    let run = answer_elsewhere(served.client()).await;
    let yes = json!({ "confirm": accept(json!({ "ok": true })) });
    let asked = host.go_on("haggler", json!({}), &cheap, yes.clone()).await.result().await;
    assert_eq!(message(&asked), "1000 dollars?", "{asked}");
    let path = format!("/v1/tenants/local/runs/{run}");
    let waiting = served.client().get(&path).await.expect(200);
    assert_eq!(waiting["questions"][0]["message"], "1000 dollars?", "{waiting}");
    let done = host.go_on("haggler", json!({}), &asked, yes).await.result().await;
    assert_eq!(done["content"][0]["text"], "false, true", "{done}");
}

/// Answers the only run's first question over REST and waits for its second.
async fn answer_elsewhere(client: &Client) -> String {
    let runs = client.get("/v1/tenants/local/runs").await.expect(200);
    let run = &runs["items"][0];
    let path = format!("/v1/tenants/local/runs/{}", run["id"].as_str().unwrap());
    let question = &run["questions"][0]["question_id"];
    let answer = json!({ "question_id": question, "answer": { "ok": false } });
    client.post(&format!("{path}/answers"), &answer).await.expect(200);
    until("it asks again", async || {
        let run = client.get(&path).await.expect(200);
        run["status"] == "waiting" && run["questions"][0]["message"] == "1000 dollars?"
    })
    .await;
    run["id"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn who_lacks_what_an_agent_insists_on_gets_no_run() {
    let served = start().await;
    let host = ModernClient::new(served.client()).with_capabilities(json!({ "roots": {} }));
    let refused = host.call("test_missing_capability", json!({})).await.error(-32021).await;
    assert_eq!(refused["data"], json!({ "requiredCapabilities": { "sampling": {} } }));
    let refused = host.call("failing_job", json!({})).await.error(-32021).await;
    let tasks = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    assert_eq!(refused["data"]["requiredCapabilities"], tasks);
    let older = McpClient::with_capabilities(served.client(), json!({})).await;
    older.call("test_missing_capability", json!({})).await.error(-32021).await;
    assert_eq!(count_runs(served.client(), "local").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_call_becomes_a_task_for_a_client_that_takes_tasks() {
    let slow = Lively {
        attendance: CallerWaitPolicy::Stays,
        ..Lively::new("slow", "Is slower than it says", |context, _| {
            Box::pin(async move {
                context.sleep(Duration::from_secs(3_600)).await;
                Ok(json!("late"))
            })
        })
    };
    let mcp = McpOptions { patience: Duration::from_millis(50), ..McpOptions::default() };
    let agents = vec![Arc::new(slow) as _];
    let served = Served::with(Offer { agents, mcp, ..Offer::default() }).await;
    let host = ModernClient::new(served.client()).with_tasks();
    let task = host.called("slow", json!({})).await;
    assert_eq!((&task["resultType"], &task["status"]), (&json!("task"), &json!("working")));
    let id = task["taskId"].as_str().unwrap();
    assert_eq!(host.task("get", id).await.result().await["status"], "working");
    let plain = ModernClient::new(served.client()).called("slow", json!({})).await;
    assert_eq!(plain["resultType"], "complete", "{plain}");
    assert!(linked_run(&plain).starts_with("run_"));
}

/// What the newest revision made of streams, an older client knows nothing of.
#[tokio::test(flavor = "multi_thread")]
async fn only_a_client_that_knows_to_come_back_is_released() {
    let served = start().await;
    let newest = McpClient::connect(served.client()).await;
    let mut call = newest.call("test_reconnection", json!({})).await;
    let messages = call.rest().await;
    assert!(messages.iter().all(|message| !message.is_reply()), "{messages:?}");
    let mut resumed = newest.resume(call.last_event_id().expect("an id")).await;
    assert_eq!(resumed.result().await["isError"], false);

    let hello = Hello { protocol: "2025-06-18".to_owned(), ..Hello::default() };
    let older = McpClient::open(served.client(), hello).await;
    assert_eq!(older.called("test_reconnection", json!({})).await["isError"], false);
    let stateless = ModernClient::new(served.client());
    assert_eq!(stateless.called("test_reconnection", json!({})).await["isError"], false);
}

/// Who sends it in the newer era, in so many words, is told that there is no such method there.
#[tokio::test(flavor = "multi_thread")]
async fn a_handshake_is_of_the_older_era_unless_its_body_says_otherwise() {
    let served = start().await;
    let host = ModernClient::new(served.client());
    let params = json!({
        "protocolVersion": "2026-07-28", "capabilities": {}, "clientInfo": { "name": "test" },
    });
    let mut handshake = host.prepare("initialize", params);
    let mut refused = host.send(&handshake).await;
    refused.error(-32601).await;
    assert_eq!(refused.status, 404);
    handshake.body["params"].as_object_mut().unwrap().remove("_meta");
    let mut opened = host.send(&handshake).await;
    assert_eq!(opened.result().await["protocolVersion"], "2025-11-25");
    assert!(opened.header("mcp-session-id").is_some());
}
