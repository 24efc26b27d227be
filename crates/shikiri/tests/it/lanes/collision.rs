//! The case that lanes are for: several agents in one project, with the same client name.

use std::path::Path;

use serde_json::{Value, json};
use shikiri_testkit::{Cli, ModernClient, TestApp};

use super::{
    answer, ask, call, connection, exported, on_postgresql, on_sqlite, process, server, servers,
    text,
};

/// Rows 0.1, 0.4, 0.8, 0.19: two processes of one client in one project. What one stores never
/// changes where the other's next question goes; each notices nothing of the other.
#[test]
fn two_processes_with_one_client_name_keep_their_own_chats() {
    on_sqlite(two_processes);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_keep_their_own_chats_on_postgresql() {
    on_postgresql("two processes with one client name", two_processes).await;
}

fn two_processes(cli: &Cli, folder: &Path) {
    let (mut a, mut b) = (process(cli, "claude-code"), process(cli, "claude-code"));
    let first_a = ask(&mut a, "A の最初の質問");
    let first_b = ask(&mut b, "B の最初の質問");
    assert_eq!(first_a["instance"], format!("claude-code-{}", a.pid()));
    assert_eq!(first_b["instance"], format!("claude-code-{}", b.pid()));
    assert_ne!(first_a["url"], first_b["url"]);
    for turn in 0..3 {
        let (again_a, again_b) =
            (ask(&mut a, &format!("A{turn}")), ask(&mut b, &format!("B{turn}")));
        assert_eq!((&again_a["url"], &again_b["url"]), (&first_a["url"], &first_b["url"]));
        assert!(text(&again_a, "answer").ends_with(&format!("question: A{turn}")));
    }
    let lanes = exported(cli);
    let lanes = lanes["agents"].as_object().unwrap();
    assert_eq!(lanes.len(), 2);
    for (client, asked) in [(&a, &first_a), (&b, &first_b)] {
        let lane = &lanes[&format!("claude-code-{}", client.pid())];
        assert_eq!(lane["chatgpt"]["url"], asked["url"]);
        assert_eq!(lane["gemini"], Value::Null);
    }
    let project = folder.file_name().unwrap().to_str().unwrap();
    assert!(!lanes.keys().any(|name| name.contains(project)));
}

/// Rows 0.1, 0.8: the same with one server for all, where a process says nothing, in both eras.
#[tokio::test(flavor = "multi_thread")]
async fn two_connections_with_one_client_name_keep_their_own_chats() {
    for app in servers("two connections with one client name", |app| app).await {
        two_connections(&app).await;
    }
}

async fn two_connections(app: &TestApp) {
    let (a, b) = (connection(app, "claude-code").await, connection(app, "claude-code").await);
    let ask = async |mcp: &shikiri_testkit::McpClient, question: &str| {
        answer(&mcp.result("tools/call", call("ask_chatgpt_web", question)).await)
    };
    let (first_a, first_b) = (ask(&a, "A").await, ask(&b, "B").await);
    for (mcp, first) in [(&a, &first_a), (&b, &first_b)] {
        let session = mcp.session();
        let end = &session[session.len() - 8..];
        assert_eq!(first["instance"], format!("claude-code-{end}"));
    }
    assert_ne!(first_a["url"], first_b["url"]);
    assert_eq!(ask(&a, "A2").await["url"], first_a["url"]);
    assert_eq!(ask(&b, "B2").await["url"], first_b["url"]);

    // Without connections a name tells who of several that share a key calls.
    let modern = ModernClient::new(&app.client());
    let by = async |handle: &str| {
        let mut params = call("ask_chatgpt_web", "?");
        params["_meta"]["shikiri/lane"] = json!(handle);
        answer(&modern.result("tools/call", params).await)["url"].clone()
    };
    let urls = [by("左").await, by("右").await];
    assert_eq!(urls, [by("左").await, by("右").await]);
    let mut all = vec![first_a["url"].clone(), first_b["url"].clone()];
    all.extend(urls);
    all.sort_by_key(ToString::to_string);
    all.dedup();
    assert_eq!(all.len(), 4, "{all:?}");
    let mut params = call("ask_chatgpt_web", "?");
    params["_meta"]["shikiri/lane"] = json!("x".repeat(65));
    let refused = modern.request("tools/call", params).await.error(-32602).await;
    assert!(text(&refused, "message").contains("shikiri/lane"), "{refused}");
}

/// What a modern client is told that asks, with this header and this name in `_meta`.
async fn ask_named(modern: &ModernClient, header: Option<&str>, meta: Option<&str>) -> Value {
    let mut params = call("ask_chatgpt_web", "?");
    if let Some(name) = meta {
        params["_meta"]["shikiri/lane"] = json!(name);
    }
    let request = modern.prepare("tools/call", params).header("shikiri-lane", header);
    answer(&modern.send(&request).await.result().await)
}

/// Two agents with one key and one client's name are told apart by what they send, and else get
/// nothing of each other.
#[tokio::test(flavor = "multi_thread")]
async fn modern_callers_with_one_key_never_share_a_chat_unless_they_share_a_name() {
    for app in servers("callers of one key", |app| app).await {
        let modern = ModernClient::new(&app.client());
        let left = ask_named(&modern, Some("left"), None).await;
        let right = ask_named(&modern, Some("right"), None).await;
        assert_ne!(left["url"], right["url"]);
        assert_eq!(ask_named(&modern, Some("left"), None).await["url"], left["url"]);
        assert_eq!(ask_named(&modern, Some("right"), Some("left")).await["url"], left["url"]);
        assert_eq!((&left["agent"], left.get("warning")), (&json!("left"), None));

        // Nothing tells these two apart.
        let first = ask_named(&modern, None, None).await;
        let second = ask_named(&modern, None, None).await;
        for unnamed in [&first, &second] {
            assert!(text(unnamed, "warning").contains("Shikiri-Lane: NAME"), "{unnamed}");
            assert_eq!(unnamed["agent"], "test");
        }
        let urls = [&left, &right, &first, &second].map(|answer| answer["url"].to_string());
        let different: std::collections::BTreeSet<_> = urls.iter().collect();
        assert_eq!(different.len(), 4, "{urls:?}");
        let info = modern.called("lane_info", json!({})).await;
        assert!(text(&answer(&info), "warning").contains("Shikiri-Lane"), "{info}");

        // A client without a name takes the one that it is given.
        let found = modern.result("server/discover", json!({})).await;
        assert_eq!(found["cacheScope"], "private", "the name is for one client");
        let given = text(&found["_meta"], "shikiri/lane");
        let once = ask_named(&modern, None, Some(given)).await;
        assert_eq!(ask_named(&modern, None, Some(given)).await["url"], once["url"]);
        let other = modern.result("server/discover", json!({})).await;
        assert_ne!(other["_meta"]["shikiri/lane"], found["_meta"]["shikiri/lane"]);

        let long = "x".repeat(65);
        let request = modern.prepare("tools/call", call("ask_chatgpt_web", "?"));
        let request = request.header("shikiri-lane", Some(&long));
        let refused = modern.send(&request).await.error(-32020).await;
        assert!(text(&refused, "message").contains("Shikiri-Lane"), "{refused}");
    }
}

/// Another tenant's connections have lanes of their own, and see none but those.
#[tokio::test(flavor = "multi_thread")]
async fn tenants_do_not_see_each_others_lanes() {
    let app = server().start().await;
    let acme = app.tenant("acme").await;
    let ours = connection(&app, "claude-code").await;
    let theirs = shikiri_testkit::McpClient::connect(&acme.client).await;
    for mcp in [&ours, &theirs] {
        answer(&mcp.result("tools/call", call("ask_chatgpt_web", "?")).await);
    }
    for (tenant, client) in [("local", app.client()), ("acme", acme.client.clone())] {
        for list in ["lanes", "history"] {
            let page = client.get(&format!("/v1/tenants/{tenant}/{list}")).await.expect(200);
            assert_eq!(page["items"].as_array().unwrap().len(), 1, "{page}");
        }
    }
    acme.client.get("/v1/tenants/local/lanes").await.expect(404);
    acme.client.get("/v1/tenants/local/history").await.expect(404);
}

/// A run that was started over REST asks in the lane of its key.
#[tokio::test(flavor = "multi_thread")]
async fn over_rest_every_key_has_its_own_chat() {
    let app = server().start().await;
    let acme = app.tenant("acme").await;
    let made = app.client().post("/v1/tenants/acme/keys", &json!({ "name": "second" })).await;
    let other = acme.client.with_key(text(&made.expect(201), "key"));
    let mut urls = Vec::new();
    for client in [&acme.client, &other, &acme.client, &other] {
        let body = json!({ "agent": "ask_chatgpt_web", "input": { "question": "?" } });
        let run = client.post("/v1/tenants/acme/runs", &body).await.expect(201);
        let path = format!("/v1/tenants/acme/runs/{}", text(&run, "id"));
        let url = loop {
            let run = client.get(&path).await.expect(200);
            if let Some(url) = run["result"]["url"].as_str() {
                break url.to_owned();
            }
            assert_ne!(run["status"], "failed", "{run}");
        };
        urls.push(url);
    }
    assert_eq!((&urls[0], &urls[1]), (&urls[2], &urls[3]));
    assert_ne!(urls[0], urls[1]);
}
