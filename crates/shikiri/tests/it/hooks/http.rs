//! Hooks that are posted to a server.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use shikiri_sqlite::{DatabaseOptions, SqliteDatabase};
use shikiri_testkit::{Builder, Cli, Client, TestApp, have_postgres};

use super::call::told;
use crate::PROGRAM;

const CONVENTIONS: &str = r#"
[main]
text = "main text"
[default]
text = "default text"
[roles.tester]
text = "tester text"
[roles.coder]
text = "coder text"
delivery = "block"
[roles.scribe]
text = "scribe text"
[[rules]]
name = "no shell"
tools = ["Bash"]
roles = ["scribe"]
severity = "block"
message = "scribes have no shell"
"#;

fn conventions(root: &Path, text: &str) {
    let folder = root.join(".shikiri");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("conventions.toml"), text).unwrap();
}

/// The events of a capture, as if they had been told in this folder: what Claude Code wrote lies
/// there too.
fn staged(name: &str, root: &Path) -> Vec<Value> {
    let data = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../shikiri-hook/tests/data"));
    let read = |path: &str| std::fs::read_to_string(data.join(path));
    let events = read(&format!("captures/{name}.jsonl")).unwrap();
    let mut events: Vec<Value> =
        events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let metas: Value =
        serde_json::from_str(&read(&format!("captures/{name}.meta.json")).unwrap()).unwrap();
    let session = events[0]["session_id"].as_str().unwrap().to_owned();
    let place = root.join("claude").join(&session);
    std::fs::create_dir_all(place.join("subagents")).unwrap();
    let transcript = read(&format!("transcripts/{name}/session.jsonl"));
    // Which of them it was, at least.
    let transcript = transcript.unwrap_or_else(|_| "{\"version\":\"2.1.325\"}\n".to_owned());
    std::fs::write(place.with_extension("jsonl"), transcript).unwrap();
    for (agent, meta) in metas.as_object().unwrap() {
        let file = place.join(format!("subagents/agent-{agent}"));
        std::fs::write(file.with_extension("meta.json"), meta.to_string()).unwrap();
        if let Ok(text) = read(&format!("transcripts/{name}/agent-{agent}.jsonl")) {
            std::fs::write(file.with_extension("jsonl"), text).unwrap();
        }
    }
    for event in &mut events {
        event["transcript_path"] = json!(place.with_extension("jsonl"));
        if let Some(agent) = event["agent_id"].as_str()
            && event["agent_transcript_path"].is_string()
        {
            let file = place.join(format!("subagents/agent-{agent}.jsonl"));
            event["agent_transcript_path"] = json!(file);
        }
    }
    events
}

/// What is known about the subagents, without what differs from time to time.
fn subagents(mut listed: Value) -> Vec<Value> {
    let mut items = listed["items"].take().as_array().unwrap().clone();
    items.sort_by_key(|item| item["agent_id"].as_str().map(str::to_owned));
    for item in &mut items {
        let fields = item.as_object_mut().unwrap();
        for moving in ["created_at", "ended_at", "startup_processed_at", "duration_ms"] {
            fields.remove(moving);
        }
    }
    items
}

async fn hooks_key(app: &TestApp, tenant: &str) -> Client {
    let path = format!("/v1/tenants/{tenant}/keys");
    let made = app.client().post(&path, &json!({ "scope": "hooks" })).await.expect(201);
    app.client().with_key(made["key"].as_str().unwrap())
}

