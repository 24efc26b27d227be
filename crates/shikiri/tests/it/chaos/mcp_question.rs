//! A question that is open while servers die: the answer can be given at any server,
//! once, and what was taken is never dropped.

use std::time::Duration;

use serde_json::{Value, json};
use shikiri_testkit::{
    Client, McpClient, Policy, Resuming, Rng, ServerProcess, Tenant, TestApp, have_postgres, long,
};

use super::mcp_check::{Followed, bookings, events, of_kind, trip};
use crate::PROGRAM;

const PATIENCE: Duration = Duration::from_secs(30);
const LEASE: &str = "0.4";

#[tokio::test(flavor = "multi_thread")]
async fn a_question_can_be_answered_after_a_kill() {
    let rounds = if long() { 50 } else { 4 };
    let mut rng = Rng::seeded("mcp_question");
    let mut app = TestApp::new(PROGRAM).env("SHIKIRI_NODE_LEASE_SECONDS", LEASE).start().await;
    let local = app.local();
    let door = McpClient::connect(&local.client).await;
    for round in 0..rounds {
        let mut call = trip(&door, &format!("京{round}"), 10, Policy::Leave);
        let question = until_asked(&mut call).await;
        tokio::time::sleep(Duration::from_millis(rng.range(0, 60))).await;
        app.kill9();
        app.restart().await;
        shows_life(&mut call).await;
        assert_eq!(call.answer(&question["id"], &yes()).await, 202);
        is_booked_once(&local, &mut call, &question, &[&door]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn any_node_takes_the_answer_to_a_question_of_another() {
    let Some((mut app, other)) = two_nodes("mcp_question on two nodes").await else { return };
    let local = app.local();
    let here = McpClient::connect(&local.client).await;
    let there = through(&other, &local, &here);
    let rounds = if long() { 25 } else { 2 };
    for round in 0..rounds {
        // The one that asked is gone: stream and answer go to the other.
        let mut call = trip(&here, &format!("奈良{round}"), 10, Policy::Leave);
        let question = until_asked(&mut call).await;
        app.kill9();
        call.go_through(&there);
        assert_eq!(call.answer(&question["id"], &yes()).await, 202);
        is_booked_once(&local_at(&local, &other), &mut call, &question, &[&there]).await;
        app.restart().await;

        // The one that asked lives: its stream goes on when the other was answered.
        let mut call = trip(&here, &format!("堺{round}"), 10, Policy::Leave);
        let question = until_asked(&mut call).await;
        let mut answerer = call.twin(&there);
        assert_eq!(answerer.answer(&question["id"], &yes()).await, 202);
        is_booked_once(&local, &mut call, &question, &[&here, &there]).await;
        assert_eq!(call.log().connections, 1, "the stream of the asking node broke");
    }
}

/// Two answers at one moment, to two nodes: one is taken, and that one counts.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_answers_to_two_nodes_one_is_taken_and_counts() {
    let Some((app, other)) = two_nodes("mcp_question, two answers").await else { return };
    let local = app.local();
    let here = McpClient::connect(&local.client).await;
    let there = through(&other, &local, &here);
    let rounds = if long() { 200 } else { 12 };
    let mut agreed = 0;
    for round in 0..rounds {
        let mut call = trip(&here, &format!("津{round}"), 1, Policy::Leave);
        let question = until_asked(&mut call).await;
        let no = json!({ "action": "decline" });
        let (accepted, declined) =
            tokio::join!(here.answer(&question, yes()), there.answer(&question, no));
        let status = match (accepted.status, declined.status) {
            (202, 400) => "booked",
            (400, 202) => "cancelled",
            other => panic!("answered with {other:?}"),
        };
        finish(&mut call).await;
        let followed = Followed::of(&call, &local).await;
        followed.check();
        assert_eq!(followed.status(), status);
        assert_eq!(of_kind(&followed.run, "answer").count(), 1);
        agreed += usize::from(status == "booked");
    }
    eprintln!("of {rounds} pairs of answers the yes was taken {agreed} times");
}

async fn two_nodes(story: &str) -> Option<(TestApp, ServerProcess)> {
    if !have_postgres(story) {
        return None;
    }
    let app = TestApp::new(PROGRAM).postgres().env("SHIKIRI_NODE_LEASE_SECONDS", LEASE);
    let app = app.start().await;
    let other = app.another().await;
    Some((app, other))
}

/// The same session at the other node.
fn through(node: &ServerProcess, local: &Tenant, door: &McpClient) -> McpClient {
    door.through(&local_at(local, node).client)
}

fn local_at(local: &Tenant, node: &ServerProcess) -> Tenant {
    Tenant { client: Client::new(node.base()).with_key(&local.key), ..local.clone() }
}

fn yes() -> Value {
    json!({ "action": "accept", "content": { "confirm": true } })
}

async fn until_asked(call: &mut Resuming) -> Value {
    let asking = async {
        while let Some(frame) = call.next().await {
            let message = frame.json();
            if message["method"] == "elicitation/create" {
                return message;
            }
        }
        panic!("nothing was asked: {}", call.log())
    };
    tokio::time::timeout(PATIENCE, asking).await.expect("a question in time")
}

/// A client that comes back while nothing happens is told how far things are, or would give up.
async fn shows_life(call: &mut Resuming) {
    let beat = tokio::time::timeout(PATIENCE, call.next()).await.expect("a sign of life");
    let beat = beat.expect("a call that is not over");
    assert_eq!(beat.id, None, "nothing new has happened");
    let params = &beat.json()["params"];
    assert!(params["progress"].as_f64() >= Some(50.0), "{params}");
}

async fn finish(call: &mut Resuming) {
    let finished = tokio::time::timeout(PATIENCE, call.finish()).await;
    finished.unwrap_or_else(|_| panic!("it waits for ever: {}", call.log()));
}

/// The call ends booked; any second answer, at any server, is refused and changes
/// nothing.
async fn is_booked_once(
    local: &Tenant,
    call: &mut Resuming,
    question: &Value,
    doors: &[&McpClient],
) {
    finish(call).await;
    let followed = Followed::of(call, local).await;
    followed.check();
    assert_eq!(followed.status(), "booked");
    assert_eq!(bookings(&followed.run), 1);
    for door in doors {
        for late in [yes(), json!({ "action": "decline" })] {
            let mut refused = door.answer(question, late).await;
            assert_eq!(refused.status, 400);
            refused.error(-32600).await;
        }
    }
    assert_eq!(events(local, &call.log().run_id()).await, followed.run);
}
