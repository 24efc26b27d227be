//! An execution whose server dies at one of its commits is either whole or was nothing: never half
//! of a turn, never a conversation that cannot be used.

use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use reqwest::Method;
use serde_json::Value;
use shikiri_testkit::TestApp;

use crate::PROGRAM;
use crate::executions::kit::{Talk, events, terminal};

const EXECUTION_POINTS: [&str; 2] = ["execution.before_conclude", "execution.after_conclude"];
/// On the way there it passes these as often as it writes.
const ON_THE_WAY: [&str; 4] = [
    "outbox.before_commit:1",
    "outbox.after_commit:1",
    "outbox.before_commit:3",
    "outbox.after_commit:2",
];
const AT_ONCE: usize = 3;
/// So slowly that it writes three times at least, whatever a commit takes.
const INPUT: &str = "#offline events=6 delay_ms=200 tools=1 subagents=1";

#[tokio::test(flavor = "multi_thread")]
async fn an_execution_killed_at_any_commit_is_whole_or_nothing() {
    let last = EXECUTION_POINTS.map(|point| format!("{point}:1"));
    let all = last.into_iter().chain(ON_THE_WAY.map(str::to_owned));
    let endings: Vec<_> =
        stream::iter(all).map(killed_at).buffer_unordered(AT_ONCE).collect().await;
    assert!(endings.contains(&true) && endings.contains(&false), "both were to be seen");
}

/// Whether the turn was completed.
async fn killed_at(armed: String) -> bool {
    let mut app = TestApp::new(PROGRAM).start().await;
    let mut talk = Talk::start(&app.local()).await;
    app.set_env("SHIKIRI_FAILPOINT", &armed);
    app.restart().await;
    let key = [("Idempotency-Key", "once"), ("Prefer", "respond-async")];
    let path = talk.path("/executions");
    let client = &talk.tenant.client;
    let mut request = client.request(Method::POST, &path).json(&Talk::body(INPUT));
    for (name, value) in key {
        request = request.header(name, value);
    }
    // It may die before it answers.
    let _ = client.try_send(request).await;
    let (code, _) = app.server().wait(Duration::from_secs(60)).await;
    assert_ne!(code, 0, "{armed}: it should have died");

    app.set_env("SHIKIRI_FAILPOINT", "");
    app.restart().await;
    talk.tenant = app.local();
    let again = talk.post(&Talk::body(INPUT), &key).await.expect(202);
    let id = again["id"].as_str().unwrap();
    let told = events(&talk.follow(id, 0).await);
    let end = terminal(&told);
    let is_whole = end.kind == "result";
    if !is_whole {
        assert_eq!(end.data["code"], "INTERRUPTED", "{armed}");
    }
    check(&talk, id, is_whole, &armed).await;
    let next = talk.say("#offline events=1").await;
    assert_eq!(next[0].data["turn"], 1 + u64::from(is_whole), "{armed}");
    is_whole
}

async fn check(talk: &Talk, id: &str, is_whole: bool, armed: &str) {
    let record = talk.record().await;
    let messages = talk.tenant.client.get(&talk.path("/messages")).await.expect(200);
    let execution = talk.execution(id, "").await;
    let count = messages["items"].as_array().unwrap().len();
    assert_eq!(record["turns"], u64::from(is_whole), "{armed}");
    assert_eq!(record["session_id"] != Value::Null, is_whole, "{armed}");
    assert_eq!(record["title"] != Value::Null, is_whole, "{armed}");
    assert_eq!(count > 0, is_whole, "{armed}");
    assert_eq!(execution["status"], if is_whole { "completed" } else { "failed" }, "{armed}");
    let rows = talk.execution(id, "/usage").await["items"].as_array().unwrap().clone();
    let sum: u64 = rows.iter().map(|row| row["usage"]["input_tokens"].as_u64().unwrap()).sum();
    assert_eq!(execution["usage"]["input_tokens"], sum, "{armed}");
}
