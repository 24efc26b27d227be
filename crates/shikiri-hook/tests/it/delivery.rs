//! A text is given once: claimed, printed, confirmed, and by another if the first one dies.

use std::io::{Read as _, Write as _};
use std::process::Stdio;

use serde_json::json;

use crate::process;
use crate::world::{self, text_of};

#[test]
fn a_hook_that_dies_before_it_confirms_leaves_the_text_to_the_next() {
    let mut world = world::world();
    let event = world.tool_event("a1", "tester");
    assert_eq!(world.killed(&event).context(), Some(text_of("tester").as_str()));
    assert_eq!(world.hook(&event).context(), Some(text_of("tester").as_str()), "again");
    assert_eq!(world.hook(&event).context(), None, "once is enough");
}

#[test]
fn while_a_hook_lives_no_other_gives_its_text_but_not_for_ever() {
    let mut world = world::world();
    let event = world.tool_event("a1", "tester");
    world.living.push("hook-1".to_owned());
    assert!(world.killed(&event).context().is_some(), "it is slow");
    assert_eq!(world.hook(&event).context(), None, "it lives");
    world.now_ms.set(world.now_ms.get() + 2_000);
    assert!(world.hook(&event).context().is_some(), "it was too slow");
}

/// Its parent may be slow to notice that it has died: until then it has an entry in `/proc`.
#[test]
fn a_killed_hook_that_is_not_reaped_yet_holds_no_lock() {
    // More than a pipe holds, so that it is killed while it prints.
    let long = "x".repeat(300_000);
    let project = process::project(&format!("[roles.tester]\ntext = \"{long}\"\n"));
    let call = json!({
        "session_id": "s", "hook_event_name": "PreToolUse", "agent_id": "a1",
        "agent_type": "tester",
    });
    let mut child = process::spawn(project.command().stdin(Stdio::piped()));
    child.stdin.take().unwrap().write_all(call.to_string().as_bytes()).unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 100]).unwrap();
    child.kill().unwrap();
    assert_eq!(project.hook(&call).goes_on().context(), Some(long));
    assert!(!child.wait().unwrap().success());
}

/// A hook that was stopped for longer than its claim holds must not count as well as the one that
/// took over.
#[test]
fn a_hook_that_wakes_after_another_took_over_does_not_confirm() {
    let mut world = world::world();
    let (event, main) = (world.tool_event("a1", "tester"), world.event("PreToolUse", json!({})));
    for event in [event, main] {
        let late = world.paused(&event);
        assert!(late.answer.is_some());
        assert!(world.hook(&event).confirmed);
        assert!(!world.confirms(&late), "its exit code tells Claude Code not to read its answer");
        assert_eq!(world.hook(&event).context(), None);
    }
}

/// Row 3.21: the seed's own way, the first call denied with the text.
#[test]
fn with_delivery_by_block_the_first_call_is_denied_with_the_text_and_the_next_goes_on() {
    let project = process::project("[roles.tester]\ntext = \"test\"\ndelivery = \"block\"\n");
    let call = json!({
        "session_id": "s", "hook_event_name": "PreToolUse", "agent_id": "a1",
        "agent_type": "tester", "tool_name": "Bash", "tool_input": { "command": "ls" },
    });
    let denied = project.hook(&call);
    assert_eq!(denied.code, Some(0));
    assert_eq!(denied.specific("permissionDecision").as_deref(), Some("deny"));
    assert_eq!(denied.specific("permissionDecisionReason").as_deref(), Some("test"));
    project.hook(&call).goes_on().is_silent();
    assert_eq!(project.count("SELECT count(*) FROM hook_log WHERE result = 'blocked'"), 1);
}

/// Row 3.28: a role that has no text gets the default's.
#[test]
fn a_role_without_configuration_gets_the_default() {
    let mut world = world::world();
    world.spawn("t1", "general-purpose", "[ROLE:gardener] dig");
    assert_eq!(world.start("a1", "general-purpose").context(), Some(text_of("default").as_str()));
    let row = world.row("SELECT role, delivered FROM subagents");
    assert_eq!(row, [Some("gardener".to_owned()), Some("default".to_owned())]);
}

/// Row 3.23: after a compaction the session is told again, and its subagents are not touched.
#[test]
fn a_compaction_expires_all_marks_of_its_session_and_no_subagent() {
    let mut world = world::world();
    let main = world.event("PreToolUse", json!({ "tool_name": "Read" }));
    let mut other = main.clone();
    other["session_id"] = json!("other");
    assert!(world.hook(&main).context().is_some() && world.hook(&other).context().is_some());
    world.tool("a1", "tester");
    let agents = world.rows("SELECT * FROM subagents");
    // The hook of the session's start is killed, so that what it expires is seen.
    let told = world.killed(&world.event("SessionStart", json!({ "source": "compact" })));
    assert_eq!(told.context(), Some(text_of("main").as_str()), "told again");
    assert_eq!(world.rows("SELECT * FROM subagents"), agents);
    let sql = "SELECT session_id, status FROM sessions WHERE hook_name = 'told_at_tool' ORDER BY 1";
    let expected = [("other", "active"), ("s", "expired")];
    let expected = expected.map(|(a, b)| vec![Some(a.to_owned()), Some(b.to_owned())]);
    assert_eq!(world.rows(sql), expected);
    assert_eq!(world.hook(&main).context(), Some(text_of("main").as_str()), "and by the next");
    assert_eq!(world.hook(&other).context(), None);
    assert_eq!(world.tool("a1", "tester").context(), None);
}

/// Row 3.21: no other agent is there, so it is the main agent.
#[test]
fn without_subagents_a_call_is_the_main_agents() {
    let mut world = world::world();
    let main = world.event("PreToolUse", json!({ "tool_name": "Read" }));
    assert_eq!(world.hook(&main).context(), Some(text_of("main").as_str()));
    assert_eq!(world.hook(&main).context(), None);
    assert_eq!(world.row("SELECT count(*) FROM subagents"), [Some("0".to_owned())]);
}
