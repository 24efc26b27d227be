//! How a request for a turn is answered, and what a repeated one gets.

use shikiri_testkit::{TestApp, until};

use super::kit::{Talk, events, kinds, terminal};
use crate::PROGRAM;
use serde_json::{Value, json};

const JSON: (&str, &str) = ("Accept", "application/json");
const ASYNC: (&str, &str) = ("Prefer", "respond-async");

#[tokio::test(flavor = "multi_thread")]
async fn a_json_answer_is_the_record_of_the_ended_turn_whatever_the_outcome() {
    let app = TestApp::new(PROGRAM).start().await;
    let talk = Talk::start(&app.local()).await;
    let answer = talk.post(&Talk::body("#offline events=2 chars=3"), &[JSON]).await;
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let record = answer.expect(200);
    assert_eq!((&record["status"], &record["partial"]), (&json!("completed"), &json!(false)));
    assert_eq!(record["result"].as_str().unwrap().chars().count(), 6, "{record}");
    let id = record["id"].as_str().unwrap();
    assert!(answer.header("location").unwrap().ends_with(id));
    assert_eq!(talk.execution(id, "").await, record);

    let failed =
        talk.post(&Talk::body("#offline events=1 error=壊れた"), &[JSON]).await.expect(200);
    assert_eq!(
        (&failed["status"], &failed["error"]["code"]),
        (&json!("failed"), &json!("SDK_ERROR"))
    );

    // One that is cancelled ends the wait, and its record has what there was.
    let waiting = {
        let talk = talk.clone();
        let body = Talk::body("#offline events=2 chars=3 subagents=1 hang=1");
        tokio::spawn(async move { talk.post(&body, &[JSON]).await })
    };
    let newest = async || {
        let list = talk.tenant.client.get(&talk.path("/executions")).await.expect(200);
        list["items"][0].clone()
    };
    until("it runs", async || newest().await["status"] == "running").await;
    let id = newest().await["id"].as_str().unwrap().to_owned();
    until("it wrote", async || {
        let events = talk.tenant.client.get(&talk.tenant.path(&format!("/runs/{id}"))).await;
        events.status == 200 && talk.execution(&id, "/tools").await["items"] != json!([])
    })
    .await;
    let second = talk.post(&Talk::body("x"), &[JSON, ASYNC]).await;
    assert_eq!(second.problem(409)["code"], "CONVERSATION_LOCKED");
    talk.cancel(&id).await.expect(200);
    let cancelled = waiting.await.unwrap().expect(200);
    assert_eq!((&cancelled["status"], &cancelled["partial"]), (&json!("cancelled"), &json!(true)));
    let told = events(&talk.follow(&id, 0).await);
    assert_eq!(cancelled["result"], json!(super::kit::text_of(&told)), "{cancelled}");
    assert_ne!(cancelled["result"], json!(""));
    assert_eq!(terminal(&told).kind, "error");
    let count = |kind: &str| kinds(&told).into_iter().filter(|told| *told == kind).count();
    assert_eq!(count("subagent_start"), count("subagent_end"), "{told:?}");

    // Both headers: `Prefer` wins.
    let accepted = talk.post(&Talk::body("x"), &[JSON, ASYNC]).await;
    assert_eq!(accepted.header("preference-applied"), Some("respond-async"));
    accepted.expect(202);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_without_text_whose_time_is_over_tells_what_it_did() {
    let app = TestApp::new(PROGRAM).env("SHIKIRI_EXECUTION_TIMEOUT_SECONDS", "1").start().await;
    let talk = Talk::start(&app.local()).await;
    let record =
        talk.post(&Talk::body("#offline events=0 tools=2 hang=1"), &[JSON]).await.expect(200);
    assert_eq!(record["error"]["code"], "TIMEOUT", "{record}");
    let message = record["error"]["message"].as_str().unwrap();
    assert!(message.contains("2 calls of tools"), "{message}");
    assert_eq!(record["result"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_for_one_request_and_its_tokens_may_change() {
    let app = TestApp::new(PROGRAM).start().await;
    let talk = Talk::start(&app.local()).await;
    let key = ("Idempotency-Key", "一");
    let first = talk.post(&Talk::body("#offline events=1"), &[key, JSON]).await.expect(200);
    let mut renewed = Talk::body("#offline events=1");
    renewed["tokens"] = json!({ "github": "another" });
    assert_eq!(talk.post(&renewed, &[key, JSON]).await.expect(200), first);
    let mut by_another = Talk::body("#offline events=1");
    by_another["executor"]["user_id"] = json!("太郎");
    let mut limited = Talk::body("#offline events=1");
    limited["preferred_skills"] = json!(["none"]);
    let mut with_model = Talk::body("#offline events=1");
    with_model["model_id"] = json!("other");
    for other in [Talk::body("#offline events=2"), by_another, limited, with_model] {
        for headers in
            [&[key, JSON][..], &[key, ASYNC], &[key], &[key, ("Prefer", "respond-async, queue")]]
        {
            let problem = talk.post(&other, headers).await.problem(422);
            assert_eq!(problem["code"], "IDEMPOTENCY_CONFLICT", "{problem}");
            assert_eq!(problem["execution_id"], first["id"], "{problem}");
        }
    }
    // In another conversation it is another key.
    let elsewhere = Talk::start(&talk.tenant).await;
    let other = elsewhere.post(&Talk::body("#offline events=2"), &[key, JSON]).await.expect(200);
    assert_ne!(other["id"], first["id"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_request_goes_on_after_the_last_event_that_was_seen() {
    let app = TestApp::new(PROGRAM).start().await;
    let talk = Talk::start(&app.local()).await;
    let (key, body) = (("Idempotency-Key", "k"), Talk::body("#offline events=5"));
    let whole = events(&talk.post(&body, &[key]).await.text());
    terminal(&whole);
    let seen = whole[2].id.to_string();
    let rest = events(&talk.post(&body, &[key, ("Last-Event-ID", &seen)]).await.text());
    assert_eq!(rest, whole[3..]);
    assert_eq!(events(&talk.post(&body, &[key]).await.text()), whole);
    // Of a new execution nobody has seen anything.
    let (other, seen) = (("Idempotency-Key", "l"), ("Last-Event-ID", "3"));
    let fresh = events(&talk.post(&body, &[other, seen]).await.text());
    assert_eq!(fresh.len(), whole.len() - usize::from(kinds(&whole).contains(&"title")));
    let wrong = talk.post(&body, &[key, ("Last-Event-ID", "x")]).await;
    assert_eq!(wrong.problem(400)["field"], "Last-Event-ID");
}
