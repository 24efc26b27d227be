//! Turns of a conversation: what is told, what is kept, and what a failure leaves alone.

use serde_json::{Value, json};
use shikiri_testkit::TestApp;

use super::kit::{Talk, events, kinds, terminal, text_of};
use crate::PROGRAM;

async fn app() -> TestApp {
    TestApp::new(PROGRAM).start().await
}

/// Rows 1.1, 1.10, 1.11, 1.20, 1.22: one POST, and a stream with everything in it.
#[tokio::test(flavor = "multi_thread")]
async fn one_post_gives_a_whole_turn() {
    let app = app().await;
    let talk = Talk::start(&app.local()).await;
    let events = talk.say("こんにちは\n#offline events=5 chars=3 thinking=1").await;
    let end = terminal(&events);
    assert_eq!(events[0].kind, "session_start", "{:?}", kinds(&events));
    assert!(kinds(&events).contains(&"thinking"));
    let ids: Vec<_> = events.iter().map(|event| event.id).collect();
    assert_eq!(ids, (1..=ids.len() as u64).collect::<Vec<_>>(), "without gaps");
    assert_eq!(text_of(&events), end.data["result"].as_str().unwrap());
    for field in [
        "result",
        "is_error",
        "errors",
        "usage",
        "total_cost_usd",
        "num_turns",
        "duration_ms",
        "session_id",
        "partial",
        "seq",
        "at",
        "execution_id",
    ] {
        assert!(end.data.get(field).is_some(), "{field} is missing in {}", end.data);
    }
    assert_eq!(end.data["is_error"], false);
    assert_eq!(end.data["partial"], false);

    let id = end.data["execution_id"].as_str().unwrap();
    let record = talk.execution(id, "").await;
    assert_eq!(record["status"], "completed");
    assert_eq!(record["result"], end.data["result"]);
    assert_eq!(record["usage"], end.data["usage"]);
    assert_eq!(record["turn"], 1);
    // It is a run as well.
    let run = app.local().run(id).await;
    assert_eq!(run["status"], "completed");
}

/// Rows 1.4, 1.14, 1.27, 1.28: the session goes on from turn to turn, until it is reset.
#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_goes_on_where_it_was_until_it_is_reset() {
    let app = app().await;
    let talk = Talk::start(&app.local()).await;
    let first = talk.say("一").await;
    let session = first[0].data["session_id"].clone();
    assert_eq!((&first[0].data["turn"], &first[0].data["resumed"]), (&json!(1), &json!(false)));
    assert_eq!(talk.record().await["session_id"], session);

    let second = talk.say("二").await;
    assert_eq!((&second[0].data["turn"], &second[0].data["resumed"]), (&json!(2), &json!(true)));
    assert_eq!(second[0].data["session_id"], session);

    let client = &talk.tenant.client;
    client.patch(&talk.path(""), &json!({ "session_id": null })).await.expect(200);
    let third = talk.say("三").await;
    assert_eq!((&third[0].data["turn"], &third[0].data["resumed"]), (&json!(3), &json!(false)));
    assert_ne!(third[0].data["session_id"], session);
}

/// Rows 1.15, 1.34: a title once, after a success, of at most 50 characters.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_success_gives_the_conversation_its_title() {
    let app = app().await;
    let talk = Talk::start(&app.local()).await;
    let failed = talk.say("#offline error=駄目").await;
    assert!(!kinds(&failed).contains(&"title"));
    assert_eq!(talk.record().await["title"], Value::Null);

    let long = "旅".repeat(80);
    let events = talk.say(&long).await;
    let title = events.iter().find(|event| event.kind == "title").unwrap();
    assert_eq!(title.id, events.last().unwrap().id - 1, "before the end");
    assert_eq!(title.data["title"], "旅".repeat(50));
    assert_eq!(talk.record().await["title"], "旅".repeat(50));
    assert!(!kinds(&talk.say("もう一度").await).contains(&"title"));
}

