//! `shikiri status`: everything that goes on in a project, seen from outside.

mod elsewhere;
mod screen;
mod watch;
mod whole;

use serde_json::{Value, json};
use shikiri_testkit::{Cli, TestApp};

use crate::executions::kit::Talk;
use crate::hooks::call::told;
use crate::teams::world::{Player, Project};

/// The status as JSON, from another process than the server's.
fn status(cli: &Cli) -> Value {
    tokio::task::block_in_place(|| cli.run(&["status", "--json"]).done().json())
}

/// The status as people see it.
fn shown(cli: &Cli) -> String {
    tokio::task::block_in_place(|| cli.run(&["status"]).done().stdout)
}

/// An event of Claude Code, through the hook program itself.
fn hook(cli: &Cli, session: &str, event: &str, mut fields: Value) {
    fields["session_id"] = json!(session);
    fields["hook_event_name"] = json!(event);
    tokio::task::block_in_place(|| told(&mut cli.command(&["hook"]), &fields));
}

/// A session in which the main agent has a subagent that edits a file.
fn work_in_claude_code(cli: &Cli, session: &str) {
    hook(cli, session, "UserPromptSubmit", json!({}));
    let input = json!({ "subagent_type": "general-purpose", "prompt": "[ROLE:翻訳者] go" });
    let call = json!({ "tool_name": "Agent", "tool_use_id": "t1", "tool_input": input });
    hook(cli, session, "PreToolUse", call);
    let subagent = json!({ "agent_id": "a1", "agent_type": "general-purpose" });
    hook(cli, session, "SubagentStart", subagent.clone());
    let mut edits = subagent;
    edits["tool_name"] = json!("Edit");
    hook(cli, session, "PreToolUse", edits);
}

/// A run of the travel agent that waits for its person's answer; gives its id.
async fn waiting_run(app: &TestApp) -> String {
    let input = json!({ "destination": "京都", "step_ms": 1 });
    let run = app.start_run("travel_agent", input).await;
    let local = app.local();
    shikiri_testkit::until("the run asks", async || local.run(&run).await["status"] == "waiting")
        .await;
    run
}

/// A conversation's turn that goes on; gives the execution's id.
async fn running_execution(app: &TestApp) -> String {
    let local = app.local();
    let talk = Talk::start(&local).await;
    let execution = talk.begin("こんにちは\n#offline hang=1").await;
    shikiri_testkit::until("the execution runs", async || {
        local.run(&execution).await["status"] == "running"
    })
    .await;
    execution
}

/// A dialogue that its other side has not accepted yet; gives its first side, whose session it is.
async fn open_dialogue(app: &TestApp, project: &str) -> Player {
    let project = Project::start(&app.local(), project, &["ben"]).await;
    let mia = project.login("mia", "chat").await;
    let opening = json!({
        "target_agent_id": project.agent("ben"), "initial_message": "しりとり", "purpose": "言葉遊び",
    });
    mia.call("start_conversation", opening).await;
    mia
}

/// A lane with a chat.
fn lane(app: &TestApp, cli: &Cli) {
    let chat = json!({ "url": "https://chatgpt.com/c/abc123" });
    let file = json!({ "projects": { "my-project": { "chatgpt": chat, "gemini": null } } });
    let path = app.root().join("sessions.json");
    std::fs::write(&path, file.to_string()).unwrap();
    let import = ["lanes", "import", path.to_str().unwrap()];
    tokio::task::block_in_place(|| cli.run(&import).done());
}
