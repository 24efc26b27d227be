//! A session's own stream over kills: subscriptions live on, a change is never left untold, and a
//! notice is the same whenever it is read.

use std::time::Duration;

use serde_json::{Value, json};
use shikiri_testkit::{Builder, McpClient, Resuming, Rng, TestApp, have_postgres, long};

use super::mcp_check::number;
use crate::PROGRAM;

const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_lives_through_kills_of_the_server() {
    let rounds = if long() { 30 } else { 2 };
    tell("mcp_listen on SQLite", TestApp::new(PROGRAM), rounds).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_lives_through_kills_on_postgresql() {
    if have_postgres("mcp_listen on PostgreSQL") {
        let rounds = if long() { 10 } else { 1 };
        tell("mcp_listen on PostgreSQL", TestApp::new(PROGRAM).postgres(), rounds).await;
    }
}

async fn tell(story: &str, builder: Builder, rounds: usize) {
    let mut rng = Rng::seeded(story);
    let mut app = builder.env("SHIKIRI_NODE_LEASE_SECONDS", "0.4").start().await;
    let door = McpClient::connect(&app.client()).await;
    let mut notices = Resuming::listen(&door);
    for _ in 0..rounds {
        let run = app.start_run("travel_agent", json!({ "step_ms": 60 })).await;
        let uri = format!("shikiri://runs/{run}");
        door.result("resources/subscribe", json!({ "uri": uri })).await;
        kill(&mut app, &mut notices, &mut rng).await;
        let asking = told_of(&mut notices, &door, &uri, |run| run["status"] == "waiting").await;
        // Its changes are told in the next life of the server as well.
        kill(&mut app, &mut notices, &mut rng).await;
        let question = &asking["questions"][0]["question_id"];
        let answer = json!({ "action": "accept", "content": { "confirm": true } });
        let arguments = json!({ "run_id": run, "question_id": question, "answer": answer });
        let taken = door.called("run_answer", arguments).await;
        assert_eq!(taken["isError"], false, "{taken}");
        kill(&mut app, &mut notices, &mut rng).await;
        told_of(&mut notices, &door, &uri, |run| run["status"] == "completed").await;
        door.result("resources/unsubscribe", json!({ "uri": uri })).await;
    }
    let heard = notices.log().numbered();
    let ids: Vec<_> = heard.iter().map(|notice| number(notice).expect("a number")).collect();
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "{ids:?}");
    let connections = notices.log().connections;
    notices.cut();
    assert_eq!(notices.replay().await, heard);
    eprintln!("{story}: {} notices over {connections} connections", heard.len());
    // Kills that come before it is back do not cut it off.
    assert!(connections as usize > rounds, "the listener was hardly cut off");
}

/// At a moment when a client listens, or none yet.
async fn kill(app: &mut TestApp, notices: &mut Resuming, rng: &mut Rng) {
    let life = Duration::from_millis(rng.range(0, 250));
    let listening = async { while notices.next().await.is_some() {} };
    let _ = tokio::time::timeout(life, listening).await;
    app.kill9();
    app.restart().await;
}

/// A client that reads what it is told has changed comes to know this state in time.
async fn told_of(
    notices: &mut Resuming,
    door: &McpClient,
    uri: &str,
    wanted: impl Fn(&Value) -> bool,
) -> Value {
    loop {
        let next = tokio::time::timeout(PATIENCE, notices.next()).await;
        let notice = next.expect("a change that is told").expect("an endless stream").json();
        if notice["params"]["uri"] != uri {
            continue;
        }
        assert_eq!(notice["method"], "notifications/resources/updated");
        let read = door.result("resources/read", json!({ "uri": uri })).await;
        let text = read["contents"][0]["text"].as_str().expect("a run as text");
        let run: Value = serde_json::from_str(text).expect("a run as JSON");
        if wanted(&run) {
            return run;
        }
    }
}