/// Rows 1.12, 1.13, 1.16, 1.17, 1.21, 1.23–1.26: tools and subagents, each with its own account.
#[tokio::test(flavor = "multi_thread")]
async fn tools_and_subagents_are_accounted_for_exactly() {
    let app = app().await;
    let price = json!({ "input": 3, "output": 15 });
    let model = json!({ "id": "priced", "engine": "offline", "model_name": "offline",
        "prices": price });
    app.client().post("/v1/models", &model).await.expect(201);
    let talk = Talk::start(&app.local()).await;
    let mut body = Talk::body("#offline subagents=8 tools=4 events=3 tokens_in=1000 tokens_out=7");
    body["model_id"] = json!("priced");
    let answer = talk.post(&body, &[]).await;
    let events = events(&answer.text());
    let end = terminal(&events);
    let id = end.data["execution_id"].as_str().unwrap();

    let starts: Vec<_> = events.iter().filter(|e| e.kind == "subagent_start").collect();
    let ends: Vec<_> = events.iter().filter(|e| e.kind == "subagent_end").collect();
    assert_eq!((starts.len(), ends.len()), (8, 8));
    for start in &starts {
        let own = &start.data["tool_use_id"];
        let inside = events
            .iter()
            .filter(|e| e.kind == "tool_use" && e.data.get("parent_tool_use_id") == Some(own));
        assert!(inside.count() >= 1, "a tool call of {own} is told by its parent");
    }

    let rows = talk.execution(id, "/usage").await["items"].as_array().unwrap().clone();
    assert_eq!(rows.iter().filter(|row| row["kind"] == "main").count(), 1);
    assert_eq!(rows.iter().filter(|row| row["kind"] == "subagent").count(), 8);
    for field in ["input_tokens", "output_tokens", "cache_read_tokens"] {
        let sum: u64 = rows.iter().map(|row| row["usage"][field].as_u64().unwrap()).sum();
        assert_eq!(end.data["usage"][field], sum, "{field}");
    }
    let sum: f64 = rows.iter().map(|row| row["cost_usd"].as_f64().unwrap()).sum();
    let total = end.data["total_cost_usd"].as_f64().unwrap();
    assert!(total > 0.0 && (sum - total).abs() < 1e-12, "{sum} {total}");
    for end in ends {
        let row = rows.iter().find(|row| row["tool_use_id"] == end.data["tool_use_id"]).unwrap();
        assert_eq!((&row["usage"], &row["cost_usd"]), (&end.data["usage"], &end.data["cost_usd"]));
    }

    let tools = talk.execution(id, "/tools").await["items"].as_array().unwrap().clone();
    let told = events.iter().filter(|event| event.kind == "tool_use").count();
    assert_eq!(tools.len(), told);
    assert!(tools.iter().all(|tool| tool["duration_ms"].is_u64() && tool["is_error"] == false));
    let messages = talk.tenant.client.get(&talk.path("/messages?limit=200")).await.expect(200);
    let messages = messages["items"].as_array().unwrap();
    assert_eq!(messages[0]["type"], "user");
    assert_eq!(messages.last().unwrap()["type"], "result");
    let order: Vec<_> = messages.iter().map(|m| m["seq"].as_u64().unwrap()).collect();
    assert_eq!(order, (1..=order.len() as u64).collect::<Vec<_>>());
}

