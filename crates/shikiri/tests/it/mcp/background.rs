//! Work in the background: a tool starts it and links to it, the client polls, waits or subscribes.

use std::time::Instant;

use serde_json::{Value, json};
use shikiri_testkit::{Exchange, McpClient, ModernClient, TestApp, until};

use super::served::{Barrier, Served, agent, waiter};
use super::{count_runs, linked_run, params, progress, yes};
use crate::PROGRAM;

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_starts_work_in_the_background_links_to_it_at_once_and_notifies() {
    let barrier = Barrier::new();
    let served = Served::start(vec![waiter(&barrier)]).await;
    let host = McpClient::connect(served.client()).await;
    let mut stream = host.listen().await;
    let started = host.called("run_agent", json!({ "agent": "waiter", "input": {} })).await;
    let run = linked_run(&started);
    let status = started["structuredContent"]["status"].as_str().unwrap();
    assert!(["queued", "running"].contains(&status), "{status}");

    let uri = format!("shikiri://runs/{run}");
    assert_eq!(host.result("resources/subscribe", json!({ "uri": uri })).await, json!({}));
    let read = async || {
        let read = host.result("resources/read", json!({ "uri": uri })).await;
        serde_json::from_str::<Value>(read["contents"][0]["text"].as_str().unwrap()).unwrap()
    };
    // Told once because the subscription is new, and again because the run changed.
    next_update(&mut stream, &uri).await;
    assert_ne!(read().await["status"], "completed");
    barrier.lift(1);
    while read().await["status"] != "completed" {
        next_update(&mut stream, &uri).await;
    }
    assert_eq!(read().await["result"], json!({ "done": true }));
}

