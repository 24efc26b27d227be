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

    // Without connections the key tells, and a handle who of several that share it.
    let modern = ModernClient::new(&app.client());
    let by = async |handle: Option<&str>| {
        let mut params = call("ask_chatgpt_web", "?");
        if let Some(handle) = handle {
            params["_meta"]["shikiri/lane"] = json!(handle);
        }
        answer(&modern.result("tools/call", params).await)["url"].clone()
    };
    let urls = [by(None).await, by(Some("左")).await, by(Some("右")).await];
    assert_eq!(urls, [by(None).await, by(Some("左")).await, by(Some("右")).await]);
    let mut all = vec![first_a["url"].clone(), first_b["url"].clone()];
    all.extend(urls);
    all.sort_by_key(ToString::to_string);
    all.dedup();
    assert_eq!(all.len(), 5, "{all:?}");
    let mut params = call("ask_chatgpt_web", "?");
    params["_meta"]["shikiri/lane"] = json!("x".repeat(65));
    let refused = modern.request("tools/call", params).await.error(-32602).await;
    assert!(text(&refused, "message").contains("shikiri/lane"), "{refused}");
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
