//! Streams that break off: resumed strictly after the last event, while the run goes on, after
//! its end, and after the server was killed.

use serde_json::{Value, json};
use shikiri_testkit::{Builder, Exchange, Hello, McpClient, Message, TestApp, have_postgres};

use super::{linked_run, progress, run_over_rest, yes};
use crate::PROGRAM;

/// Restarts take a killed server's runs up without waiting for long.
fn quick(builder: Builder) -> Builder {
    builder.env("SHIKIRI_NODE_LEASE_SECONDS", "0.6")
}

async fn worlds(story: &str) -> Vec<TestApp> {
    let mut worlds = vec![quick(TestApp::new(PROGRAM)).start().await];
    if have_postgres(story) {
        worlds.push(quick(TestApp::new(PROGRAM).postgres()).start().await);
    }
    worlds
}

/// What can be read again of these: all that has an id, without the first, which has no content.
fn kept(messages: &[Message]) -> Vec<Message> {
    let with_id = messages.iter().filter(|message| message.event_id.is_some());
    with_id.filter(|message| !message.json.is_null()).cloned().collect()
}

async fn everything_after(host: &McpClient, id: &str) -> Vec<Message> {
    let mut stream = host.resume(id).await;
    assert_eq!(stream.status, 200);
    kept(&stream.rest().await)
}