async fn next_update(stream: &mut Exchange, uri: &str) {
    let updated = stream.until("an update", |m| m.method().is_some()).await;
    let expected = vec![json!({ "uri": uri })];
    assert_eq!(params([updated].iter(), "notifications/resources/updated"), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_started_once_per_idempotency_key() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = McpClient::connect(&app.client()).await;
    let input = json!({
        "agent": "long_running_agent", "input": { "steps": 1, "step_ms": 0 },
        "idempotency_key": "trip-42",
    });
    let first = host.called("run_agent", input.clone()).await;
    let second = ModernClient::new(&app.client()).called("run_agent", input).await;
    assert_eq!(linked_run(&first), linked_run(&second));
    assert_eq!(count_runs(&app.client(), "local").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_turn_of_a_conversation_is_a_run_like_any_other() {
    let app = TestApp::new(PROGRAM).start().await;
    let talk = app.client().post("/v1/tenants/local/conversations", &json!({})).await.expect(201);
    let host = McpClient::connect(&app.client()).await;
    let said = json!({ "conversation": talk["id"], "input": "こんにちは" });
    let run = linked_run(&host.called("run_agent", said).await);
    assert!(run.starts_with("exe_"), "{run}");
    let wait = json!({ "run_id": run, "max_seconds": 30 });
    let ended = host.called("run_wait", wait).await["structuredContent"].clone();
    assert_eq!(ended["status"], "completed", "{ended}");
    assert!(ended["result"]["result"].as_str().unwrap().contains("offline"), "{ended}");

    for wrong in [
        json!({ "input": "x" }),
        json!({ "conversation": talk["id"], "agent": "long_running_agent", "input": "x" }),
        json!({ "conversation": talk["id"], "input": 5 }),
        json!({ "conversation": "cnv_none", "input": "x" }),
    ] {
        let refused = host.called("run_agent", wrong.clone()).await;
        assert_eq!(refused["isError"], true, "{wrong}: {refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_polls_or_waits_for_a_run_and_sees_the_same() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = McpClient::connect(&app.client()).await;
    let input = json!({ "agent": "long_running_agent", "input": { "steps": 4, "step_ms": 500 } });
    let run = linked_run(&host.called("run_agent", input).await);
    let mut wait = host.call("run_wait", json!({ "run_id": run, "max_seconds": 30 })).await;
    let waited = wait.result().await;
    let polled = host.called("run_status", json!({ "run_id": run })).await;
    assert_eq!(waited, polled);
    assert_eq!(waited["structuredContent"]["result"], json!({ "steps": 4 }));
    assert_eq!(progress(&wait.seen).last().unwrap()["progress"], 100.0, "{:?}", wait.seen);

    // A wait of no length is a look; any other ends in time, whatever the run does.
    let trip = json!({ "agent": "travel_agent", "input": { "step_ms": 60_000 } });
    let run = linked_run(&host.called("run_agent", trip).await);
    for seconds in [0, 1] {
        let start = Instant::now();
        let wait = json!({ "run_id": run, "max_seconds": seconds });
        let looked = host.called("run_wait", wait).await;
        let status = looked["structuredContent"]["status"].as_str().unwrap();
        assert!(["queued", "running"].contains(&status), "{status}");
        assert!((seconds..seconds + 10).contains(&start.elapsed().as_secs()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_gives_up_waiting_does_not_stop_the_run() {
    let barrier = Barrier::new();
    let served = Served::start(vec![waiter(&barrier)]).await;
    let host = McpClient::connect(served.client()).await;
    let run = linked_run(&host.called("run_agent", json!({ "agent": "waiter" })).await);
    let wait = json!({ "run_id": run });
    let mut waiting = host.call_as(&json!("w"), &json!("w"), "run_wait", wait).await;
    waiting.next().await;
    let given_up = json!({ "requestId": "w" });
    assert_eq!(host.notify("notifications/cancelled", given_up).await.status, 202);
    barrier.lift(1);
    assert_eq!(waiting.result().await["structuredContent"]["status"], "completed");
}

/// The run ends while the server looks at it: a waiting client is answered all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_waits_while_the_run_ends_is_answered() {
    let barrier = Barrier::new();
    let served = Served::start(vec![waiter(&barrier)]).await;
    let host = McpClient::connect(served.client()).await;
    for round in 0..40 {
        let run = linked_run(&host.called("run_agent", json!({ "agent": "waiter" })).await);
        let wait = host.called("run_wait", json!({ "run_id": run }));
        let (waited, ()) = tokio::join!(wait, async { barrier.lift(1) });
        assert_eq!(waited["structuredContent"]["status"], "completed", "{round}: {waited}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_waits_for_a_run_is_told_its_question_and_may_answer_it() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = McpClient::with_capabilities(&app.client(), json!({})).await;
    let trip = json!({ "agent": "travel_agent", "input": { "step_ms": 1 } });
    let run = linked_run(&host.called("run_agent", trip).await);
    let waiting = host.called("run_wait", json!({ "run_id": run })).await;
    let status = &waiting["structuredContent"];
    // The question is told as soon as it is kept; that the run waits for it is kept just after.
    assert!(["running", "waiting"].contains(&status["status"].as_str().unwrap()), "{status}");
    let question = &status["questions"][0];
    assert_eq!(question["kind"], "human");
    assert_eq!(question["schema"]["properties"]["confirm"]["type"], "boolean");
    let waits = async || {
        let looked = host.called("run_status", json!({ "run_id": run })).await;
        looked["structuredContent"]["status"] == "waiting"
    };
    until("the run waits", waits).await;
    let id = &question["question_id"];
    let answer = |answer: Value| json!({ "run_id": run, "question_id": id, "answer": answer });

    let unfit = json!({ "action": "accept", "content": { "confirm": "maybe" } });
    let refused = host.called("run_answer", answer(unfit)).await;
    assert_eq!(refused["structuredContent"]["error"]["code"], "invalid_argument", "{refused}");
    host.called("run_answer", answer(yes("window seat"))).await;
    let ended = host.called("run_wait", json!({ "run_id": run })).await;
    assert_eq!(
        ended["structuredContent"]["result"],
        json!({
            "destination": "Paris", "status": "booked", "booked": true, "price_usd": 1200,
            "notes": "window seat",
        })
    );
    let late = host.called("run_answer", answer(yes("twice"))).await;
    assert_eq!(late["isError"], true, "{late}");
}

/// A model calls the tools: it must not agree in a person's name.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_person_is_asked_is_answered_by_a_tool_only_where_the_agent_allows_it() {
    let asker = agent("asker", |context, _| async move {
        let form = json!({
            "type": "object", "properties": { "confirm": { "type": "boolean" } },
            "required": ["confirm"],
        });
        let answer = context.ask_human(form, "Pay?", None).await;
        Ok(json!({ "paid": answer.accepted().is_some() }))
    });
    let served = Served::start(vec![asker]).await;
    let host = McpClient::with_capabilities(served.client(), json!({})).await;
    let run = linked_run(&host.called("run_agent", json!({ "agent": "asker" })).await);
    let waiting = host.called("run_wait", json!({ "run_id": run })).await;
    let question = &waiting["structuredContent"]["questions"][0]["question_id"];
    let arguments =
        json!({ "run_id": run, "question_id": question, "answer": { "confirm": true } });
    let refused = host.called("run_answer", arguments).await;
    let error = &refused["structuredContent"]["error"];
    assert_eq!((&refused["isError"], &error["code"]), (&json!(true), &json!("person_required")));
    let message = error["message"].as_str().unwrap();
    for way in ["elicitation", &format!("shikiri runs answer {run}"), "key"] {
        assert!(message.contains(way), "{message}");
    }
    let looked = host.called("run_status", json!({ "run_id": run })).await;
    assert_eq!(looked["structuredContent"]["questions"][0]["question_id"], *question, "{looked}");

    // A person, with a key.
    let answer = json!({ "question_id": question, "answer": { "confirm": true } });
    let path = format!("/v1/tenants/local/runs/{run}/answers");
    served.client().post(&path, &answer).await.expect(200);
    let ended = host.called("run_wait", json!({ "run_id": run })).await;
    assert_eq!(ended["structuredContent"]["result"], json!({ "paid": true }));
}

#[tokio::test]
async fn a_run_whose_answer_was_lost_is_found_again() {
    let app = TestApp::new(PROGRAM).start().await;
    let lost = app.start_run("long_running_agent", json!({ "steps": 1, "step_ms": 1 })).await;
    let host = McpClient::connect(&app.client()).await;
    let listed = host.called("run_list", json!({ "limit": 5 })).await;
    let runs = listed["structuredContent"]["runs"].as_array().unwrap();
    assert!(runs.iter().any(|run| run["run_id"] == json!(lost)), "{listed}");
    for bad in [json!({ "limit": 0 }), json!({ "limit": 101 }), json!({ "status": "odd" })] {
        let refused = host.called("run_list", bad).await;
        assert_eq!(refused["structuredContent"]["error"]["code"], json!("invalid_argument"));
    }
}