/// Rows 1.18, 1.30, 1.33: a failure changes nothing but the bill.
#[tokio::test(flavor = "multi_thread")]
async fn a_failure_leaves_the_conversation_as_it_was_and_is_billed() {
    let app = app().await;
    let talk = Talk::start(&app.local()).await;
    talk.say("一").await;
    let before = talk.record().await;
    let failed = talk.say("#offline events=2 tokens_in=11 tokens_out=5 error=壊れた").await;
    let end = terminal(&failed);
    assert_eq!((end.kind.as_str(), &end.data["code"]), ("error", &json!("SDK_ERROR")));
    assert!(end.data["message"].as_str().unwrap().contains("壊れた"), "{}", end.data);
    let mut after = talk.record().await;
    after["updated_at"] = before["updated_at"].clone();
    assert_eq!(after, before);
    let messages = talk.tenant.client.get(&talk.path("/messages")).await.expect(200);
    assert!(messages["items"].as_array().unwrap().iter().all(|m| m["turn"] == 1));

    let id = end.data["execution_id"].as_str().unwrap();
    let record = talk.execution(id, "").await;
    assert_eq!(
        (&record["status"], &record["error"]["code"]),
        (&json!("failed"), &json!("SDK_ERROR"))
    );
    assert_eq!(record["usage"]["input_tokens"], 11);
    let rows = talk.execution(id, "/usage").await;
    assert_eq!(rows["items"][0]["status"], "failed");
    // The lock is free, and the turn was not counted.
    let next = talk.say("二").await;
    assert_eq!(next[0].data["turn"], 2);
}

/// Rows 1.31, 1.33: time over, with and without something to show.
#[tokio::test(flavor = "multi_thread")]
async fn a_timeout_gives_what_there_is_or_says_that_there_is_nothing() {
    const TIMEOUT: &str = "SHIKIRI_EXECUTION_TIMEOUT_SECONDS";
    let mut app = TestApp::new(PROGRAM).env(TIMEOUT, "0.5").start().await;
    let talk = Talk::start(&app.local()).await;
    let nothing = talk.say("#offline events=0 hang=1").await;
    let end = terminal(&nothing);
    assert_eq!((end.kind.as_str(), &end.data["code"]), ("error", &json!("TIMEOUT")));

    // Time enough to have told something, on a busy machine too.
    app.set_env(TIMEOUT, "3");
    app.restart().await;
    let partial = talk.say("#offline events=3 chars=2 tokens_in=9 hang=1").await;
    let end = terminal(&partial);
    assert_eq!((end.kind.as_str(), &end.data["partial"]), ("result", &json!(true)));
    assert_eq!(end.data["result"], text_of(&partial));
    assert_eq!(end.data["usage"]["input_tokens"], 9);
    let record = talk.record().await;
    assert_eq!((&record["session_id"], &record["title"]), (&Value::Null, &Value::Null));
    let id = end.data["execution_id"].as_str().unwrap();
    assert_eq!(talk.execution(id, "").await["partial"], true);
    assert_eq!(talk.say("#offline events=1").await[0].data["turn"], 1, "neither counts");
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_of_a_model_without_prices_are_told_of() {
    let app = app().await;
    let model = json!({ "id": "mine", "engine": "offline", "model_name": "mine",
        "subagent_model": "nameless" });
    app.client().post("/v1/models", &model).await.expect(201);
    let talk = Talk::start(&app.local()).await;
    let mut body = Talk::body("#offline subagents=2");
    body["model_id"] = json!("mine");
    let told = events(&talk.post(&body, &[]).await.text());
    let warnings: Vec<_> = told.iter().filter(|event| event.kind == "warning").collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert_eq!(warnings[0].data["code"], "PRICE_UNKNOWN");
    assert_eq!(warnings[0].data["model"], "nameless");
    assert_eq!(terminal(&told).kind, "result");
}

/// Closing the connection stops nothing; a cancel does, and is billed.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_ends_a_turn_and_closing_the_connection_does_not() {
    let app = app().await;
    let talk = Talk::start(&app.local()).await;
    let id = talk.begin("#offline events=3 tokens_in=4 hang=1").await;
    let running = talk.execution(&id, "").await;
    assert_eq!(running["status"], "running");
    talk.cancel(&id).await.expect(200);
    let events = events(&talk.follow(&id, 0).await);
    let end = terminal(&events);
    assert_eq!((end.kind.as_str(), &end.data["code"]), ("error", &json!("CANCELLED")));
    let record = talk.execution(&id, "").await;
    assert_eq!(
        (&record["status"], &record["usage"]["input_tokens"]),
        (&json!("cancelled"), &json!(4))
    );
    talk.cancel(&id).await.problem(409);
    assert_eq!(talk.say("次").await[0].data["turn"], 1);
}
