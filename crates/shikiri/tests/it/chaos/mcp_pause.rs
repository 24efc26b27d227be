//! A node that sleeps while it has a call's stream open, and wakes after another took its run, on
//! PostgreSQL: clients that waited for it, and those that went to the other, see each event once.

use std::time::Duration;

use serde_json::json;
use shikiri_testkit::{
    Client, McpClient, Policy, Resuming, ServerProcess, Signal, TestApp, have_postgres, long,
};
use tokio::task::JoinSet;

use super::mcp_check::Followed;
use crate::PROGRAM;

const LEASE: Duration = Duration::from_millis(400);
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn callers_of_a_paused_node_hear_each_event_once() {
    if !have_postgres("mcp_pause") {
        return;
    }
    let mut app = TestApp::new(PROGRAM)
        .postgres()
        .env("SHIKIRI_NODE_LEASE_SECONDS", LEASE.as_secs_f64())
        .start()
        .await;
    let local = app.local();
    let here = McpClient::connect(&local.client).await;
    let pauses: usize = if long() { 50 } else { 3 };
    // The only node takes the run; the other comes when it is under way.
    let arguments = json!({ "steps": 240 * pauses, "step_ms": 10, "wait": true });
    let mut at_first = Resuming::call(&here, "long_running_agent", arguments, Policy::Leave);
    hear(&mut at_first, 10).await;
    let mut other = app.another().await;
    let there = here.through(&Client::new(other.base()).with_key(&local.key));
    let mut at_other = at_first.twin(&there);
    hear(&mut at_other, 1).await;
    let mut moved = JoinSet::new();
    for pause in 0..pauses {
        // Each time the one that carries the run, if it is as it should be.
        let is_first = pause % 2 == 0;
        let paused = if is_first { &mut at_first } else { &mut at_other };
        let node: &mut ServerProcess = if is_first { app.server() } else { &mut other };
        node.signal(Signal::STOP);
        // Long enough for a busy machine to miss it, too.
        tokio::time::sleep(LEASE * 4).await;
        let mut mover = paused.twin(if is_first { &there } else { &here });
        // While the one sleeps, its run goes on at the other, and who asks there is told.
        hear(&mut mover, 20).await;
        moved.spawn(to_the_end(mover));
        node.signal(Signal::CONT);
        // The one is heard again, with everything that it slept through.
        hear(paused, 30).await;
    }
    moved.spawn(to_the_end(at_other));
    moved.spawn(to_the_end(at_first));
    let mut losses = 0;
    for call in moved.join_all().await {
        let followed = Followed::of(&call, &local).await;
        followed.check();
        // The first, the other's, and one after a move: no pause broke any.
        let connections = call.log().connections;
        assert!(connections <= 3, "a stream broke: {connections} connections");
        losses = followed.losses();
    }
    eprintln!("{pauses} pauses: the run was taken over {losses} times");
    assert!(losses > pauses / 2, "the pauses hardly hit the run");
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
    // Some follow it through all the pauses that are still to come.
    let patience = if long() { PATIENCE * 10 } else { PATIENCE };
    let finished = tokio::time::timeout(patience, call.finish()).await;
    finished.unwrap_or_else(|_| panic!("it waits for ever: {}", call.log()));
    call
}
