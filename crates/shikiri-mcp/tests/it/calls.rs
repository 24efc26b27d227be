//! Tool calls that follow a run: progress, questions to the client, cancelling.

use serde_json::{Value, json};

use crate::stdio_client::{StdioClient, modern};
use crate::world::World;

fn call(tool: &str, arguments: Value) -> Value {
    json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": "p1" } })
}

fn accept(notes: &str) -> Value {
    json!({ "action": "accept", "content": { "confirm": true, "notes": notes } })
}

#[tokio::test]
async fn progress_is_reported_under_the_callers_token() {
    let world = World::new().await;
    let mut client = StdioClient::connect(&world).await;
    let input = json!({ "steps": 3, "step_ms": 1 });
    let reply = client.request("tools/call", call("long_running_agent", input)).await;
    assert_eq!(reply["result"]["structuredContent"], json!({ "steps": 3 }), "{reply}");
    let progress = client.seen.iter().filter(|m| m["method"] == "notifications/progress");
    let progress: Vec<f64> = progress
        .map(|notice| {
            assert_eq!(notice["params"]["progressToken"], "p1");
            notice["params"]["progress"].as_f64().unwrap()
        })
        .collect();
    assert!(progress.len() >= 2, "{progress:?}");
    assert!(progress.is_sorted_by(|one, next| one < next), "{progress:?}");

    // Without a token no progress is sent.
    let seen = client.seen.len();
    client.call("long_running_agent", json!({ "steps": 3, "step_ms": 1 })).await;
    let more = &client.seen[seen..];
    assert!(more.iter().all(|m| m["method"] != "notifications/progress"), "{more:#?}");
}

#[tokio::test]
async fn an_elicitation_is_answered_by_the_client() {
    let world = World::new().await;
    let mut client = StdioClient::connect(&world).await;
    let id = client.begin("tools/call", call("travel_agent", json!({ "step_ms": 1 }))).await;
    let question = client.until(|m| m["method"] == "elicitation/create").await;
    assert!(question["params"]["requestedSchema"]["properties"]["confirm"].is_object());
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": accept("by train") });
    client.send(&answer).await;
    let reply = client.reply(id).await;
    let result = &reply["result"]["structuredContent"];
    assert_eq!((&result["booked"], &result["notes"]), (&json!(true), &json!("by train")));
}

#[tokio::test]
async fn a_declined_elicitation_books_nothing() {
    let world = World::new().await;
    let mut client = StdioClient::connect(&world).await;
    let id = client.begin("tools/call", call("travel_agent", json!({ "step_ms": 1 }))).await;
    let question = client.until(|m| m["method"] == "elicitation/create").await;
    let declined = json!({ "action": "decline" });
    client.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": declined })).await;
    let reply = client.reply(id).await;
    assert_eq!(reply["result"]["structuredContent"]["booked"], false, "{reply}");
}

/// Multi round-trip requests: the question is a result, and the answer comes with the same request
/// sent again.
#[tokio::test]
async fn the_newer_era_asks_by_a_result_and_takes_one_answer() {
    let world = World::new().await;
    let params = call("travel_agent", json!({ "step_ms": 1 }));
    let asked = world.post_modern("2026-07-28", "tools/call", params.clone()).await.reply();
    let asked = &asked["result"];
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let (key, question) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
    assert_eq!(question["method"], "elicitation/create", "{question}");

    let mut again = params;
    again["requestState"] = asked["requestState"].clone();
    again["inputResponses"] = json!({ key: accept("by boat") });
    let reply = world.post_modern("2026-07-28", "tools/call", again.clone()).await.reply();
    assert_eq!(reply["result"]["structuredContent"]["notes"], "by boat", "{reply}");
    again["inputResponses"] = json!({ key: accept("by train") });
    let used = world.post_modern("2026-07-28", "tools/call", again).await.reply();
    assert_eq!(used["error"]["code"], -32602, "{used}");
}

async fn run_status_until_ended(client: &mut StdioClient) -> Value {
    let listed = client.call("run_list", json!({})).await;
    let run = &listed["structuredContent"]["runs"][0]["run_id"];
    loop {
        let waited = client.call("run_wait", json!({ "run_id": run, "max_seconds": 10 })).await;
        let status = &waited["structuredContent"]["status"];
        if status != "queued" && status != "running" {
            return status.clone();
        }
    }
}

#[tokio::test]
async fn a_cancelled_call_of_the_older_era_stops_its_run_and_is_not_answered() {
    let world = World::new().await;
    let mut client = StdioClient::connect(&world).await;
    let input = json!({ "steps": 10_000, "step_ms": 5 });
    let id = client.begin("tools/call", call("long_running_agent", input)).await;
    client.until(|m| m["method"] == "notifications/progress").await;
    let params = json!({ "requestId": id });
    let cancelled =
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
    client.send(&cancelled).await;
    assert_eq!(run_status_until_ended(&mut client).await, "cancelled");
    let seen = std::mem::take(&mut client.seen);
    let all: Vec<_> = seen.into_iter().chain(client.end().await).collect();
    assert!(!all.iter().any(|m| m["id"] == id && m.get("method").is_none()), "{all:#?}");
}

#[tokio::test]
async fn a_cancelled_request_of_the_newer_era_stops_its_run() {
    let world = World::new().await;
    let mut client = StdioClient::connect(&world).await;
    let params = call("long_running_agent", json!({ "steps": 10_000, "step_ms": 5 }));
    let id = client.begin("tools/call", modern(params, "2026-07-28")).await;
    client.until(|m| m["method"] == "notifications/progress").await;
    let params = json!({ "requestId": id });
    let cancelled =
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
    client.send(&cancelled).await;
    assert_eq!(run_status_until_ended(&mut client).await, "cancelled");
    let seen = std::mem::take(&mut client.seen);
    let all: Vec<_> = seen.into_iter().chain(client.end().await).collect();
    assert!(!all.iter().any(|m| m["id"] == id && m.get("method").is_none()), "{all:#?}");
}
