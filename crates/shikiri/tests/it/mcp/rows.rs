//! What is required of agents over MCP: listing, calling, watching, stopping and redirecting them.

use serde_json::{Value, json};
use shikiri_testkit::{McpClient, Message, ModernClient, TestApp};

use super::served::{Barrier, Served, agent};
use super::{count_runs, linked_run, progress, run_over_rest, yes};
use crate::PROGRAM;

#[tokio::test(flavor = "multi_thread")]
async fn agents_are_tools_that_a_host_lists_calls_and_monitors() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = McpClient::connect(&app.client()).await;
    let listed = host.result("tools/list", json!({})).await;
    let names: Vec<_> = listed["tools"].as_array().unwrap().iter().map(|t| &t["name"]).collect();
    for agent in ["long_running_agent", "research_agent", "travel_agent"] {
        assert!(names.contains(&&json!(agent)), "{names:?}");
    }

    let input = json!({ "steps": 3, "step_ms": 1 });
    let mut call = host.call("long_running_agent", input).await;
    let result = call.result().await;
    assert_eq!(result["structuredContent"], json!({ "steps": 3 }));
    assert_eq!(result["isError"], false);
    let told: Vec<_> = progress(&call.seen).iter().map(|p| p["progress"].clone()).collect();
    assert_eq!(told, [json!(33.33), json!(66.66), json!(100.0)]);

    // Another session monitors it by what the server publishes.
    let run = linked_run(&result);
    let monitor = McpClient::connect(&app.client()).await;
    let status = monitor.called("run_status", json!({ "run_id": run })).await;
    assert_eq!(
        status["structuredContent"],
        json!({
            "run_id": run, "agent": "long_running_agent", "status": "completed",
            "progress": 100.0, "total": 100.0, "message": "step 3 done", "questions": [],
            "result": { "steps": 3 },
        })
    );
    let uri = format!("shikiri://runs/{run}");
    let read = monitor.result("resources/read", json!({ "uri": uri })).await;
    let published: Value =
        serde_json::from_str(read["contents"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(published, status["structuredContent"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_door_is_at_mcp_behind_a_key_and_answers_calls_with_a_stream() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = McpClient::connect(&app.client()).await;
    let mut call = host.call("long_running_agent", json!({ "steps": 1, "step_ms": 1 })).await;
    assert_eq!((call.status, call.header("content-type")), (200, Some("text/event-stream")));
    assert!(call.header("cache-control").unwrap().contains("no-cache"));
    assert_eq!(call.header("x-content-type-options"), Some("nosniff"));
    call.result().await;
    // Anywhere else it is not, and without a key it is not there either.
    for path in ["/mcp/", "/mcp/x", "/sse", "/v1/mcp"] {
        assert_eq!(app.client().post(path, &json!({})).await.status, 404, "{path}");
    }
    assert_eq!(app.client().without_key().post("/mcp", &json!({})).await.status, 401);
}

/// Tells, shows a part of its result, waits at the barrier, shows another, and ends.
fn teller(barrier: &Barrier) -> std::sync::Arc<dyn shikiri_runtime::run::DurableAgent> {
    let barrier = barrier.clone();
    agent("teller", move |context, _| {
        let barrier = barrier.clone();
        async move {
            context.progress(10.0, 100.0, "10% of the pages read").await;
            context.partial(&json!({ "pages": [1] })).await;
            barrier.pass(&context).await?;
            context.partial(&json!({ "pages": [1, 2] })).await;
            context.progress(100.0, 100.0, "all read").await;
            Ok(json!({ "pages": 2 }))
        }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_and_partial_results_come_before_the_answer_and_can_be_inspected() {
    let barrier = Barrier::new();
    let served = Served::start(vec![teller(&barrier)]).await;
    let host = McpClient::connect(served.client()).await;
    let mut call = host.call("teller", json!({})).await;
    let partial = call.until("a partial result", is_partial).await;
    let told = &progress(&call.seen)[0];
    assert_eq!(
        (&told["progress"], &told["message"]),
        (&json!(10.0), &json!("10% of the pages read"))
    );
    let data = &partial.json["params"]["data"];
    assert_eq!(data["partial"], json!({ "pages": [1] }));

    // The run is named, so a client that sees a part may look at it, redirect it or stop it.
    let status = host.called("run_status", json!({ "run_id": data["run_id"] })).await;
    let status = &status["structuredContent"];
    assert_eq!((&status["status"], &status["progress"]), (&json!("running"), &json!(10.0)));
    barrier.lift(1);
    assert_eq!(call.result().await["structuredContent"], json!({ "pages": 2 }));
    assert_eq!(call.seen.iter().filter(|m| is_partial(m)).count(), 2);
}

fn is_partial(message: &Message) -> bool {
    message.json["params"]["logger"] == "partial_result"
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_has_exactly_one_response_however_much_it_tells() {
    let talker = agent("talker", |context, _| async move {
        for i in 1..=50_u32 {
            context.progress(f64::from(i), 50.0, "on").await;
            context.partial(&json!({ "i": i })).await;
            context.log("info", "talker", "said").await;
        }
        Ok(json!({ "said": 150 }))
    });
    let served = Served::start(vec![talker]).await;
    let legacy = McpClient::connect(served.client()).await;
    let mut older = legacy.call_as(&json!("one"), &json!(1), "talker", json!({})).await;
    older.rest().await;
    let modern = ModernClient::new(served.client()).with_log_level("debug");
    let mut request = modern.prepare(
        "tools/call",
        json!({
            "name": "talker", "arguments": {}, "_meta": { "progressToken": 1 },
        }),
    );
    request.body["id"] = json!("one");
    let mut newer = modern.send(&request).await;
    newer.rest().await;
    for (era, seen) in [("older", older.seen), ("newer", newer.seen)] {
        let messages: Vec<_> = seen.iter().filter(|message| !message.json.is_null()).collect();
        let (answer, told) = messages.split_last().unwrap();
        assert_eq!(answer.json["id"], "one", "{era}");
        assert_eq!(answer.json["result"]["structuredContent"], json!({ "said": 150 }), "{era}");
        assert!(told.iter().all(|message| message.json.get("id").is_none()), "{era}");
        assert!(!told.iter().any(|message| message.is_reply()), "{era}");
        for (method, count) in [("notifications/progress", 50), ("notifications/message", 100)] {
            let of_method = told.iter().filter(|message| message.method() == Some(method));
            // A heartbeat may have come besides.
            assert!(of_method.count() >= count, "{era} {method}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_agent_is_redirected_by_run_update() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = McpClient::connect(&app.client()).await;
    let mut call = host.call("travel_agent", json!({ "step_ms": 1_500 })).await;
    call.until("progress", |m| m.method() == Some("notifications/progress")).await;
    let uri = host.result("resources/list", json!({})).await["resources"][0]["uri"].clone();
    let run = uri.as_str().unwrap().trim_start_matches("shikiri://runs/").to_owned();
    let input = json!({ "run_id": run, "input": { "destination": "Kyoto" } });
    let updated = host.called("run_update", input).await;
    assert_eq!((&updated["isError"], linked_run(&updated)), (&json!(false), run.clone()));
    let question = call.question().await;
    assert_eq!(
        question["params"]["message"],
        "Please confirm the estimated price of $1200 for your trip to Kyoto"
    );
    assert_eq!(host.answer(&question, yes("")).await.status, 202);
    let result = call.result().await;
    assert_eq!(
        (&result["structuredContent"]["destination"], &result["structuredContent"]["booked"]),
        (&json!("Kyoto"), &json!(true))
    );
    let refused = host.called("run_update", json!({ "run_id": run, "input": {} })).await;
    assert_eq!(refused["isError"], true, "an ended run takes nothing up: {refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_stopped_by_run_cancel_and_told_so() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = McpClient::connect(&app.client()).await;
    let mut call = host.call("long_running_agent", json!({ "steps": 10_000, "step_ms": 5 })).await;
    call.until("progress", |m| m.method() == Some("notifications/progress")).await;
    let uri = host.result("resources/list", json!({})).await["resources"][0]["uri"].clone();
    let run = uri.as_str().unwrap().trim_start_matches("shikiri://runs/").to_owned();
    let cancelled = host.called("run_cancel", json!({ "run_id": run })).await;
    assert_eq!(cancelled["isError"], false, "{cancelled}");
    let result = call.result().await;
    assert_eq!(result["isError"], true, "{result}");
    assert_eq!(result["structuredContent"]["error"]["code"], "CANCELLED", "{result}");
    assert_eq!(linked_run(&result), run);
    // Once more is no error: it says how things stand.
    let again = host.called("run_cancel", json!({ "run_id": run })).await;
    assert_eq!(again["structuredContent"]["status"], "cancelled", "{again}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_its_client_cancels_stops_its_run_and_no_other() {
    let app = TestApp::new(PROGRAM).start().await;
    let (client, input) = (app.client(), json!({ "steps": 10_000, "step_ms": 5 }));
    let host = McpClient::connect(&client).await;
    let mut first =
        host.call_as(&json!("a"), &json!("a"), "long_running_agent", input.clone()).await;
    let mut other = host.call_as(&json!("b"), &json!("b"), "long_running_agent", input).await;
    for call in [&mut first, &mut other] {
        call.until("progress", |m| m.method() == Some("notifications/progress")).await;
    }
    // Another session that uses the same id means another request.
    let stranger = McpClient::connect(&client).await;
    for host in [&stranger, &host] {
        let params = json!({ "requestId": "a", "reason": "changed my mind" });
        assert_eq!(host.notify("notifications/cancelled", params).await.status, 202);
        if host.session() == stranger.session() {
            first.until("more", |m| m.method() == Some("notifications/progress")).await;
        }
    }
    let result = first.result().await;
    assert_eq!(result["structuredContent"]["error"]["code"], "CANCELLED", "{result}");
    other.until("more", |m| m.method() == Some("notifications/progress")).await;
    let run = run_over_rest(&client, &linked_run(&result)).await;
    assert_eq!(run["status"], "cancelled");
    assert_eq!(count_runs(&client, "local").await, 2);
}
