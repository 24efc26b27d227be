//! Signs of life of calls that come to a run later: taken up again, or waiting for it.

use serde_json::json;
use shikiri_testkit::{McpClient, Message};

use super::served::{Barrier, Served, agent, waiter};

fn value(message: &Message) -> Option<f64> {
    let is_progress = message.method() == Some("notifications/progress");
    message.json["params"]["progress"].as_f64().filter(|_| is_progress)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_taken_up_in_a_long_step_says_that_it_lives_and_repeats_nothing() {
    let barrier = Barrier::new();
    let served = Served::start(vec![waiter(&barrier)]).await;
    let host = McpClient::connect(served.client()).await;
    let mut call = host.call("waiter", json!({})).await;
    let began = call.until("the beginning", |m| value(m) == Some(10.0)).await;
    drop(call);

    let mut again = host.resume(&began.event_id.unwrap()).await;
    let beat = again.until("a sign of life", |m| value(m).is_some()).await;
    assert!(value(&beat).is_some_and(|beat| beat > 10.0 && beat < 10.001), "{beat:?}");
    assert_eq!(beat.json["params"]["message"], "began");
    assert_eq!(beat.event_id, None, "it is not part of what is kept");
    barrier.lift(1);
    assert_eq!(again.result().await["structuredContent"], json!({ "done": true }));
    let told = again.seen.iter().filter(|message| message.event_id.is_some()).filter_map(value);
    assert_eq!(told.collect::<Vec<_>>(), [100.0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_waits_for_a_silent_run_learns_that_it_lives() {
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
    let host = McpClient::connect(served.client()).await;
    let started = host.called("run_agent", json!({ "agent": "silent" })).await;
    let run = &started["structuredContent"]["run_id"];
    let mut wait = host.call("run_wait", json!({ "run_id": run })).await;
    let beat = wait.until("a sign of life", |m| value(m).is_some()).await;
    assert_eq!(value(&beat), Some(0.0));
    // A call from its beginning on is told what the run does, too.
    let mut call = host.call("silent", json!({})).await;
    call.until("that it runs", |m| m.json["params"]["message"] == "running").await;
    barrier.lift(2);
    assert_eq!(wait.result().await["structuredContent"]["status"], "completed");
    assert_eq!(call.result().await["structuredContent"], json!({}));
}
