//! Being told that something changed: on a session's own stream, or by listening.

use std::time::Duration;

use serde_json::{Value, json};
use shikiri_mcp::ListChange;
use shikiri_testkit::{Exchange, McpClient, ModernClient, TestApp, have_postgres};

use super::linked_run;
use super::served::{Barrier, Served, waiter};
use crate::PROGRAM;

/// Long enough that what should not come would have come.
const A_WHILE: Duration = Duration::from_millis(500);

async fn started(host: &McpClient, agent: &str, input: Value) -> String {
    linked_run(&host.called("run_agent", json!({ "agent": agent, "input": input })).await)
}

async fn next_notice(stream: &mut Exchange) -> (String, Value) {
    let message = stream.until("a notice", |m| m.method().is_some()).await;
    (message.method().unwrap().to_owned(), message.json["params"].clone())
}

fn updated(uri: &str) -> (String, Value) {
    ("notifications/resources/updated".to_owned(), json!({ "uri": uri }))
}

#[tokio::test(flavor = "multi_thread")]
async fn who_subscribes_again_and_again_is_told_once() {
    let barrier = Barrier::new();
    let served = Served::start(vec![waiter(&barrier)]).await;
    let host = McpClient::connect(served.client()).await;
    let mut stream = host.listen().await;
    let uri = format!("shikiri://runs/{}", started(&host, "waiter", json!({})).await);
    for _ in 0..10 {
        host.result("resources/subscribe", json!({ "uri": uri })).await;
        // Told that it may have changed, unless it was subscribed again before anybody saw that it
        // was not.
        while let Ok(Some(message)) = stream.next_within(A_WHILE).await
            && message.json["params"]["uri"] != uri
        {}
        host.result("resources/unsubscribe", json!({ "uri": uri })).await;
    }
    host.result("resources/subscribe", json!({ "uri": uri })).await;
    while let Ok(Some(_)) = stream.next_within(A_WHILE).await {}
    barrier.lift(1);
    stream.next().await.expect("a notice");
    let mut heard = 1;
    while let Ok(Some(_)) = stream.next_within(A_WHILE).await {
        heard += 1;
    }
    // Its last steps and its end are a handful of commits.
    assert!((1..=6).contains(&heard), "{heard} notices of one run's end");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_unsubscribes_hears_no_more() {
    let barrier = Barrier::new();
    let served = Served::start(vec![waiter(&barrier)]).await;
    let host = McpClient::connect(served.client()).await;
    let mut stream = host.listen().await;
    let [first, second] =
        [started(&host, "waiter", json!({})).await, started(&host, "waiter", json!({})).await]
            .map(|run| format!("shikiri://runs/{run}"));
    for uri in [&first, &second] {
        host.result("resources/subscribe", json!({ "uri": uri })).await;
        // Told once that it may have changed; how it stands is read, not told.
        while next_notice(&mut stream).await != updated(uri) {}
    }
    host.result("resources/unsubscribe", json!({ "uri": first })).await;
    barrier.lift(2);
    let read = async |uri: &str| {
        let read = host.result("resources/read", json!({ "uri": uri })).await;
        serde_json::from_str::<Value>(read["contents"][0]["text"].as_str().unwrap()).unwrap()
    };
    let mut heard = Vec::new();
    while read(&second).await["status"] != "completed" {
        heard.push(next_notice(&mut stream).await);
    }
    while !heard.contains(&updated(&second)) {
        heard.push(next_notice(&mut stream).await);
    }
    while let Ok(Some(message)) = stream.next_within(A_WHILE).await {
        heard.push((message.method().unwrap().to_owned(), message.json["params"].clone()));
    }
    let run = first.trim_start_matches("shikiri://runs/");
    let ended = host.called("run_wait", json!({ "run_id": run })).await;
    assert_eq!(ended["structuredContent"]["status"], "completed");
    // What was under way when it was ended may still come, but not the run's end.
    let of_first = heard.iter().filter(|notice| **notice == updated(&first)).count();
    let of_second = heard.iter().filter(|notice| **notice == updated(&second)).count();
    assert!(of_first == 0 || of_first < of_second, "{heard:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_outlives_stream_and_server() {
    let quick = |app: shikiri_testkit::Builder| app.env("SHIKIRI_NODE_LEASE_SECONDS", "0.6");
    let mut worlds = vec![quick(TestApp::new(PROGRAM)).start().await];
    if have_postgres("a subscription over a restart") {
        worlds.push(quick(TestApp::new(PROGRAM).postgres()).start().await);
    }
    for mut app in worlds {
        let host = McpClient::connect(&app.client()).await;
        let run = started(&host, "travel_agent", json!({ "step_ms": 1 })).await;
        let uri = format!("shikiri://runs/{run}");
        host.result("resources/subscribe", json!({ "uri": uri })).await;
        let mut stream = host.listen().await;
        assert_eq!(next_notice(&mut stream).await, updated(&uri));
        let last = stream.last_event_id().unwrap().to_owned();
        app.restart().await;
        let mut stream = host.resume(&last).await;
        assert_eq!(stream.status, 200);
        assert_eq!(next_notice(&mut stream).await, updated(&uri), "it may have changed meanwhile");
        host.called("run_cancel", json!({ "run_id": run })).await;
        assert_eq!(next_notice(&mut stream).await, updated(&uri));
        let ids: Vec<u128> =
            stream.seen.iter().map(|m| m.event_id.as_ref().unwrap().parse().unwrap()).collect();
        assert!(last.parse::<u128>().unwrap() < ids[0] && ids.is_sorted(), "{ids:?}");
        // Notices are kept too: who comes with an older id reads them once more.
        let mut again = host.resume(&last).await;
        for message in &stream.seen {
            assert_eq!(again.next().await.as_ref(), Some(message));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_or_not_ours_cannot_be_subscribed_to() {
    let app = TestApp::new(PROGRAM).start().await;
    let tenant = app.tenant("other").await;
    let theirs = tenant.start_run("travel_agent", json!({ "step_ms": 50 })).await;
    let host = McpClient::connect(&app.client()).await;
    for uri in [
        format!("shikiri://runs/{theirs}"),
        format!("shikiri://runs/{theirs}/events"),
        "shikiri://runs/run_0".to_owned(),
        "shikiri://runs/".to_owned(),
        "shikiri://nothing".to_owned(),
        "file:///etc/passwd".to_owned(),
    ] {
        for method in ["resources/subscribe", "resources/read"] {
            let mut answer = host.request(method, json!({ "uri": uri })).await;
            assert_eq!(answer.error(-32002).await["data"]["uri"], uri);
        }
    }
    host.request("resources/subscribe", json!({})).await.error(-32602).await;
    host.request("resources/subscribe", json!({ "uri": 7 })).await.error(-32602).await;
    let newer = ModernClient::new(&app.client());
    let read = json!({ "uri": format!("shikiri://runs/{theirs}") });
    newer.request("resources/read", read.clone()).await.error(-32602).await;
    // One may listen to anything, but what is another's never tells.
    let mut stream = newer.listen(json!({ "resourceSubscriptions": [read["uri"]] })).await;
    let heard = stream.next_within(A_WHILE).await;
    assert!(heard.is_err(), "{heard:?}");
    assert_ne!(tenant.run(&theirs).await["status"], "queued", "it has changed meanwhile");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_is_told_what_it_asked_for_under_its_own_id() {
    let barrier = Barrier::new();
    let served = Served::start(vec![waiter(&barrier)]).await;
    let older = McpClient::connect(served.client()).await;
    let uri = format!("shikiri://runs/{}", started(&older, "waiter", json!({})).await);
    let host = ModernClient::new(served.client());
    let filter = json!({ "toolsListChanged": true, "resourceSubscriptions": [uri] });
    let mut stream = host.listen(filter.clone()).await;
    assert_eq!(stream.seen[0].json["params"]["notifications"], filter);
    let mut deaf = host.listen(json!({ "promptsListChanged": true })).await;
    let mut session = older.listen().await;

    served.mcp().announce(ListChange::Tools);
    let is_tools =
        |m: &shikiri_testkit::Message| m.method() == Some("notifications/tools/list_changed");
    let told = stream.until("a change of tools", is_tools).await;
    session.until("a change of tools", is_tools).await;
    let subscription = "io.modelcontextprotocol/subscriptionId";
    let tag = |m: &shikiri_testkit::Message| m.json["params"]["_meta"][subscription].clone();
    assert!(tag(&told).is_i64(), "{told:?}");
    assert_eq!(tag(&told), tag(&stream.seen[0]));

    barrier.lift(1);
    let told =
        stream.until("an update", |m| m.method() == Some("notifications/resources/updated")).await;
    assert_eq!((&told.json["params"]["uri"], tag(&told)), (&json!(uri), tag(&stream.seen[0])));
    served.mcp().announce(ListChange::Prompts);
    let told = deaf.next().await.unwrap();
    assert_eq!(told.method(), Some("notifications/prompts/list_changed"), "nothing else");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_cannot_ask_for_nonsense_or_too_much() {
    let app = TestApp::new(PROGRAM).start().await;
    let host = ModernClient::new(&app.client());
    let many: Vec<_> = (0..257).map(|i| format!("shikiri://runs/run_{i}")).collect();
    for notifications in [
        Value::Null,
        json!([]),
        json!("all"),
        json!({ "resourceSubscriptions": "shikiri://runs/run_0" }),
        json!({ "resourceSubscriptions": [1] }),
        json!({ "resourceSubscriptions": many }),
    ] {
        let params = json!({ "notifications": notifications });
        host.request("subscriptions/listen", params).await.error(-32602).await;
    }
    let most: Vec<_> = many.into_iter().take(256).collect();
    host.listen(json!({ "resourceSubscriptions": most })).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_goes_answers_its_listeners_and_tells_callers_where_the_run_is() {
    let mut app = TestApp::new(PROGRAM).start().await;
    let host = ModernClient::new(&app.client());
    let mut listening = host.listen(json!({ "toolsListChanged": true })).await;
    let mut call = host.call("long_running_agent", json!({ "step_ms": 60_000 })).await;
    let older = McpClient::connect(&app.client()).await;
    let session = older.listen().await;
    let mut older_call = older.call("long_running_agent", json!({ "step_ms": 60_000 })).await;
    for stream in [&mut call, &mut older_call] {
        stream.until("a log or progress", |m| m.method().is_some()).await;
    }
    app.ask_to_end();
    let ended = listening.reply().await;
    assert_eq!(ended["result"]["resultType"], "complete", "{ended}");
    assert!(ended["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"].is_i64());
    let handed = call.result().await;
    assert_eq!(handed["structuredContent"]["agent"], "long_running_agent", "{handed}");
    linked_run(&handed);
    // A client that can resume is not answered before the end.
    for mut stream in [session, older_call] {
        let rest = stream.rest().await;
        assert!(!rest.iter().any(shikiri_testkit::Message::is_reply), "{rest:?}");
    }
    let (code, _) = app.ended().await;
    assert_eq!(code, 0);
}
