//! Turns that are queued behind others of their conversation.

use serde_json::{Value, json};
use shikiri_testkit::{Builder, TestApp, have_postgres, until};

use super::kit::{Talk, events, terminal};
use crate::PROGRAM;

const QUEUE: (&str, &str) = ("Prefer", "respond-async, queue");

async fn queue(talk: &Talk, input: &str) -> Value {
    let answer = talk.post(&Talk::body(input), &[QUEUE]).await;
    assert_eq!(answer.header("preference-applied"), Some("respond-async, queue"));
    answer.expect(202)
}

fn id(execution: &Value) -> String {
    execution["id"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn queued_turns_start_in_the_order_in_which_they_came() {
    let app = TestApp::new(PROGRAM).env("SHIKIRI_LOCK_WAIT_SECONDS", "60").start().await;
    let talk = Talk::start(&app.local()).await;
    // A free conversation is not waited for.
    let running = queue(&talk, "#offline events=1 hang=1").await;
    assert_eq!(running["status"], "running");
    let mut waiting = Vec::new();
    for number in 1..=4 {
        let queued = queue(&talk, &format!("{number} #offline events=1")).await;
        assert_eq!((&queued["status"], &queued["error"]), (&json!("queued"), &Value::Null));
        waiting.push(id(&queued));
    }
    // One that waits with its connection open comes after those.
    let behind = {
        let talk = talk.clone();
        tokio::spawn(async move { talk.say("last #offline events=1").await })
    };
    let listed = talk.tenant.client.get(&talk.tenant.path("/executions?status=queued")).await;
    assert_eq!(listed.expect(200)["items"].as_array().unwrap().len(), 4);
    // Its reader sees nothing until it starts, and the same key leads to it.
    talk.cancel(&id(&running)).await.expect(200);
    let mut ends = Vec::new();
    for queued in &waiting {
        let told = events(&talk.follow(queued, 0).await);
        assert_eq!(terminal(&told).kind, "result", "{told:?}");
        ends.push(talk.execution(queued, "").await);
    }
    let last = behind.await.unwrap();
    assert_eq!(terminal(&last).kind, "result");
    assert_eq!(last[0].data["turn"], 5, "{last:?}");
    let turns: Vec<_> = ends.iter().map(|end| end["turn"].as_u64().unwrap()).collect();
    assert_eq!(turns, [1, 2, 3, 4]);
    assert!(ends.iter().all(|end| end["status"] == "completed"), "{ends:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queued_turn_is_cancelled_at_once_and_a_repeated_one_is_queued_once() {
    let app = TestApp::new(PROGRAM).start().await;
    let talk = Talk::start(&app.local()).await;
    let running = queue(&talk, "#offline hang=1").await;
    let body = Talk::body("#offline events=1 tokens_in=9");
    let key = ("Idempotency-Key", "once");
    let queued = talk.post(&body, &[QUEUE, key]).await.expect(202);
    assert_eq!(talk.post(&body, &[QUEUE, key]).await.expect(202)["id"], queued["id"]);
    let next = queue(&talk, "#offline events=1").await;
    let cancelled = talk.cancel(&id(&queued)).await.expect(200);
    assert_eq!(
        (&cancelled["status"], &cancelled["error"]["code"]),
        (&json!("cancelled"), &json!("CANCELLED"))
    );
    let told = events(&talk.follow(&id(&queued), 0).await);
    assert_eq!((told.len(), &terminal(&told).data["code"]), (1, &json!("CANCELLED")));
    talk.cancel(&id(&running)).await.expect(200);
    assert_eq!(terminal(&events(&talk.follow(&id(&next), 0).await)).kind, "result");
    let record = talk.execution(&id(&queued), "").await;
    assert_eq!(
        (&record["status"], &record["usage"]["input_tokens"]),
        (&json!("cancelled"), &json!(0))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queued_turn_that_cannot_start_any_more_says_why() {
    let app = TestApp::new(PROGRAM).start().await;
    let talk = Talk::start(&app.local()).await;
    let model = json!({ "id": "passing", "engine": "offline" });
    app.client().post("/v1/models", &model).await.expect(201);
    let running = queue(&talk, "#offline hang=1").await;
    let mut body = Talk::body("x");
    body["model_id"] = json!("passing");
    let queued = id(&talk.post(&body, &[QUEUE]).await.expect(202));
    app.client().patch("/v1/models/passing", &json!({ "status": "inactive" })).await.expect(200);
    talk.cancel(&id(&running)).await.expect(200);
    let told = events(&talk.follow(&queued, 0).await);
    let end = &terminal(&told).data;
    assert_eq!(end["code"], "NOT_STARTED", "{end}");
    assert!(end["message"].as_str().unwrap().contains("passing is inactive"), "{end}");
    assert_eq!(talk.execution(&queued, "").await["status"], "failed");
    // The conversation is free.
    terminal(&talk.say("#offline events=1").await);
}

async fn ends_with_its_server(app: Builder) {
    let mut app = app.start().await;
    let talk = Talk::start(&app.local()).await;
    queue(&talk, "#offline events=1 hang=1").await;
    let queued = id(&queue(&talk, "#offline events=1").await);
    app.kill9();
    app.restart().await;
    let told = events(&talk.follow(&queued, 0).await);
    assert_eq!(terminal(&told).data["code"], "INTERRUPTED", "{told:?}");
    until("the conversation is free", async || {
        let body = Talk::body("#offline events=1");
        talk.post(&body, &[("Accept", "application/json")]).await.status == 200
    })
    .await;
    // One that stops in good order says the same.
    queue(&talk, "#offline events=1 hang=1").await;
    let queued = id(&queue(&talk, "#offline events=1").await);
    assert_eq!(app.terminate().await.0, 0);
    app.restart().await;
    let told = events(&talk.follow(&queued, 0).await);
    assert_eq!(terminal(&told).data["code"], "INTERRUPTED", "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queued_turn_ends_with_the_server_that_had_its_request() {
    ends_with_its_server(TestApp::new(PROGRAM)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queued_turn_ends_with_the_server_that_had_its_request_on_postgresql() {
    if have_postgres("queued executions on PostgreSQL") {
        ends_with_its_server(TestApp::new(PROGRAM).postgres()).await;
    }
}
