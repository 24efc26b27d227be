//! Conversations: made, changed, archived, removed, also while a turn writes to them.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use shikiri_testkit::{TestApp, until, until_within};

use super::kit::Talk;
use crate::PROGRAM;

fn ids(page: &Value) -> Vec<&str> {
    page["items"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_is_made_changed_listed_and_archived() {
    let app = TestApp::new(PROGRAM).start().await;
    let tenant = app.tenant("talker").await;
    let (client, all) = (&tenant.client, tenant.path("/conversations"));
    let new = json!({ "title": "旅行の計画", "model_id": "offline", "workspace_enabled": false });
    let made = client.post(&all, &new).await;
    let mut shown = made.expect(201);
    let id = shown["id"].as_str().unwrap().to_owned();
    let path = format!("{all}/{id}");
    assert_eq!(made.header("location"), Some(path.as_str()));
    assert_eq!(client.get(&path).await.expect(200), shown);
    for field in ["id", "created_at", "updated_at"] {
        assert!(shown[field].take().is_string(), "{field}");
    }
    assert_eq!(
        shown,
        json!({
            "id": null, "title": "旅行の計画", "session_id": null, "status": "active", "model_id": "offline",
            "workspace_enabled": false, "turns": 0, "created_at": null, "updated_at": null,
        })
    );
    let second = client.post(&all, &json!({})).await.expect(201)["id"].as_str().unwrap().to_owned();
    assert_eq!(ids(&client.get(&all).await.expect(200)), [second.as_str(), &id], "newest first");

    let change = json!({ "title": null, "model_id": null, "workspace_enabled": null });
    let changed = client.patch(&path, &change).await.expect(200);
    for field in ["title", "model_id", "workspace_enabled"] {
        assert_eq!(changed[field], Value::Null, "{field}");
    }
    for (body, field) in [
        (json!({ "title": "" }), "title"),
        (json!({ "title": "長".repeat(201) }), "title"),
        (json!({ "title": "a\nb" }), "title"),
        (json!({ "session_id": "mine" }), "session_id"),
        (json!({ "model_id": "none" }), "model_id"),
        (json!({ "turns": 3 }), "turns"),
        (json!({ "status": "gone" }), "status"),
    ] {
        let problem = client.patch(&path, &body).await.problem(400);
        assert_eq!(problem["field"], field, "{body}: {problem}");
    }

    assert_eq!(
        client.post(&format!("{path}/archive"), &json!({})).await.expect(200)["status"],
        "archived"
    );
    let talk = Talk { tenant: tenant.clone(), id: id.clone() };
    client.patch("/v1/tenants/talker", &json!({ "model_id": "offline" })).await.expect(200);
    let refused = talk.post(&Talk::body("x"), &[]).await.problem(409);
    assert!(refused["detail"].as_str().unwrap().contains("archived"), "{refused}");
    assert_eq!(ids(&client.get(&format!("{all}?status=archived")).await.expect(200)), [&id]);
    assert_eq!(ids(&client.get(&format!("{all}?status=active")).await.expect(200)), [&second]);
    client.patch(&path, &json!({ "status": "active" })).await.expect(200);
    talk.say("again").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_execution_writes_to_is_not_pulled_from_under_it() {
    let app = TestApp::new(PROGRAM).start().await;
    let talk = Talk::start(&app.local()).await;
    let client = &talk.tenant.client;
    talk.say("まず").await;
    let session = talk.record().await["session_id"].clone();
    assert!(session.is_string());
    let execution = talk.begin("#offline hang=1").await;

    for answer in [
        client.delete(&talk.path("")).await,
        client.patch(&talk.path(""), &json!({ "session_id": null, "title": "no" })).await,
    ] {
        let problem = answer.problem(409);
        assert_eq!(problem["code"], "CONVERSATION_LOCKED");
        assert_eq!(problem["execution_id"], execution.as_str());
        assert!(answer.header("retry-after").is_some());
    }
    let cli = app.cli();
    cli.run(&["conversations", "remove", &talk.id, "--yes"]).refused(3, &[&execution]);
    client.patch(&talk.path(""), &json!({ "title": "新しい題" })).await.expect(200);
    client.post(&talk.path("/archive"), &json!({})).await.expect(200);

    talk.cancel(&execution).await;
    talk.follow(&execution, 0).await;
    let record = talk.record().await;
    assert_eq!(
        (&record["title"], &record["status"], &record["session_id"]),
        (&json!("新しい題"), &json!("archived"), &session)
    );
    let free = Duration::from_secs(20);
    until_within(free, "the conversation is free", async || {
        client.patch(&talk.path(""), &json!({ "session_id": null })).await.status == 200
    })
    .await;
    assert_eq!(talk.record().await["session_id"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_conversation_leaves_its_bill_and_nothing_else() {
    let app = TestApp::new(PROGRAM).start().await;
    let tenant = app.local();
    let talk = Talk::start(&tenant).await;
    let other = Talk::start(&tenant).await;
    for talk in [&talk, &other] {
        talk.say("一").await;
        talk.say("二 #offline tools=2").await;
    }
    let client = &tenant.client;
    let messages = client.get(&talk.path("/messages?limit=3")).await.expect(200);
    assert_eq!(messages["items"].as_array().unwrap().len(), 3);
    let first = &messages["items"][0];
    assert_eq!((&first["turn"], &first["seq"]), (&json!(1), &json!(1)), "oldest first: {messages}");
    let next = format!("/messages?cursor={}", messages["next_cursor"].as_str().unwrap());
    let rest = client.get(&talk.path(&next)).await.expect(200);
    assert_eq!(rest["items"].as_array().unwrap().last().unwrap()["turn"], 2);
    let others = client.get(&other.path("/messages")).await.expect(200);
    let executions = client.get(&talk.path("/executions")).await.expect(200);
    let usage = client.get(&tenant.path("/usage?group_by=conversation")).await.expect(200);
    assert!(usage.to_string().contains(&talk.id), "{usage}");
    let home = app.data_folder().join("engines").join(&talk.id);
    assert!(home.exists(), "engines keep their things elsewhere: {}", home.display());

    client.delete(&talk.path("")).await.expect(204);
    for path in ["", "/messages", "/executions"] {
        let problem = client.get(&talk.path(path)).await.problem(404);
        assert_eq!(problem["code"], "CONVERSATION_NOT_FOUND", "{path}");
    }
    client.delete(&talk.path("")).await.problem(404);
    client.patch(&talk.path(""), &json!({ "session_id": null })).await.problem(404);
    assert!(!home.exists());
    // Nothing is left of its executions but what was spent.
    for id in ids(&executions) {
        for rest in ["", "/events", "/tools", "/usage"] {
            let path = tenant.path(&format!("/executions/{id}{rest}"));
            assert_eq!(
                client.get(&path).await.problem(404)["code"],
                "EXECUTION_NOT_FOUND",
                "{path}"
            );
        }
        client.get(&tenant.path(&format!("/runs/{id}"))).await.problem(404);
    }
    assert_eq!(client.get(&tenant.path("/usage?group_by=conversation")).await.expect(200), usage);
    assert_eq!(client.get(&other.path("/messages")).await.expect(200), others);
}

#[test]
fn conversations_live_on_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let cli = shikiri_testkit::Cli::new(PROGRAM, folder.path());
    let id = cli.run(&["conversations", "create", "--title", "会議"]).done().stdout;
    let id = id.trim();
    assert!(id.starts_with("cnv_"), "{id}");
    let set = ["conversations", "set", id, "--model", "offline", "--workspace", "true", "--json"];
    let set = cli.run(&set).done().json();
    assert_eq!(
        (&set["title"], &set["model_id"], &set["workspace_enabled"]),
        (&json!("会議"), &json!("offline"), &json!(true))
    );
    let set = [
        "conversations",
        "set",
        id,
        "--title",
        "",
        "--model",
        "",
        "--workspace",
        "tenant",
        "--new-session",
        "--json",
    ];
    let set = cli.run(&set).done().json();
    assert_eq!(
        (&set["title"], &set["model_id"], &set["workspace_enabled"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );
    cli.run(&["conversations", "set", id, "--model", "none"]).refused(2, &["none"]);
    cli.run(&["conversations", "archive", id]).done();
    assert!(cli.run(&["conversations", "list", "--status", "archived"]).done().stdout.contains(id));
    assert!(!cli.run(&["conversations", "list", "--status", "active"]).done().stdout.contains(id));
    let shown = cli.run(&["conversations", "show", id]).done().stdout;
    assert!(shown.contains("archived") && shown.contains("the tenant's"), "{shown}");
    assert_eq!(
        cli.run(&["conversations", "messages", id, "--json"]).done().json()["items"],
        json!([])
    );
    cli.run(&["conversations", "remove", id]).refused(3, &["--yes"]);
    cli.run(&["conversations", "remove", id, "--yes"]).done();
    cli.run(&["conversations", "show", id]).refused(4, &[id, "shikiri conversations list"]);
    cli.run(&["conversations", "list", "--tenant", "absent"]).refused(4, &["absent"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_hangs_up_leaves_no_conversation_half_removed_or_held() {
    let app = TestApp::new(PROGRAM).start().await;
    let tenant = app.local();
    let client = &tenant.client;
    for patience_ms in [1, 3, 6, 10, 15] {
        let talk = Talk::start(&tenant).await;
        talk.say("#offline tools=1000").await;
        let removal = client.request(Method::DELETE, &talk.path(""));
        let patience = Duration::from_millis(patience_ms);
        let _ = tokio::time::timeout(patience, client.try_send(removal)).await;
        until("it is gone or can be removed", async || {
            let answer = client.delete(&talk.path("")).await;
            if answer.status == 409 {
                // It is held for the change that goes on, which is no execution.
                assert_eq!(answer.problem(409).get("execution_id"), None);
            }
            answer.status == 204 || answer.status == 404
        })
        .await;
        assert_eq!(client.get(&talk.path("/messages")).await.status, 404);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_large_executions_stays_small_and_none_is_missed() {
    let app = TestApp::new(PROGRAM).start().await;
    let talk = Talk::start(&app.local()).await;
    for _ in 0..6 {
        talk.say(&"x".repeat(1_000_000)).await;
    }
    for list in [talk.path("/executions"), talk.tenant.path("/runs"), talk.path("/messages")] {
        let (mut seen, mut pages, mut cursor) = (Vec::new(), 0, String::new());
        loop {
            let path = format!("{list}?limit=200{cursor}");
            let page = talk.tenant.client.get(&path).await;
            assert!(page.body.len() < 5 << 20, "{} bytes in a page of {list}", page.body.len());
            let page = page.expect(200);
            seen.extend(ids(&page).into_iter().map(str::to_owned));
            pages += 1;
            let Some(next) = page["next_cursor"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        let count = seen.len();
        seen.sort();
        seen.dedup();
        assert!(pages > 1 && seen.len() == count, "{count} in {pages} pages of {list}");
        let wanted = if list.ends_with("messages") { 12 } else { 6 };
        assert!(count >= wanted, "{count} of {list}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_values_starts_no_execution() {
    let app = TestApp::new(PROGRAM).start().await;
    let talk = Talk::start(&app.local()).await;
    for body in [
        json!(["x", ["u", null, null], {}, [], null]),
        json!({ "user_input": "x", "executor": ["u", null, null] }),
    ] {
        assert_eq!(talk.post(&body, &[]).await.problem(400)["code"], "INVALID_REQUEST", "{body}");
    }
    let list = talk.tenant.client.get(&talk.path("/executions")).await.expect(200);
    assert_eq!(list["items"], json!([]));
}
