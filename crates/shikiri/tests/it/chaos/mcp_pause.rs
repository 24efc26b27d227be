//! A node that sleeps while it has a call's stream open, and wakes after another took its run, on
//! PostgreSQL: whoever waited for it, and whoever went to the other, hears each event once.

use std::time::Duration;

use serde_json::json;
use shikiri_testkit::{Client, McpClient, Policy, Resuming, TestApp, have_postgres, long};
use tokio::task::JoinHandle;

use super::mcp_check::{Followed, of_kind};
use crate::PROGRAM;

const LEASE: Duration = Duration::from_millis(400);
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn callers_of_a_paused_node_hear_each_event_once() {
    if !have_postgres("mcp_pause") {
        return;
    }
    let app = TestApp::new(PROGRAM).postgres();
    let app = app.env("SHIKIRI_NODE_LEASE_SECONDS", LEASE.as_secs_f64()).start().await;
    let local = app.local();
    let here = McpClient::connect(&local.client).await;
    let pauses: usize = if long() { 25 } else { 2 };
    // The only node takes the run; the other comes when it is under way.
    let arguments = json!({ "steps": 120 * pauses, "step_ms": 10, "wait": true });
    let mut stays = Resuming::call(&here, "long_running_agent", arguments, Policy::Leave);
    hear(&mut stays, 10).await;
    let other = app.another().await;
    let there = here.through(&Client::new(other.base()).with_key(&local.key));
    let mut moves: Vec<JoinHandle<Resuming>> = Vec::new();
    for _ in 0..pauses {
        app.stop_signal();
        let mut moved = stays.twin(&there);
        // While the first sleeps, its run goes on elsewhere, and who asks there is told.
        hear(&mut moved, 20).await;
        moves.push(tokio::spawn(to_the_end(moved)));
        app.cont();
        // The first is heard again, with everything that it slept through.
        hear(&mut stays, 30).await;
    }
    let stayed = to_the_end(stays).await;
    assert_eq!(stayed.log().connections, 1, "the stream of the paused node broke");
    let followed = Followed::of(&stayed, &local).await;
    followed.check();
    assert!(of_kind(&followed.run, "node_lost").count() > 0, "the run was never taken over");
    for moved in moves {
        Followed::of(&moved.await.expect("a follower"), &local).await.check();
    }
    eprintln!("{pauses} pauses: the run was taken over {} times", followed.losses());
}

async fn hear(call: &mut Resuming, events: usize) {
    let hearing = async {
        for _ in 0..events {
            call.next().await.expect("a call that is not over");
        }
    };
    let heard = tokio::time::timeout(PATIENCE, hearing).await;
    heard.unwrap_or_else(|_| panic!("it waits for ever: {}", call.log()));
}

async fn to_the_end(mut call: Resuming) -> Resuming {
    let finished = tokio::time::timeout(PATIENCE, call.finish()).await;
    finished.unwrap_or_else(|_| panic!("it waits for ever: {}", call.log()));
    call
}