/// The next events that can be read again: so many, or up to the answer.
async fn turn(stream: &mut Exchange, count: usize) -> Vec<Message> {
    assert_eq!(stream.status, 200);
    let mut turn = Vec::new();
    while turn.len() < count && !turn.last().is_some_and(Message::is_reply) {
        turn.extend(kept(&[stream.next().await.expect("a call that goes on")]));
    }
    turn
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_broke_off_again_and_again_is_read_without_gap_or_repetition() {
    for app in worlds("resume while running").await {
        let host = McpClient::connect(&app.client()).await;
        let input = json!({ "steps": 60, "step_ms": 10 });
        let mut call = host.call("long_running_agent", input).await;
        let first = call.next().await.unwrap();
        assert_eq!((first.json, first.event_id.is_some()), (Value::Null, true));
        let start = call.last_event_id().unwrap().to_owned();
        let mut seen = turn(&mut call, 7).await;
        while !seen.last().is_some_and(Message::is_reply) {
            let last = seen.last().and_then(|message| message.event_id.clone()).unwrap();
            call = host.resume(&last).await;
            seen.extend(turn(&mut call, 7).await);
        }
        assert_eq!(seen, everything_after(&host, &start).await);
        let told = progress(&seen);
        assert_eq!(told.len(), 60, "one for each step");
        assert!(told.is_sorted_by(|a, b| a["progress"].as_f64() < b["progress"].as_f64()));
        let answer = seen.last().unwrap();
        assert_eq!(answer.json["result"]["structuredContent"], json!({ "steps": 60 }));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_end_every_event_id_replays_exactly_what_followed_it() {
    for app in worlds("resume after the end").await {
        let host = McpClient::connect(&app.client()).await;
        let mut call = host.call("long_running_agent", json!({ "steps": 4, "step_ms": 1 })).await;
        call.rest().await;
        let start = call.seen[0].event_id.clone().unwrap();
        let all = kept(&call.seen);
        assert_eq!(everything_after(&host, &start).await, all);
        for (position, message) in all.iter().enumerate() {
            let id = message.event_id.as_ref().unwrap();
            assert_eq!(everything_after(&host, id).await, all[position + 1..], "after {id}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_follows_an_answer_that_came_at_once() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = McpClient::connect(&app.client()).await;
    let mut call = host.call("run_status", json!({ "run_id": "run_0" })).await;
    let answer = call.next().await.unwrap();
    assert_eq!(answer.json["result"]["structuredContent"]["error"]["code"], "run_not_found");
    assert_eq!(everything_after(&host, answer.event_id.as_ref().unwrap()).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn event_ids_are_increasing_decimal_strings() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = McpClient::connect(&app.client()).await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        let mut call = host.call("long_running_agent", json!({ "steps": 5, "step_ms": 1 })).await;
        call.rest().await;
        let mut status = host.call("run_status", json!({ "run_id": "run_0" })).await;
        status.rest().await;
        ids.extend(call.seen.into_iter().chain(status.seen).filter_map(|m| m.event_id));
    }
    assert!(ids.len() > 3 * 11, "{ids:?}");
    let numbers: Vec<u128> = ids.iter().map(|id| id.parse().unwrap()).collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    let written: Vec<_> = numbers.iter().map(u128::to_string).collect();
    assert_eq!(written, ids, "a number is written in one way");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_with_no_arguments_at_all_resume_too() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = McpClient::connect(&app.client()).await;
    let params = json!({ "name": "travel_agent", "_meta": { "progressToken": 7 } });
    let mut call = host.request("tools/call", params).await;
    let told = call.until("progress", |m| m.event_id.is_some() && !m.json.is_null()).await;
    assert_eq!(told.json["params"]["message"], "Checking flights...");
    let last = call.last_event_id().unwrap().to_owned();
    drop(call);
    let mut resumed = host.resume(&last).await;
    let next = resumed.until("progress", |m| m.event_id.is_some()).await;
    assert_eq!(next.json["params"]["message"], "Finding available dates...");
}

/// Older revisions have no first event without content; the call resumes all the same.
#[tokio::test(flavor = "multi_thread")]
async fn every_revision_with_sessions_resumes() {
    let app = TestApp::new(PROGRAM).start().await;
    for (protocol, primes) in [("2025-03-26", false), ("2025-06-18", false), ("2025-11-25", true)] {
        let hello = Hello { protocol: protocol.to_owned(), ..Hello::default() };
        let host = McpClient::open(&app.client(), hello).await;
        assert_eq!(host.protocol(), protocol);
        let mut call = host.call("long_running_agent", json!({ "steps": 3, "step_ms": 1 })).await;
        call.rest().await;
        assert_eq!(call.seen[0].json.is_null(), primes, "{protocol}: {:?}", call.seen[0]);
        let all = kept(&call.seen);
        let first = all[0].event_id.as_ref().unwrap();
        assert_eq!(everything_after(&host, first).await, all[1..], "{protocol}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn results_survive_a_restart_and_are_readable_from_outside() {
    for mut app in worlds("results after a restart").await {
        let host = McpClient::connect(&app.client()).await;
        let mut call = host.call("long_running_agent", json!({ "steps": 3, "step_ms": 1 })).await;
        let result = call.result().await;
        let (all, start) = (kept(&call.seen), call.seen[0].event_id.clone().unwrap());
        let run = linked_run(&result);
        app.restart().await;

        // The old session, by the old ids.
        assert_eq!(everything_after(&host, &start).await, all);
        // Another session, by the run.
        let other = McpClient::connect(&app.client()).await;
        let status = other.called("run_status", json!({ "run_id": run })).await;
        assert_eq!(status["structuredContent"]["result"], json!({ "steps": 3 }));
        for uri in [format!("shikiri://runs/{run}"), format!("shikiri://runs/{run}/events")] {
            let read = other.result("resources/read", json!({ "uri": uri })).await;
            let text = read["contents"][0]["text"].as_str().unwrap();
            assert!(text.contains(r#""result":{"steps":3}"#), "{text}");
        }
        // No client of the protocol at all.
        let over_rest = run_over_rest(&app.client(), &run).await;
        assert_eq!(over_rest["result"], json!({ "steps": 3 }));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_goes_on_after_a_restart_and_its_stream_comes_to_its_end() {
    for mut app in worlds("a call over a restart").await {
        let host = McpClient::connect(&app.client()).await;
        let input = json!({ "steps": 40, "step_ms": 20 });
        let mut call = host.call("long_running_agent", input).await;
        turn(&mut call, 12).await;
        app.restart().await;
        call.rest().await;
        let mut seen = kept(&call.seen);
        let last = call.last_event_id().unwrap();
        seen.extend(everything_after(&host, last).await);
        let start = call.seen[0].event_id.as_ref().unwrap();
        assert_eq!(seen, everything_after(&host, start).await);
        let told = progress(&seen);
        assert_eq!(told.len(), 40);
        assert!(told.is_sorted_by(|a, b| a["progress"].as_f64() < b["progress"].as_f64()));
        let answer = &seen.last().unwrap().json;
        assert_eq!(answer["result"]["structuredContent"], json!({ "steps": 40 }), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_asked_before_a_restart_is_answered_after_it() {
    for mut app in worlds("a question over a restart").await {
        let host = McpClient::connect(&app.client()).await;
        let mut call = host.call("travel_agent", json!({ "step_ms": 1 })).await;
        let start = call.next().await.unwrap().event_id.unwrap();
        let question = call.question().await;
        let last = call.last_event_id().unwrap().to_owned();
        app.restart().await;
        // A client that has seen it is not asked again; one that has not is, under the same id.
        let mut resumed = host.resume(&last).await;
        assert_eq!(host.answer(&question, yes("aisle")).await.status, 202);
        let result = resumed.result().await;
        assert_eq!(result["structuredContent"]["notes"], "aisle");
        assert!(!resumed.seen.iter().any(Message::is_question), "{:?}", resumed.seen);
        let asked_again = host.resume(&start).await.question().await;
        assert_eq!(asked_again, question);
    }
}
