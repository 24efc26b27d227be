//! Calls that outlast their caller's patience, and calls that are silent.

use std::time::{Duration, Instant};

use serde_json::json;
use shikiri_testkit::{Exchange, McpClient, Message, ModernClient};

use super::served::{Barrier, Served, agent, waiter};
use super::{linked_run, yes};

/// Short, because the test waits for it; the program has 45 seconds.
const PATIENCE: Duration = Duration::from_secs(2);

async fn began(call: &mut Exchange) {
    call.until("the beginning", |m| m.json["params"]["message"] == "began").await;
}

#[test]
fn the_program_hands_over_before_most_clients_give_up() {
    assert_eq!(shikiri_mcp::McpOptions::default().patience, Duration::from_secs(45));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_lasts_is_answered_with_its_run_which_goes_on() {
    let barrier = Barrier::new();
    let served = Served::with_patience(vec![waiter(&barrier)], PATIENCE).await;
    let older = McpClient::connect(served.client()).await;
    let newer = ModernClient::new(served.client());
    let mut runs = Vec::new();
    for mut call in [older.call("waiter", json!({})).await, newer.call("waiter", json!({})).await] {
        let result = call.result().await;
        let status = &result["structuredContent"];
        let run = linked_run(&result);
        assert_eq!(result["isError"], false);
        assert_eq!((&status["run_id"], &status["status"]), (&json!(run), &json!("running")));
        assert_eq!((&status["progress"], &status["message"]), (&json!(10.0), &json!("began")));
        assert!(call.rest().await.is_empty(), "an answered call has ended");
        runs.push(run);
    }
    barrier.lift(2);
    for run in runs {
        let ended = older.called("run_wait", json!({ "run_id": run })).await;
        assert_eq!(ended["structuredContent"]["result"], json!({ "done": true }));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handed_over_call_reads_the_same_again_even_after_its_run_has_ended() {
    let barrier = Barrier::new();
    let served = Served::with_patience(vec![waiter(&barrier)], PATIENCE).await;
    let host = McpClient::connect(served.client()).await;
    let mut call = host.call("waiter", json!({})).await;
    let run = linked_run(&call.result().await);
    let with_id = |messages: &[Message]| -> Vec<Message> {
        messages.iter().filter(|message| message.event_id.is_some()).cloned().collect()
    };
    let seen = with_id(&call.seen);
    let again = async || {
        let mut all = Vec::new();
        for message in &seen {
            let mut stream = host.resume(message.event_id.as_ref().unwrap()).await;
            assert_eq!(stream.status, 200, "after {message:?}");
            all.push(with_id(&stream.rest().await));
        }
        all
    };
    let expected: Vec<_> = (1..=seen.len()).map(|from| seen[from..].to_vec()).collect();
    assert_eq!(again().await, expected, "while the run goes on");
    barrier.lift(1);
    host.called("run_wait", json!({ "run_id": run })).await;
    assert_eq!(again().await, expected, "after its end");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_asked_to_wait_gets_the_result_however_long_it_takes() {
    let barrier = Barrier::new();
    let served = Served::with_patience(vec![waiter(&barrier)], PATIENCE).await;
    let older = McpClient::connect(served.client()).await;
    let newer = ModernClient::new(served.client());
    let wait = json!({ "wait": true });
    let mut calls = [older.call("waiter", wait.clone()).await, newer.call("waiter", wait).await];
    for call in &mut calls {
        began(call).await;
    }
    // A client that came later and does not wait is answered meanwhile.
    let impatient = older.called("waiter", json!({})).await;
    assert_eq!(impatient["structuredContent"]["status"], "running");
    for call in &calls {
        assert!(!call.seen.iter().any(Message::is_reply), "{:?}", call.seen);
    }
    barrier.lift(3);
    for mut call in calls {
        assert_eq!(call.result().await["structuredContent"], json!({ "done": true }));
    }
}

/// The wish to wait is part of the request, so it holds for its continuation too.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_asked_to_wait_also_waits_after_having_been_asked() {
    let barrier = Barrier::new();
    let asker = {
        let barrier = barrier.clone();
        agent("asker", move |context, _| {
            let barrier = barrier.clone();
            async move {
                let form = json!({ "type": "object", "properties": {} });
                context.ask_human(form, "Go on?", None).await;
                context.progress(10.0, 100.0, "began").await;
                barrier.pass(&context).await?;
                Ok(json!({ "done": true }))
            }
        })
    };
    let served = Served::with_patience(vec![asker], PATIENCE).await;
    let host = ModernClient::new(served.client());
    for (input, waits) in [(json!({ "wait": true }), true), (json!({}), false)] {
        let asked = host.called("asker", input.clone()).await;
        let question = asked["inputRequests"].as_object().unwrap().keys().next().unwrap();
        let responses = json!({ question: yes("") });
        let start = Instant::now();
        let mut call = host.go_on("asker", input, &asked, responses).await;
        if waits {
            let early = call.next_within(PATIENCE * 2).await;
            let told = early.ok().flatten();
            assert!(
                !told.as_ref().is_some_and(Message::is_reply),
                "{told:?} {:?}",
                start.elapsed()
            );
            barrier.lift(1);
            assert_eq!(call.result().await["structuredContent"], json!({ "done": true }));
        } else {
            assert_eq!(call.result().await["structuredContent"]["status"], "running");
        }
    }
}

/// A person may take longer than a call lasts: the question stays open, and its answer counts.
#[tokio::test(flavor = "multi_thread")]
async fn a_question_can_be_answered_after_its_call_was_handed_over() {
    let served = Served::with_patience(shikiri_agents::samples(), PATIENCE).await;
    let host = McpClient::connect(served.client()).await;
    let mut call = host.call("travel_agent", json!({ "step_ms": 1 })).await;
    let question = call.question().await;
    let result = call.result().await;
    let status = &result["structuredContent"];
    assert_eq!(status["status"], "waiting", "{status}");
    assert_eq!(status["questions"][0]["kind"], "human");
    assert_eq!(host.answer(&question, yes("late")).await.status, 202);
    let run = linked_run(&result);
    let ended = host.called("run_wait", json!({ "run_id": run })).await;
    assert_eq!(ended["structuredContent"]["result"]["notes"], "late");
}

/// Sixteen seconds of real time: the clock that counts them is the one that clients have.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_call_says_at_once_and_every_15_seconds_that_it_lives() {
    let barrier = Barrier::new();
    let silent = {
        let barrier = barrier.clone();
        agent("silent", move |context, _| {
            let barrier = barrier.clone();
            async move {
                barrier.pass(&context).await?;
                Ok(json!({}))
            }
        })
    };
    let served = Served::start(vec![silent]).await;
    let older = McpClient::connect(served.client()).await;
    let newer = ModernClient::new(served.client());
    let start = Instant::now();
    let calls = [older.call("silent", json!({})).await, newer.call("silent", json!({})).await];
    let mut untold =
        older.request("tools/call", json!({ "name": "silent", "arguments": {} })).await;
    let listen = calls.map(|mut call| {
        tokio::spawn(async move {
            let is_beat = |m: &Message| m.method() == Some("notifications/progress");
            let first = call.until("a first sign of life", is_beat).await;
            let soon = start.elapsed();
            let second = call.until("a second one", is_beat).await;
            (call, first, soon, second, start.elapsed())
        })
    });
    let mut heard = Vec::new();
    for listener in listen {
        heard.push(listener.await.unwrap());
    }
    barrier.lift(3);
    for (mut call, first, soon, second, later) in heard {
        assert!(soon < Duration::from_secs(10), "{soon:?}");
        // Without the second it would be 28.
        assert!((14..25).contains(&later.as_secs()), "{later:?}");
        let value = |m: &Message| m.json["params"]["progress"].as_f64().unwrap();
        assert!(value(&first) < value(&second), "{first:?} {second:?}");
        assert_eq!((first.event_id, second.event_id), (None, None), "not part of what is kept");
        assert_eq!(call.result().await["structuredContent"], json!({}));
    }
    // Who gave no token cannot be told.
    untold.result().await;
    let told = untold.seen.iter().filter(|message| message.method().is_some()).count();
    assert_eq!(told, 0, "{:?}", untold.seen);
}