/// Every event of real sessions is answered as `shikiri hook` answers it, and leads to the same
/// records.
async fn answers_as_the_process_does(server: fn() -> Builder) {
    for name in ["parallel", "mcp", "custom-agents", "background", "subagent-api-error"] {
        let folder = tempfile::tempdir().unwrap();
        conventions(folder.path(), CONVENTIONS);
        let cli = Cli::new(PROGRAM, folder.path());
        let app = server().start().await;
        conventions(app.root(), CONVENTIONS);
        let posting = hooks_key(&app, "local").await;
        let mut said = 0;
        let events = staged(name, folder.path()).into_iter().zip(staged(name, app.root()));
        for (number, (ours, posted)) in events.enumerate() {
            let printed = told(&mut cli.command(&["hook"]), &ours);
            said += usize::from(!printed.is_empty());
            let printed = if printed.is_empty() { "{}".to_owned() } else { printed };
            let printed: Value = serde_json::from_str(&printed).unwrap();
            let answered = posting.post("/hooks/claude", &posted).await;
            assert_eq!(answered.header("content-type"), Some("application/json"));
            assert_eq!(answered.expect(200), printed, "{name}, event {number}: {posted}");
        }
        assert!(said > 0, "{name}: no agent was told anything");
        let ours = cli.run(&["subagents", "--all", "--json"]).done().json();
        let theirs = app.client().get("/v1/tenants/local/subagents").await.expect(200);
        assert_eq!(subagents(theirs), subagents(ours), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_answers_every_event_as_the_process_does() {
    answers_as_the_process_does(|| TestApp::new(PROGRAM)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_on_postgresql_answers_every_event_as_the_process_does() {
    if have_postgres("a_server_on_postgresql_answers_every_event_as_the_process_does") {
        answers_as_the_process_does(|| TestApp::new(PROGRAM).postgres()).await;
    }
}

/// A key for hooks is refused at every other door with 403, at MCP too.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_for_hooks_is_refused_everywhere_else() {
    let app = TestApp::new(PROGRAM).start().await;
    let posting = hooks_key(&app, "local").await;
    let document = app.client().get("/openapi.json").await.expect(200);
    let mut walked = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        let is_ours = path == "/hooks/claude" || !path.starts_with("/v1");
        for method in methods.as_object().unwrap().keys().filter(|_| !is_ours) {
            let path = path.replace("{t}", "local");
            let method = method.to_uppercase().parse().unwrap();
            posting.send(posting.request(method, &path)).await.problem(403);
            walked += 1;
        }
    }
    assert!(walked > 40, "{walked}");
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": { "name": "x", "version": "1" },
    } });
    let request = posting.request(reqwest::Method::POST, "/mcp").json(&hello);
    let request = request.header("accept", "application/json, text/event-stream");
    assert_eq!(posting.send(request).await.status, 403);
    let event = json!({ "session_id": "s", "hook_event_name": "Notification" });
    assert_eq!(posting.post("/hooks/claude", &event).await.expect(200), json!({}));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_belongs_to_the_tenant_of_its_key() {
    let app = TestApp::new(PROGRAM).start().await;
    let acme = app.tenant("acme").await;
    let log = async |tenant: &str| {
        let lines = app.client().get(&format!("/v1/tenants/{tenant}/hooks/log")).await.expect(200);
        let items = lines["items"].as_array().unwrap().clone();
        items.iter().map(|line| line["session_id"].as_str().unwrap().to_owned()).collect()
    };
    let event = |session: &str| json!({ "session_id": session, "hook_event_name": "SubagentStart", "agent_id": session });
    let of_acme = hooks_key(&app, "acme").await;
    of_acme.post("/hooks/claude", &event("by-hooks-key")).await.expect(200);
    acme.client.post("/hooks/claude", &event("by-tenant-key")).await.expect(200);
    app.client().post("/hooks/claude", &event("by-admin-key")).await.expect(200);
    let (theirs, ours): (Vec<String>, Vec<String>) = (log("acme").await, log("local").await);
    assert_eq!(theirs, ["by-tenant-key", "by-hooks-key"]);
    assert_eq!(ours, ["by-admin-key"]);
    let inactive = json!({ "status": "inactive" });
    app.client().patch("/v1/tenants/acme", &inactive).await.expect(200);
    let refused = of_acme.post("/hooks/claude", &event("late")).await.problem(403);
    assert_eq!(refused["code"], "TENANT_INACTIVE");
}

/// What is no event is refused in the form of all refusals; Claude Code then goes on.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_event_is_refused_over_http() {
    let app = TestApp::new(PROGRAM).start().await;
    let client = app.client();
    let send = async |body: &str, kind: &str| {
        let request = client.request(reqwest::Method::POST, "/hooks/claude");
        client.send(request.header("content-type", kind).body(body.to_owned())).await
    };
    for (body, field) in [
        ("", "body"),
        ("nonsense", "body"),
        ("[]", "body"),
        ("{}", "session_id"),
        (r#"{"session_id":"s"}"#, "hook_event_name"),
        (r#"{"session_id":["s"],"hook_event_name":"Stop"}"#, "session_id"),
        (r#"{"session_id":"\u0000","hook_event_name":"Stop"}"#, "body"),
    ] {
        let refused = send(body, "application/json").await.problem(400);
        assert_eq!(
            (&refused["code"], &refused["field"]),
            (&json!("INVALID_REQUEST"), &json!(field)),
            "{body}"
        );
    }
    let deep = format!("{{\"session_id\":{}1{}}}", "[".repeat(100), "]".repeat(100));
    send(&deep, "application/json").await.problem(400);
    send("{}", "text/plain").await.problem(415);
    let large = json!({ "session_id": "s", "hook_event_name": "PreToolUse", "tool_name": "Write",
                        "tool_input": { "content": "x".repeat(5 << 20) } });
    send(&large.to_string(), "application/json").await.problem(413);
    client.get("/hooks/claude").await.problem(405);
    let lines = client.get("/v1/tenants/local/hooks/log").await.expect(200);
    assert_eq!(lines["items"], json!([]), "nothing was recorded");
}

/// The server's conventions hold as soon as the file is written; a broken one gives none.
#[tokio::test(flavor = "multi_thread")]
async fn conventions_that_change_hold_for_the_next_event() {
    let app = TestApp::new(PROGRAM).start().await;
    let client = app.client();
    let started = async |agent: &str| {
        let event = json!({ "session_id": "s", "hook_event_name": "SubagentStart",
                            "agent_id": agent, "agent_type": "Explore" });
        let answer = client.post("/hooks/claude", &event).await.expect(200);
        answer["hookSpecificOutput"]["additionalContext"].as_str().map(str::to_owned)
    };
    assert_eq!(started("a1").await, None);
    conventions(app.root(), "[default]\ntext = \"first\"\n");
    assert_eq!(started("a2").await.as_deref(), Some("first"));
    conventions(app.root(), "[default]\ntext = \"second\"\n");
    assert_eq!(started("a3").await.as_deref(), Some("second"));
    conventions(app.root(), "[default\n");
    assert_eq!(started("a4").await, None);
    assert!(app.log().contains("conventions.toml: line 1"), "{}", app.log());
    std::fs::remove_file(app.root().join(".shikiri/conventions.toml")).unwrap();
    assert_eq!(started("a5").await, None);
}

/// A server that is killed has delivered what was answered, and delivers the rest.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_answered_is_not_said_again_after_a_kill() {
    let mut app = TestApp::new(PROGRAM).start().await;
    conventions(app.root(), CONVENTIONS);
    let started = json!({ "session_id": "s", "hook_event_name": "SubagentStart",
                          "agent_id": "a", "agent_type": "tester" });
    let answer = app.client().post("/hooks/claude", &started).await.expect(200);
    assert_eq!(answer["hookSpecificOutput"]["additionalContext"], "tester text");
    app.kill9();
    app.restart().await;
    assert_eq!(app.client().post("/hooks/claude", &started).await.expect(200), json!({}));
}

/// Rules that need no record hold while the store cannot be used; other events get no answer.
#[tokio::test(flavor = "multi_thread")]
async fn rules_that_need_no_record_hold_on_a_server_whose_store_is_locked() {
    let app = TestApp::new(PROGRAM).start().await;
    let rule = "[[rules]]\nname = \"r\"\ncommands = [\"git push*\"]\nseverity = \"block\"\nmessage = \"no\"\n";
    conventions(app.root(), rule);
    let call = |command: &str| {
        json!({ "session_id": "s", "hook_event_name": "PreToolUse", "tool_name": "Bash",
                "tool_input": { "command": command } })
    };
    app.client().post("/hooks/claude", &call("ls")).await.expect(200);
    let path = app.data_folder().join("state.db");
    let database = SqliteDatabase::open(&path, &DatabaseOptions::default()).unwrap();
    database.execute_batch("BEGIN IMMEDIATE").unwrap();
    let denied = app.client().post("/hooks/claude", &call("git push")).await.expect(200);
    assert_eq!(denied["hookSpecificOutput"]["permissionDecisionReason"], "no", "{denied}");
    app.client().post("/hooks/claude", &call("ls")).await.problem(503);
    database.execute_batch("ROLLBACK").unwrap();
    assert_eq!(app.client().post("/hooks/claude", &call("ls")).await.expect(200), json!({}));
}
