//! `shikiri who`: which agents used a file, from the events of hooks.

use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};
use shikiri_testkit::{Builder, Cli, TestApp, have_postgres};

use super::call::told;
use crate::PROGRAM;

const CONVENTIONS: &str = "[roles.tester]\ntext = \"tester text\"\n";

/// The events of a session in this folder: the main agent starts a tester, and both use files.
fn events(root: &Path) -> Vec<Value> {
    let event = |name: &str, more: Value| {
        let mut event = json!({ "session_id": "s1", "hook_event_name": name, "cwd": root });
        event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        event
    };
    let call = |tool: &str, input: Value| json!({ "tool_name": tool, "tool_input": input });
    let by_tester = |mut more: Value| {
        (more["agent_id"], more["agent_type"]) = (json!("a1"), json!("general-purpose"));
        more
    };
    let prompt = json!({ "subagent_type": "general-purpose", "prompt": "[ROLE:tester] go" });
    let mut spawn = call("Agent", prompt);
    spawn["tool_use_id"] = json!("t1");
    let file = |path: &str| json!({ "file_path": path });
    vec![
        event("PreToolUse", spawn),
        event("SubagentStart", by_tester(json!({}))),
        event("PostToolUse", call("Write", file("src/a.rs"))),
        event("PostToolUse", by_tester(call("Edit", file("link/a.rs")))),
        event("PostToolUseFailure", by_tester(call("Edit", file("src/a.rs")))),
        event("PostToolUse", by_tester(call("Bash", json!({ "command": "rm src/gone" })))),
    ]
}

fn prepare(root: &Path) {
    std::fs::create_dir_all(root.join(".shikiri")).unwrap();
    std::fs::write(root.join(".shikiri/conventions.toml"), CONVENTIONS).unwrap();
    std::fs::create_dir_all(root.join("src")).unwrap();
    std::fs::write(root.join("src/a.rs"), "a").unwrap();
    symlink("src", root.join("link")).unwrap();
}

/// What `who` says of a file, without the times.
fn who(cli: &Cli, file: &str) -> Vec<String> {
    let listed = cli.run(&["who", file, "--json"]).done().json();
    let text = |item: &Value, field: &str| item[field].as_str().unwrap_or("-").to_owned();
    let line = |item: &Value| {
        assert!(item["timestamp"].as_str().unwrap().ends_with('Z'), "{item}");
        let fields = ["agent_id", "role", "session_id", "tool", "outcome", "name"];
        fields.map(|field| text(item, field)).join(" ")
    };
    listed["items"].as_array().unwrap().iter().map(line).collect()
}

fn check(cli: &Cli) {
    let used = [
        "a1 tester s1 Edit failed src/a.rs",
        "a1 tester s1 Edit done src/a.rs",
        "- - s1 Write done src/a.rs",
    ];
    for file in ["src/a.rs", "link/a.rs", "./src/../src/a.rs"] {
        assert_eq!(who(cli, file), used, "{file}");
    }
    assert_eq!(who(cli, "src/gone"), ["a1 tester s1 Bash done src/gone"]);
    assert!(who(cli, "src/b.rs").is_empty());
}

#[test]
fn who_names_the_agents_that_used_a_file() {
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path());
    let cli = Cli::new(PROGRAM, folder.path());
    cli.run(&["who", "src/a.rs"]).refused(4, &["no data"]);
    for event in events(folder.path()) {
        told(&mut cli.command(&["hook"]), &event);
    }
    check(&cli);
    let shown = cli.run(&["who", "src/a.rs"]).done().stdout;
    let lines: Vec<_> = shown.lines().collect();
    assert_eq!(lines.len(), 4, "{shown}");
    assert!(lines[0].starts_with("AT") && lines[0].contains("ROLE"), "{shown}");
    assert!(lines[1].contains("tester") && lines[3].contains("main"), "{shown}");
    let gone = cli.run(&["who", "src/gone"]).done().stdout;
    assert!(gone.contains("removed") && gone.contains("rm src/gone"), "{gone}");
    let nobody = cli.run(&["who", "src/b.rs"]).done().stdout;
    assert!(nobody.starts_with("No agent is known to have used src/b.rs"), "{nobody}");
    let newest = cli.run(&["who", "src/a.rs", "--limit", "1"]).done();
    assert_eq!(newest.stdout.lines().count(), 2, "{newest:?}");
    assert!(newest.stderr.contains("there are more"), "{newest:?}");
    // As a path from the current folder.
    let mut inside = cli.command(&["who", "a.rs", "--json"]);
    let done =
        inside.current_dir(folder.path().join("src")).env("CLAUDE_PROJECT_DIR", folder.path());
    let done = done.output().unwrap();
    let listed: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(listed["items"].as_array().unwrap().len(), 3, "{listed}");
}

/// A server decides and records as the process does.
async fn a_server_records(server: fn() -> Builder) {
    let app = server().start().await;
    prepare(app.root());
    for event in events(app.root()) {
        app.client().post("/hooks/claude", &event).await.expect(200);
    }
    check(&app.cli());
    let rules = format!(
        "{CONVENTIONS}[[rules]]\nname = \"r\"\ntools = [\"Edit\"]\npaths = [\"src/**\"]\n\
         severity = \"ask\"\nmessage = \"sure?\"\n"
    );
    std::fs::write(app.root().join(".shikiri/conventions.toml"), &rules).unwrap();
    let call = json!({ "session_id": "s2", "hook_event_name": "PreToolUse", "cwd": app.root(),
                       "tool_name": "Edit", "tool_input": { "file_path": "link/a.rs" } });
    let answer = app.client().post("/hooks/claude", &call).await.expect(200);
    assert_eq!(answer["hookSpecificOutput"]["permissionDecision"], "ask", "{answer}");
    let broken = format!("on_error = \"deny\"\n{}", rules.replace("message", "mesage"));
    std::fs::write(app.root().join(".shikiri/conventions.toml"), broken).unwrap();
    let answer = app.client().post("/hooks/claude", &call).await.expect(200);
    assert_eq!(answer["hookSpecificOutput"]["permissionDecision"], "deny", "{answer}");
    assert!(answer["systemMessage"].as_str().unwrap().contains("mesage"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_records_the_files_of_posted_events() {
    a_server_records(|| TestApp::new(PROGRAM)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_on_postgresql_records_the_files_of_posted_events() {
    if have_postgres("a_server_on_postgresql_records_the_files_of_posted_events") {
        a_server_records(|| TestApp::new(PROGRAM).postgres()).await;
    }
}
