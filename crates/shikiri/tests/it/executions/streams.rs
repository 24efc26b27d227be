//! The stream of an execution: the same bytes for everybody, whenever they look.

use futures_util::future::join_all;
use serde_json::json;
use shikiri_testkit::{Cut, TestApp};

use super::kit::{Talk, events, terminal};
use crate::PROGRAM;

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_goes_on_byte_for_byte_from_any_event() {
    let app = TestApp::new(PROGRAM).start().await;
    let talk = Talk::start(&app.local()).await;
    let answer = talk.post(&Talk::body("続き\n#offline events=40 tools=2"), &[]).await;
    let whole = answer.text();
    let all = events(&whole);
    let id = terminal(&all).data["execution_id"].as_str().unwrap().to_owned();
    let frames = |text: &str| text[text.find("id: ").unwrap_or(text.len())..].to_owned();
    for cut in 0..all.len() as u64 {
        let rest = talk.follow(&id, cut).await;
        assert!(frames(&whole).ends_with(&frames(&rest)), "after {cut}");
        assert_eq!(events(&rest), all[cut as usize..], "after {cut}");
    }
    let path = talk.tenant.path(&format!("/executions/{id}/events?after=9999"));
    talk.tenant.client.get(&path).await.problem(400);
}

#[tokio::test(flavor = "multi_thread")]
async fn several_readers_of_a_running_turn_see_the_same() {
    let app = TestApp::new(PROGRAM).start().await;
    let talk = Talk::start(&app.local()).await;
    let id = talk.begin("#offline events=60 delay_ms=5").await;
    // A cursor must have been an event's.
    let mut progress = talk.tenant.reader(&id, Cut::End);
    while progress.next().await.and_then(|frame| frame.seq()).is_some_and(|seq| seq < 30) {}
    let readers = (0..10).map(|n| talk.follow(&id, n * 3)).collect::<Vec<_>>();
    let texts = join_all(readers).await;
    let whole = events(&talk.follow(&id, 0).await);
    for (n, text) in texts.iter().enumerate() {
        assert_eq!(events(text), whole[n * 3..], "reader {n}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_key_attaches_to_the_first_execution() {
    let app = TestApp::new(PROGRAM).start().await;
    let talk = Talk::start(&app.local()).await;
    let key = [("Idempotency-Key", "鍵-1")];
    let body = Talk::body("#offline events=30 delay_ms=10");
    let posts = (0..5).map(|_| talk.post(&body, &key)).collect::<Vec<_>>();
    let answers = join_all(posts).await;
    let first = events(&answers[0].text());
    for answer in &answers {
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(events(&answer.text()), first);
    }
    // Long after its end, too, and as a look instead of a stream.
    let again = talk.post(&body, &[key[0], ("Prefer", "respond-async")]).await;
    let id = again.expect(202)["id"].clone();
    assert_eq!(id, first[0].data["execution_id"]);
    let location = again.header("location").unwrap();
    assert!(location.ends_with(id.as_str().unwrap()), "{location}");
    let list = talk.tenant.client.get(&talk.path("/executions")).await.expect(200);
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    // Another conversation's key is another key.
    let other = Talk::start(&app.local()).await;
    let answer = other.post(&body, &key).await;
    assert_ne!(events(&answer.text())[0].data["execution_id"], id);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_told_before_anything_starts() {
    let app = TestApp::new(PROGRAM).start().await;
    let local = app.local();
    let talk = Talk::start(&local).await;
    let code = |body: serde_json::Value, status: u16| {
        let talk = talk.clone();
        async move {
            let answer = talk.post(&body, &[]).await;
            answer.problem(status)["code"].as_str().unwrap().to_owned()
        }
    };
    let with = |name: &str, value: serde_json::Value| {
        let mut body = Talk::body("x");
        body[name] = value;
        body
    };
    assert_eq!(code(with("user_input", json!("  ")), 400).await, "INVALID_REQUEST");
    assert_eq!(
        code(with("user_input", json!("x".repeat(1024 * 1024 + 1))), 400).await,
        "INVALID_REQUEST"
    );
    assert_eq!(code(with("executor", json!({})), 400).await, "INVALID_REQUEST");
    assert_eq!(code(with("executor", json!({ "user_id": "" })), 400).await, "INVALID_REQUEST");
    assert_eq!(code(with("preferred_skills", json!(["無い"])), 400).await, "SKILL_NOT_FOUND");
    assert_eq!(code(with("model_id", json!("none")), 404).await, "MODEL_NOT_FOUND");
    assert_eq!(code(with("tokens", json!({ "a": "x\r\ny" })), 400).await, "INVALID_REQUEST");
    assert_eq!(code(with("unknown", json!(1)), 400).await, "INVALID_REQUEST");

    let server = json!({ "name": "docs", "type": "http", "url": "http://127.0.0.1:9/mcp", "allow_private": true,
        "headers_template": { "Authorization": "Bearer ${docs_key}" } });
    let made = local.client.post(&local.path("/mcp-servers"), &server).await.expect(201);
    assert_eq!(code(Talk::body("x"), 400).await, "MISSING_TOKEN");
    let path = local.path(&format!("/mcp-servers/{}", made["id"].as_str().unwrap()));
    local.client.patch(&path, &json!({ "status": "inactive" })).await.expect(200);

    let model = json!({ "id": "off", "engine": "offline", "status": "inactive" });
    app.client().post("/v1/models", &model).await.expect(201);
    assert_eq!(code(with("model_id", json!("off")), 403).await, "MODEL_INACTIVE");
    let missing = Talk { id: "cnv_none".to_owned(), ..talk.clone() };
    let answer = missing.post(&Talk::body("x"), &[]).await;
    assert_eq!(answer.problem(404)["code"], "CONVERSATION_NOT_FOUND");

    let other = app.tenant("other").await;
    let stranger = Talk { tenant: other, ..talk.clone() };
    let answer = stranger.post(&Talk::body("x"), &[]).await;
    assert_eq!(answer.problem(404)["code"], "CONVERSATION_NOT_FOUND");
    let patch = json!({ "status": "inactive" });
    app.client().patch("/v1/tenants/other", &patch).await.expect(200);
    let list = talk.tenant.client.get(&talk.path("/executions")).await.expect(200);
    assert_eq!(list["items"], json!([]), "nothing was started");
}
