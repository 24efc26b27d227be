//! Subagents of one Claude Code: a lane each where hooks tell who calls, one for all otherwise.

use std::io::Write as _;
use std::process::Stdio;

use serde_json::{Value, json};
use shikiri_testkit::{Cli, StdioClient};

use super::{answer, call, cli, history, process};

/// Hands an event to `shikiri hook`, as Claude Code does.
fn hook(cli: &Cli, event: &Value) {
    let mut command = cli.command(&["hook"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(event.to_string().as_bytes()).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
}

fn before(cli: &Cli, agent: Option<&str>, tool_use_id: &str) {
    let mut event = json!({
        "session_id": "hook-session", "hook_event_name": "PreToolUse",
        "cwd": "/", "tool_name": "mcp__shikiri__ask_chatgpt_web", "tool_use_id": tool_use_id,
        "tool_input": { "question": "?" },
    });
    if let Some(agent) = agent {
        event["agent_id"] = json!(agent);
        event["agent_type"] = json!("worker");
    }
    hook(cli, &event);
}

fn ask_marked(client: &mut StdioClient, tool_use_id: &str) -> Value {
    let mut params = call("ask_chatgpt_web", "?");
    params["_meta"]["claudecode/toolUseId"] = json!(tool_use_id);
    answer(&client.result("tools/call", params))
}

#[test]
fn subagents_have_lanes_of_their_own_where_hooks_tell() {
    let folder = tempfile::tempdir().unwrap();
    let cli = cli(folder.path());
    let mut client = process(&cli, "claude-code");
    for agent in ["a1", "a2"] {
        let start = json!({ "session_id": "hook-session", "hook_event_name": "SubagentStart",
                            "cwd": "/", "agent_id": agent, "agent_type": "worker" });
        hook(&cli, &start);
    }
    for (agent, mark) in
        [(None, "m0"), (Some("a1"), "m1"), (Some("a2"), "m2"), (Some("a1"), "m3"), (None, "m4")]
    {
        before(&cli, agent, mark);
    }
    // Not in the order of their hooks.
    let [m2, m1, m0, m3, m4, unknown] =
        ["m2", "m1", "m0", "m3", "m4", "none"].map(|mark| ask_marked(&mut client, mark));
    let main = format!("claude-code-{}", client.pid());
    assert_eq!(m0["lane"], main);
    assert_eq!(m1["lane"], format!("{main}.a1"));
    assert_eq!(m2["lane"], format!("{main}.a2"));
    assert_eq!((&m3["url"], &m4["url"]), (&m1["url"], &m0["url"]));
    // Without a hook's word it is the process's.
    assert_eq!(unknown["url"], m0["url"]);
    assert!(m0["url"] != m1["url"] && m1["url"] != m2["url"]);
    let lines = history(&cli, &["--agent", "claude-code"]);
    let of_a1: Vec<_> = lines.iter().filter(|line| line["subagent"] == "a1").collect();
    assert_eq!(of_a1.len(), 2);
    assert!(of_a1.iter().all(|line| line["session"] == "hook-session"), "{of_a1:?}");
    assert_eq!(lines.len(), 6);
}
