//! What one tenant may use: limits by default, storage that ends, keys that end, and wrong keys
//! that are slowed down.

use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::stream;
use reqwest::{Body, Method};
use serde_json::{Value, json};
use shikiri_store::{Clock as _, SystemClock};
use shikiri_testkit::{Answer, Builder, Client, Tenant, TestApp, have_postgres, script, until};

use crate::PROGRAM;
use crate::executions::kit::{Talk, terminal};

const MIB: usize = 1024 * 1024;
const GIB: u64 = 1024 * 1024 * 1024;

async fn set_limits(app: &TestApp, tenant: &Tenant, limits: Value) {
    let path = format!("/v1/tenants/{}", tenant.id);
    app.client().patch(&path, &json!({ "limits": limits })).await.expect(200);
}

async fn put(talk: &Talk, name: &str, body: impl Into<Body>) -> Answer {
    let client = &talk.tenant.client;
    let path = talk.path(&format!("/files/{name}"));
    client.send(client.request(Method::PUT, &path).body(body)).await
}

fn assert_full(answer: &Answer) {
    let problem = answer.problem(507);
    assert_eq!(problem["code"], "QUOTA_EXCEEDED");
    let detail = problem["detail"].as_str().unwrap();
    for part in ["stored_bytes", "admin", "in use"] {
        assert!(detail.contains(part), "{part} in {detail}");
    }
}

async fn stored(app: &TestApp, tenant: &Tenant) -> u64 {
    let shown = app.client().get(&tenant.path("")).await.expect(200);
    shown["use"]["stored_bytes"].as_u64().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_tenant_has_limits_and_local_has_none() {
    let app = TestApp::new(PROGRAM).start().await;
    let tenant = app.tenant("fresh").await;
    let default = json!({
        "max_concurrent_executions": 128, "max_streams": 1000,
        "requests_per_minute": 6000, "stored_bytes": 10 * GIB,
    });
    let shown = tenant.client.get(&tenant.path("")).await.expect(200);
    assert_eq!(shown["limits"], default);
    assert_eq!(
        app.client().get("/v1/tenants/local").await.expect(200)["limits"]["stored_bytes"],
        Value::Null
    );
    // A tenant does not raise its own limit.
    let raise = json!({ "limits": { "stored_bytes": null } });
    tenant.client.patch(&tenant.path(""), &raise).await.problem(403);
    let lifted = app.client().patch("/v1/tenants/fresh", &raise).await.expect(200);
    assert_eq!(lifted["limits"]["stored_bytes"], Value::Null);
    let text = app.cli().run(&["tenants", "show", "fresh"]).done().stdout;
    assert!(text.contains("stored bytes") && text.contains("in use"), "{text}");
    app.cli().run(&["tenants", "set", "fresh", "--stored-bytes", "1000"]).done();
    app.cli().run(&["tenants", "set", "fresh", "--max-streams", "none"]).done();
    let limits = app.cli().run(&["tenants", "show", "fresh", "--json"]).json()["limits"].clone();
    assert_eq!((&limits["stored_bytes"], &limits["max_streams"]), (&json!(1000), &Value::Null));
}

async fn files_stop_at_the_limit(builder: Builder) {
    let app = builder.start().await;
    let tenant = app.tenant("full").await;
    let talk = Talk::start(&tenant).await;
    set_limits(&app, &tenant, json!({ "stored_bytes": 3 * MIB })).await;
    app.client().patch("/v1/tenants/full", &json!({ "model_id": "offline" })).await.expect(200);
    put(&talk, "a", vec![1; 2 * MIB]).await.expect(201);
    assert!(stored(&app, &tenant).await >= 2 * MIB as u64);
    // Told before anything is sent, and told while it is sent.
    assert_full(&put(&talk, "b", vec![1; 2 * MIB]).await);
    let pieces = stream::iter((0..40).map(|_| Ok::<_, std::io::Error>(vec![1_u8; MIB / 16])));
    assert_full(&put(&talk, "b", Body::wrap_stream(pieces)).await);
    let files = tenant.client.get(&talk.path("/files")).await.expect(200);
    assert_eq!(files["items"].as_array().unwrap().len(), 1);
    let left = app.data_folder().join("workspaces/.uploads");
    assert_eq!(std::fs::read_dir(left).unwrap().count(), 0);
    // What is removed makes room at once.
    tenant.client.delete(&talk.path("/files/a")).await.expect(204);
    put(&talk, "b", vec![1; 2 * MIB]).await.expect(201);
    // Nothing new begins with everything full; what is there can be read and removed.
    set_limits(&app, &tenant, json!({ "stored_bytes": 1000 })).await;
    assert_full(&talk.post(&Talk::body("x"), &[]).await);
    assert_full(&tenant.client.post(&tenant.path("/conversations"), &json!({})).await);
    tenant.client.get(&talk.path("/files/b")).await;
    tenant.client.delete(&talk.path("")).await.expect(204);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_cannot_fill_the_disk_with_files() {
    files_stop_at_the_limit(TestApp::new(PROGRAM)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_cannot_fill_the_disk_with_files_on_postgres() {
    if have_postgres("quotas") {
        files_stop_at_the_limit(TestApp::new(PROGRAM).postgres()).await;
    }
}

/// What an engine tells is stored too: a run that tells too much is ended, and what it spent is
/// kept.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_output_fills_the_quota_is_ended_and_billed() {
    let app = TestApp::new(PROGRAM).start().await;
    let tenant = app.tenant("loud").await;
    let limits = json!({ "model_id": "offline", "limits": { "stored_bytes": MIB } });
    app.client().patch("/v1/tenants/loud", &limits).await.expect(200);
    let talk = Talk::start(&tenant).await;
    let input = "#offline events=2000 chars=4000 delay_ms=10 tokens_in=7 tokens_out=3";
    let events = talk.say(input).await;
    let end = terminal(&events);
    assert_eq!((end.kind.as_str(), &end.data["code"]), ("error", &json!("QUOTA_EXCEEDED")));
    assert!(events.len() < 2000, "it told everything");
    let id = end.data["execution_id"].as_str().unwrap();
    let record = talk.execution(id, "").await;
    assert_eq!(record["status"], "failed", "{record}");
}

/// In the place of Claude Code: it writes a file that is too large, as its Bash tool might.
const SHELL: &str = r#"#!/bin/bash
case "$1" in --version) echo '2.1.325 (Claude Code)'; exit;; esac
while read -r line; do
  case "$line" in
  *initialize*)
    echo '{"type":"control_response","response":{"subtype":"success","request_id":"initialize"}}'
    ;;
  *)
    echo '{"type":"system","subtype":"init","session_id":"s","model":"m","mcp_servers":[]}'
    dd if=/dev/zero of=fill bs=1M count=8 2>/dev/null
    sleep 60
    ;;
  esac
