//! What becomes of a run whose caller goes away before its answer.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use shikiri_mcp::McpOptions;
use shikiri_model::ids::TenantId;
use shikiri_model::run::{Run, RunStatus};
use tower::ServiceExt;

use crate::http_client::request;
use crate::stdio_client::{StdioClient, modern};
use crate::world::World;

const VERSION: &str = "2026-07-28";

/// A call of the newer era, up to the head of its answer.
async fn begin(world: &World, params: Value) -> Response<Body> {
    let name = params["name"].as_str().unwrap().to_owned();
    let message = request(1, "tools/call", modern(params, VERSION));
    let request = Request::builder()
        .method("POST")
        .uri("/mcp")
        .header("authorization", format!("Bearer {}", world.key))
        .header("content-type", "application/json")
        .header("mcp-protocol-version", VERSION)
        .header("mcp-method", "tools/call")
        .header("mcp-name", name)
        .body(Body::from(message))
        .unwrap();
    world.router.clone().oneshot(request).await.unwrap()
}

/// Reads the first frame of a stream.
async fn first_frame(response: &mut Response<Body>) {
    response.body_mut().frame().await.unwrap().unwrap();
}

fn long(steps: u32) -> Value {
    let arguments = json!({ "steps": steps, "step_ms": 5 });
    json!({
        "name": "long_running_agent", "arguments": arguments, "_meta": { "progressToken": "p" },
    })
}

/// Waits until the only run there is has this status.
async fn until_status(world: &World, wanted: RunStatus) {
    let looking = async {
        loop {
            let (runs, _) =
                world.app.runtime.list_runs(&TenantId::local(), None, None, 10).await.unwrap();
            if runs.iter().any(|run| run.value.status == wanted) {
                assert_eq!(runs.len(), 1);
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), looking)
        .await
        .unwrap_or_else(|_| panic!("it did not become {wanted:?}"));
}

#[tokio::test]
async fn a_modern_caller_that_disconnects_stops_its_run() {
    let world = World::new().await;
    let mut response = begin(&world, long(10_000)).await;
    first_frame(&mut response).await;
    drop(response);
    until_status(&world, RunStatus::Cancelled).await;
}

/// The connection broke before the question reached the client, which never saw a `requestState`.
#[tokio::test]
async fn a_lost_first_round_leaves_no_run_behind() {
    let world = World::new().await;
    let params = json!({ "name": "travel_agent", "arguments": { "step_ms": 1 } });
    let response = begin(&world, params).await;
    drop(response);
    until_status(&world, RunStatus::Cancelled).await;
}

#[tokio::test]
async fn what_was_started_to_last_goes_on_without_its_caller() {
    let world = World::new().await;
    let mut keyed = long(200);
    keyed["_meta"]["shikiri/call"] = json!("once");
    let mut response = begin(&world, keyed).await;
    first_frame(&mut response).await;
    drop(response);
    until_status(&world, RunStatus::Completed).await;

    let world = World::new().await;
    let input = json!({ "steps": 20, "step_ms": 5 });
    let started = json!({
        "name": "run_agent", "arguments": { "agent": "long_running_agent", "input": input },
    });
    let answer = world.post_modern(VERSION, "tools/call", started).await.reply();
    let status = &answer["result"]["structuredContent"];
    assert!(status["next_step"].as_str().unwrap().contains("whether or not"), "{status}");
    let run = status["run_id"].as_str().unwrap();
    let wait = json!({ "name": "run_wait", "arguments": { "run_id": run } });
    drop(begin(&world, wait).await);
    until_status(&world, RunStatus::Completed).await;
}

/// The travel agent's question, and the request that answers it.
async fn answered(world: &World, step_ms: u32) -> Value {
    let mut params = json!({ "name": "travel_agent", "arguments": { "step_ms": step_ms } });
    let asked = world.post_modern(VERSION, "tools/call", params.clone()).await.reply();
    let asked = &asked["result"];
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let key = asked["inputRequests"].as_object().unwrap().keys().next().unwrap();
    params["requestState"] = asked["requestState"].clone();
    params["inputResponses"] =
        json!({ key: { "action": "accept", "content": { "confirm": true, "notes": "once" } } });
    params
}

#[tokio::test]
async fn a_repeated_answer_attaches_to_the_run_that_it_started() {
    let world = World::new().await;
    let params = answered(&world, 1).await;
    let booked = world.post_modern(VERSION, "tools/call", params.clone()).await.reply();
    assert_eq!(booked["result"]["structuredContent"]["notes"], "once", "{booked}");
    let again = world.post_modern(VERSION, "tools/call", params.clone()).await.reply();
    assert_eq!(again["result"]["structuredContent"], booked["result"]["structuredContent"]);
    let mut other = params;
    other["inputResponses"] = json!({});
    let refused = world.post_modern(VERSION, "tools/call", other).await.reply();
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    until_status(&world, RunStatus::Completed).await;
}

/// A world in which an answer can be sent again for so long.
async fn repeatable(repeat_time: Duration) -> World {
    World::with_options(McpOptions { repeat_time, ..McpOptions::default() }).await
}

/// As HTTP clients do whose connection is reset: the run must not be stopped under the second
/// request by the end of the first.
#[tokio::test]
async fn an_answer_that_is_sent_again_after_a_broken_connection_is_the_same_booking() {
    let world = repeatable(Duration::from_secs(60)).await;
    let params = answered(&world, 100).await;
    let first = begin(&world, params.clone()).await;
    drop(first);
    let again = world.post_modern(VERSION, "tools/call", params).await.reply();
    assert_eq!(again["result"]["structuredContent"]["booked"], true, "{again}");
    until_status(&world, RunStatus::Completed).await;
}

/// The step that is under way ends first.
#[tokio::test]
async fn the_run_of_an_answer_whose_caller_leaves_for_good_is_asked_to_stop() {
    let world = repeatable(Duration::from_millis(1)).await;
    let params = answered(&world, 1_500).await;
    drop(begin(&world, params).await);
    let looking = async {
        loop {
            let (runs, _) =
                world.app.runtime.list_runs(&TenantId::local(), None, None, 10).await.unwrap();
            let is_stopped = |run: &Run| run.cancel_requested || run.status == RunStatus::Cancelled;
            if runs.iter().any(|run| is_stopped(&run.value)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), looking).await.unwrap();
}

#[tokio::test]
async fn a_modern_client_that_closes_its_pipe_stops_its_run() {
    let world = World::new().await;
    let mut client = StdioClient::start(&world);
    client.begin("tools/call", modern(long(10_000), VERSION)).await;
    client.until(|m| m["method"] == "notifications/progress").await;
    client.end().await;
    until_status(&world, RunStatus::Cancelled).await;
}
