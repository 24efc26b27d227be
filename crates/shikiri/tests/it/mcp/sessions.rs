//! Sessions of the older era: they are records, so no restart and no other node forgets them.

use std::time::Duration;

use serde_json::{Value, json};
use shikiri_testkit::{Builder, Client, Exchange, McpClient, ModernClient, TestApp, have_postgres};

use super::yes;
use crate::PROGRAM;

fn quick(builder: Builder) -> Builder {
    builder.env("SHIKIRI_NODE_LEASE_SECONDS", "0.6")
}

async fn worlds(story: &str) -> Vec<TestApp> {
    let mut worlds = vec![quick(TestApp::new(PROGRAM)).start().await];
    if have_postgres(story) {
        worlds.push(quick(TestApp::new(PROGRAM).postgres()).start().await);
    }
    worlds
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_goes_on_after_the_server_was_killed() {
    for mut app in worlds("a session over a kill").await {
        let capabilities = json!({ "elicitation": {} });
        let host = McpClient::with_capabilities(&app.client(), capabilities).await;
        host.result("logging/setLevel", json!({ "level": "error" })).await;
        app.restart().await;
        assert_eq!(host.result("ping", json!({})).await, json!({}));
        // What was said at the handshake and since is still known.
        let mut call = host.call("travel_agent", json!({ "step_ms": 1 })).await;
        let question = call.question().await;
        host.answer(&question, yes("")).await;
        assert_eq!(call.result().await["structuredContent"]["booked"], true);
        let mut call = host.call("long_running_agent", json!({ "steps": 1, "step_ms": 1 })).await;
        call.rest().await;
        assert_eq!(super::logs(&call.seen), [] as [Value; 0], "it wants errors only");
        assert_eq!(
            host.called("research_agent", json!({ "step_ms": 1 })).await["structuredContent"]["summary_source"],
            "none"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn any_node_serves_any_request_of_a_session() {
    for app in worlds("a session on two nodes").await {
        let second = app.another().await;
        let elsewhere = Client::new(second.base()).with_key(&app.admin_key());
        let here = McpClient::connect(&app.client()).await;
        let there = here.through(&elsewhere);
        assert_eq!(there.result("ping", json!({})).await, json!({}));

        // Asked on one node, answered on the other, read on both.
        let mut call = here.call("travel_agent", json!({ "step_ms": 1 })).await;
        let start = call.next().await.unwrap().event_id.unwrap();
        let question = call.question().await;
        assert_eq!(there.answer(&question, yes("from afar")).await.status, 202);
        let result = call.result().await;
        assert_eq!(result["structuredContent"]["notes"], "from afar");
        assert_eq!(there.resume(&start).await.result().await, result);

        // Cancelled on one node, stopped wherever it runs.
        let endless = json!({ "steps": 10_000, "step_ms": 20 });
        let mut call = here.call_as(&json!("x"), &json!("x"), "long_running_agent", endless).await;
        call.until("progress", |m| m.json["params"]["message"] == "step 1 done").await;
        there.notify("notifications/cancelled", json!({ "requestId": "x" })).await;
        assert_eq!(call.result().await["structuredContent"]["error"]["code"], "CANCELLED");

        // Ended on one node, ended everywhere.
        let mut stream = here.listen().await;
        assert_eq!(stream.status, 200);
        assert_eq!(there.delete().await.status, 204);
        stream.rest().await;
        assert_eq!(there.request("ping", json!({})).await.status, 404);
        shikiri_testkit::until("the first node has heard", async || {
            here.request("ping", json!({})).await.status == 404
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_was_ended_is_not_there() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = McpClient::connect(&app.client()).await;
    let mut call = host.call("long_running_agent", json!({ "steps": 1, "step_ms": 1 })).await;
    call.rest().await;
    let last = call.last_event_id().unwrap().to_owned();
    let mut stream = host.listen().await;
    assert_eq!(host.delete().await.status, 204);
    stream.rest().await;
    assert_eq!(host.request("ping", json!({})).await.status, 404);
    assert_eq!(host.listen().await.status, 404);
    assert_eq!(host.resume(&last).await.status, 404);
    assert_eq!(host.delete().await.status, 404);
    // No other session ended with it.
    let other = McpClient::connect(&app.client()).await;
    assert_eq!(other.result("ping", json!({})).await, json!({}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_has_one_stream_and_a_reconnect_takes_it_over() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = McpClient::connect(&app.client()).await;
    let mut first = host.listen().await;
    let id = first.next().await.unwrap().event_id.unwrap();
    let mut second = host.listen().await;
    assert_eq!(second.status, 409);
    second.error(-32600).await;
    // The first may be dead without our knowing; who has its last id is trusted.
    let back = host.resume(&id).await;
    assert_eq!(back.status, 200);
    first.rest().await;
    assert_eq!(host.listen().await.status, 409, "now that one is the stream");
    drop(back);
    shikiri_testkit::until("the place is free", async || host.listen().await.status == 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_was_cut_while_it_opened_takes_no_place() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = McpClient::connect(&app.client()).await;
    for micros in (0..3_000).step_by(60) {
        let opening = host.listen();
        let _ = tokio::time::timeout(Duration::from_micros(micros), opening).await;
    }
    shikiri_testkit::until("the place is free", async || host.listen().await.status == 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_key_ends_its_streams_and_opens_nothing() {
    let app = TestApp::new(PROGRAM).start().await;
    let made =
        app.client().post("/v1/tenants/local/keys", &json!({ "name": "x" })).await.expect(201);
    let client = app.client().with_key(made["key"].as_str().unwrap());
    let host = McpClient::connect(&client).await;
    let newer = ModernClient::new(&client);
    let slow = json!({ "steps": 1, "step_ms": 60_000 });
    let mut streams: Vec<Exchange> = vec![
        host.listen().await,
        host.call("long_running_agent", slow.clone()).await,
        newer.call("long_running_agent", slow).await,
        newer.listen(json!({ "toolsListChanged": true })).await,
    ];
    let unharmed = McpClient::connect(&app.client()).await;
    let mut other = unharmed.listen().await;
    let path = format!("/v1/tenants/local/keys/{}", made["id"].as_str().unwrap());
    assert!(app.client().delete(&path).await.status < 300);
    for stream in &mut streams {
        stream.rest().await;
    }
    assert_eq!(host.request("ping", json!({})).await.status, 401);
    assert_eq!(newer.request("tools/list", json!({})).await.status, 401);
    assert_eq!(other.next().await.map(|message| message.json), Some(Value::Null));
    assert!(other.next_within(Duration::from_millis(200)).await.is_err(), "it goes on");
}

/// A caller of the newer era has a record of its calls too, which is no session.
#[tokio::test(flavor = "multi_thread")]
async fn what_holds_the_newer_eras_calls_cannot_be_used_or_ended_as_a_session() {
    let app = TestApp::new(PROGRAM).start().await;
    let made =
        app.client().post("/v1/tenants/local/keys", &json!({ "name": "x" })).await.expect(201);
    let client = app.client().with_key(made["key"].as_str().unwrap());
    let newer = ModernClient::new(&client);
    newer.called("run_status", json!({ "run_id": "run_0" })).await;
    let days = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs() / 86_400;
    for day in [days, days + 1] {
        let id = format!("con_{}-{day}", made["id"].as_str().unwrap());
        let guess = McpClient::resumed(&client, &id, "2025-11-25");
        assert_eq!(guess.request("ping", json!({})).await.status, 404);
        assert_eq!(guess.delete().await.status, 404);
    }
    let result = newer.called("run_status", json!({ "run_id": "run_0" })).await;
    assert_eq!(result["structuredContent"]["error"]["code"], "run_not_found");
}