done
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_fills_the_disk_is_ended() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("claude");
    script(Path::new(&program), SHELL);
    let app = TestApp::new(PROGRAM).env("SHIKIRI_CLAUDE_BIN", program.display()).start().await;
    let model = json!({ "id": "shell", "engine": "claude-code", "model_name": "m" });
    app.client().post("/v1/models", &model).await.expect(201);
    let tenant = app.tenant("writer").await;
    let limits = json!({
        "model_id": "shell", "workspace_enabled": true, "limits": { "stored_bytes": 4 * MIB },
    });
    app.client().patch("/v1/tenants/writer", &limits).await.expect(200);
    let talk = Talk::start(&tenant).await;
    let begun = Instant::now();
    let events = talk.say("fill it").await;
    assert_eq!(terminal(&events).data["code"], "QUOTA_EXCEEDED", "{events:?}");
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
    assert!(stored(&app, &tenant).await >= 8 * MIB as u64);
    assert_full(&talk.post(&Talk::body("again"), &[]).await);
}

/// A request that would wait for a busy conversation is told of that, whatever the tenant's limit.
#[tokio::test(flavor = "multi_thread")]
async fn a_busy_conversation_is_judged_by_its_lock_and_not_by_the_number_of_executions() {
    let app = TestApp::new(PROGRAM).env("SHIKIRI_LOCK_WAIT_SECONDS", "0.3").start().await;
    let tenant = app.tenant("busy").await;
    let limits = json!({ "model_id": "offline", "limits": { "max_concurrent_executions": 1 } });
    app.client().patch("/v1/tenants/busy", &limits).await.expect(200);
    let (talk, other) = (Talk::start(&tenant).await, Talk::start(&tenant).await);
    let id = talk.begin("#offline events=1 hang=1").await;
    let busy = talk.post(&Talk::body("x"), &[]).await.problem(409);
    assert_eq!((&busy["code"], &busy["execution_id"]), (&json!("CONVERSATION_LOCKED"), &json!(id)));
    let full = other.post(&Talk::body("x"), &[]).await.problem(429);
    assert_eq!(full["code"], "LIMIT_EXCEEDED");
    talk.cancel(&id).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_has_expired_opens_nothing_and_its_use_is_told() {
    let app = TestApp::new(PROGRAM).start().await;
    let tenant = app.tenant("keys").await;
    let keys = tenant.path("/keys");
    let past = json!({ "name": "old", "expires_at": "2020-01-01T00:00:00.000Z" });
    app.client().post(&keys, &past).await.problem(400);
    let end = time_from_now(3);
    let made = app.client().post(&keys, &json!({ "name": "short", "expires_at": end })).await;
    let made = made.expect(201);
    assert_eq!((&made["expires_at"], &made["last_used_at"]), (&json!(end), &Value::Null));
    let short = app.client().with_key(made["key"].as_str().unwrap());
    short.get(&tenant.path("")).await.expect(200);
    until("its use is told", async || {
        let listed = app.client().get(&keys).await.expect(200);
        let items = listed["items"].as_array().unwrap().clone();
        let item = items.into_iter().find(|item| item["id"] == made["id"]).unwrap();
        item["last_used_at"].is_string()
    })
    .await;
    until("it has expired", async || short.get(&tenant.path("")).await.status == 401).await;
    let made = app.cli().run(&["keys", "create", "ci", "--expires", "30d", "--json"]).done().json();
    assert!(made["expires_at"].is_string(), "{made}");
    let table = app.cli().run(&["keys", "list"]).done().stdout;
    assert!(table.contains("EXPIRES") && table.contains("LAST USED"), "{table}");
}

/// In the form that answers have.
fn time_from_now(seconds: u64) -> String {
    let ms = SystemClock.now().as_millis() + i64::try_from(seconds).unwrap() * 1_000;
    shikiri_model::time::Timestamp::from_millis(ms).to_string()
}

async fn try_wrong(client: &Client, times: usize) -> (Vec<u16>, Duration) {
    let begun = Instant::now();
    let mut answers = Vec::new();
    for _ in 0..times {
        answers.push(client.get("/v1/tenants/local").await.status);
    }
    (answers, begun.elapsed())
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_keys_from_one_address_are_slowed_down_and_right_ones_are_not() {
    let app = TestApp::new(PROGRAM).start().await;
    let wrong = app.client().with_key("shk_wrong");
    let (first, _) = try_wrong(&wrong, 10).await;
    assert_eq!(first, [401; 10]);
    let (slowed, took) = try_wrong(&wrong, 4).await;
    assert_eq!(slowed, [401; 4]);
    assert!(took >= Duration::from_millis(50 + 100 + 200 + 400), "{took:?}");
    // Many at once are no way around it; neither is the other door.
    let at_once = futures_util::future::join_all((0..60).map(|_| try_wrong(&wrong, 1))).await;
    assert!(at_once.iter().any(|(answers, _)| answers == &[429]), "{at_once:?}");
    let mcp = wrong.post("/mcp", &json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" })).await;
    assert!(matches!(mcp.status, 401 | 429), "{}", mcp.status);
    let begun = Instant::now();
    app.client().get("/v1/tenants/local").await.expect(200);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

/// The time that a tenant needs for a new file and a new conversation.
async fn time_of_a_write(talk: &Talk, number: usize) -> Duration {
    let begun = Instant::now();
    put(talk, &format!("f{}", number % 50), vec![1; 4096]).await;
    let path = talk.tenant.path("/conversations");
    talk.tenant.client.post(&path, &json!({})).await.expect(201);
    begun.elapsed()
}

/// Sends what is refused, large and small, until it is told to stop.
async fn press(talk: Talk, stop: tokio_util::sync::CancellationToken) {
    let large = json!({ "title": "x".repeat(3 * MIB) });
    while !stop.is_cancelled() {
        put(&talk, "no", vec![1; MIB]).await;
        talk.tenant.client.post(&talk.tenant.path("/conversations"), &large).await;
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Storage and bodies: a tenant at the limit there slows another's writes by no more than twice.
/// A measurement, so it is for the long run.
#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_at_its_limits_slows_another_by_no_more_than_twice() {
    if !shikiri_testkit::long() {
        return;
    }
    let app = TestApp::new(PROGRAM).start().await;
    let (full, other) = (app.tenant("full").await, app.tenant("other").await);
    let (pressing, talk) = (Talk::start(&full).await, Talk::start(&other).await);
    set_limits(&app, &full, json!({ "stored_bytes": 1000, "requests_per_minute": 600 })).await;
    let (mut alone, mut pressed) = (Vec::new(), Vec::new());
    for round in 0..10 {
        for number in 0..20 {
            alone.push(time_of_a_write(&talk, round * 20 + number).await);
        }
        let stop = tokio_util::sync::CancellationToken::new();
        let pressing = tokio::spawn(press(pressing.clone(), stop.clone()));
        for number in 0..20 {
            pressed.push(time_of_a_write(&talk, round * 20 + number).await);
        }
        stop.cancel();
        pressing.await.unwrap();
    }
    let (alone, pressed) = (median(alone), median(pressed));
    eprintln!("a write takes {alone:?} alone and {pressed:?} beside a tenant at its limits");
    assert!(pressed <= alone * 2, "{pressed:?} instead of {alone:?}");
}
