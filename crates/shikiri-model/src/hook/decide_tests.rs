use serde_json::{Value, json};

use super::world::{main_tool, tool, with, world};
use super::*;
use crate::time::Timestamp;

#[test]
fn an_agent_type_that_is_a_role_gets_its_text_at_the_start_and_once() {
    let mut world = world();
    assert_eq!(world.start("a1", "tester").as_deref(), Some("tester text"));
    assert_eq!(world.tool("a1", "tester"), None);
    assert_eq!(world.start("a1", "tester"), None, "woken again");
    let agent = world.agent("a1");
    assert_eq!(
        (agent.role_source, agent.confidence),
        (Some(RoleSource::AgentType), RoleConfidence::Exact)
    );
    assert!(agent.startup_processed);
    assert_eq!(world.start("a2", "myplugin:coder-2").as_deref(), Some("coder text"));
    assert!(world.asked.is_empty(), "nothing had to be read from the disk: {:?}", world.asked);
}

#[test]
fn the_only_call_of_its_type_names_the_role_at_the_start() {
    let mut world = world();
    assert_eq!(
        world.spawn("t1", "general-purpose", "[ROLE:tester] go"),
        HookOutput { context: Some("main text".to_owned()), ..HookOutput::default() }
    );
    assert_eq!(world.start("a1", "general-purpose").as_deref(), Some("tester text"));
    let agent = world.agent("a1");
    assert_eq!((agent.confidence, agent.task_match_index), (RoleConfidence::Unique, Some(1)));
    assert_eq!(world.spawns[0].matched_agent_id.as_deref(), Some("a1"));
    world.meta("t1");
    assert_eq!(world.tool("a1", "general-purpose"), None, "it has its text");
    assert_eq!(world.agent("a1").confidence, RoleConfidence::Exact, "and the file said so");
}

#[test]
fn several_of_one_type_wait_for_the_file_that_names_their_call() {
    let mut world = world();
    for (id, role, prompt) in [
        ("t1", "tester", None),
        ("t2", "coder", Some("coder text\n\n[ROLE:coder] go")),
        ("t3", "absent", Some("default text\n\n[ROLE:absent] go")),
    ] {
        let input = world.spawn(id, "general-purpose", &format!("[ROLE:{role}] go")).input;
        assert_eq!(input.as_ref().map(|input| input["prompt"].as_str().unwrap()), prompt);
    }
    for agent in ["a1", "a2", "a3"] {
        assert_eq!(world.start(agent, "general-purpose"), None, "it may be told in its prompt");
    }
    // Only the first call was answered before it was known that others follow.
    for (agent, call, text) in
        [("a2", "t1", Some("tester text")), ("a3", "t2", None), ("a1", "t3", None)]
    {
        world.meta(call);
        assert_eq!(world.tool(agent, "general-purpose").as_deref(), text);
        assert_eq!(world.tool(agent, "general-purpose"), None);
    }
    assert_eq!(world.agent("a2").role_source, Some(RoleSource::TaskMatch));
    assert_eq!(world.agent("a3").delivered.as_deref(), Some("roles.coder"));
}

#[test]
fn the_answer_of_a_call_in_the_background_names_its_agent_before_or_after_its_start() {
    let launched = |call: &str, agent: &str| {
        json!({
            "hook_event_name": "PostToolUse", "tool_name": "Agent", "tool_use_id": call,
            "tool_input": { "subagent_type": "general-purpose" },
            "tool_response": { "status": "async_launched", "agentId": agent },
        })
    };
    let mut world = world();
    world.spawn("t1", "general-purpose", "[ROLE:tester] go");
    assert!(world.spawn("t2", "general-purpose", "[ROLE:coder] go").input.is_some());
    world.hook(launched("t2", "a1"));
    assert_eq!(world.start("a1", "general-purpose"), None, "it is in its prompt");
    assert_eq!(world.agent("a1").role.as_deref(), Some("coder"));
    assert_eq!(world.start("a2", "general-purpose").as_deref(), Some("tester text"), "one is left");
    world.hook(launched("t1", "a2"));
    assert_eq!(world.agent("a2").confidence, RoleConfidence::Exact);
    assert!(world.agents.iter().all(SubagentRecord::is_active));
}

#[test]
fn a_wrong_guess_is_set_right_and_the_right_text_follows() {
    let mut world = world();
    // The hook of the call that really spawned it was killed, and another call never led to an agent.
    world.spawn("t1", "general-purpose", "[ROLE:tester] go");
    assert_eq!(world.start("a1", "general-purpose").as_deref(), Some("tester text"));
    world.spawn("t2", "general-purpose", "[ROLE:coder] go");
    world.meta("t2");
    assert_eq!(world.tool("a1", "general-purpose").as_deref(), Some("coder text"));
    assert_eq!(world.spawns[0].matched_agent_id, None, "t1 is free again");
    assert_eq!(world.start("a2", "general-purpose").as_deref(), Some("tester text"));
}

#[test]
fn a_call_that_no_hook_saw_is_known_by_the_prompt_in_the_transcript() {
    let mut world = world();
    assert_eq!(world.start("a1", "general-purpose").as_deref(), Some("default text"));
    world.meta("unseen");
    world.disk.prompt_role = Some(PromptRole::Named("tester".to_owned()));
    assert_eq!(world.tool("a1", "general-purpose").as_deref(), Some("tester text"));
    let agent = world.agent("a1");
    assert_eq!(agent.role_source, Some(RoleSource::TranscriptParse));
    assert_eq!(agent.tool_use_id.as_deref(), Some("unseen"));
}

#[test]
fn calls_that_no_hook_saw_are_read_from_the_transcript_once_and_never_come_back() {
    let mut world = world();
    let call = json!({
        "session_id": "s", "hook_event_name": "PreToolUse", "tool_name": "Task",
        "tool_input": { "subagent_type": "general-purpose", "prompt": "[ROLE:tester] go" },
    });
    let call = HookInput::parse(call.to_string().as_bytes()).unwrap();
    world.disk.spawns = Some(vec![SpawnCall::from_call(&call, "t1", Timestamp::default())]);
    assert_eq!(world.start("a1", "general-purpose").as_deref(), Some("tester text"));
    world.hook(json!({ "hook_event_name": "SubagentStop", "agent_id": "a1" }));
    assert_eq!(world.start("a2", "general-purpose").as_deref(), Some("default text"));
    assert_eq!(world.spawns.len(), 1);
}

#[test]
fn two_calls_in_one_line_are_two() {
    let mut world = world();
    world.spawn("t1", "x", "[ROLE:tester] go");
    world.spawn("t2", "y", "[ROLE:coder] go");
    assert_eq!(world.start("a2", "y").as_deref(), Some("coder text"));
    assert_eq!(world.start("a1", "x").as_deref(), Some("tester text"));
}

#[test]
fn a_hook_that_dies_before_it_confirms_delivers_again_and_two_at_once_do_not() {
    let mut world = world();
    world.disk.claimants = vec![("process 1".to_owned(), true)];
    let start =
        json!({ "hook_event_name": "SubagentStart", "agent_id": "a", "agent_type": "tester" });
    assert!(world.killed(start).context.is_some());
    assert_eq!(world.tool("a", "tester"), None, "the first one may still be at it");
    world.disk.claimants.clear();
    assert_eq!(world.tool("a", "tester").as_deref(), Some("tester text"), "it is dead");
    assert_eq!(world.tool("a", "tester"), None);
    let main = main_tool("Read", json!({}));
    assert!(world.killed(main.clone()).context.is_some());
    world.now += 3_000;
    assert_eq!(world.hook(main.clone()).context.as_deref(), Some("main text"));
    assert_eq!(world.hook(main).context, None);
}

#[test]
fn the_seeds_delivery_denies_the_first_call() {
    let mut world = with(r#"{"roles":{"tester":{"text":"規約","delivery":"block"}}}"#);
    assert_eq!(world.start("a1", "tester"), None);
    let answer = world.hook(tool("a1", "tester"));
    assert_eq!((answer.deny.as_deref(), answer.context), (Some("規約"), None));
    assert_eq!(world.hook(tool("a1", "tester")), HookOutput::default());
}

#[test]
fn a_text_can_be_written_into_the_prompt() {
    let mut world = with(r#"{"roles":{"tester":{"text":"規約","delivery":"prompt"}}}"#);
    let answer = world.spawn("t1", "general-purpose", "[ROLE:tester] go");
    let input = answer.input.unwrap();
    assert_eq!(input["prompt"], "規約\n\n[ROLE:tester] go");
    assert_eq!(input["subagent_type"], "general-purpose", "the input is whole");
    assert_eq!(world.start("a1", "general-purpose"), None, "it has been told");
    assert!(world.agent("a1").startup_processed);
}

#[test]
fn agents_end_in_every_way_that_they_can() {
    let end = |event: &str, more: Value| {
        let mut world = world();
        world.spawn("t1", "general-purpose", "go");
        world.start("a1", "general-purpose");
        let mut payload = json!({ "hook_event_name": event });
        payload.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        world.hook(payload);
        let agent = world.agent("a1");
        assert_eq!(agent.usage.is_some(), !agent.is_active(), "its bill comes with its end");
        agent.end_reason.clone().unwrap_or_else(|| "active".to_owned())
    };
    let agent = json!({ "agent_id": "a1", "agent_type": "general-purpose" });
    assert_eq!(end("SubagentStop", agent.clone()), "stopped");
    assert_eq!(end("StopFailure", agent), "failed");
    let call = |response: Value| json!({ "tool_name": "Agent", "tool_use_id": "t1", "tool_response": response });
    let completed = json!({ "status": "completed", "agentId": "a1" });
    assert_eq!(end("PostToolUse", call(completed)), "completed");
    assert_eq!(end("Stop", json!({ "background_tasks": [] })), "gone");
    let running = json!({ "background_tasks": [{ "id": "a1", "type": "subagent" }] });
    assert_eq!(end("Stop", running), "active");
    assert_eq!(end("Stop", json!({})), "active", "nothing is told");
    assert_eq!(end("SessionEnd", json!({})), "session_end");
}

#[test]
fn a_failed_call_ends_its_agent_and_leaves_no_call_behind() {
    let mut world = world();
    world.spawn("t1", "no-such-type", "[ROLE:tester] go");
    world.hook(json!({ "hook_event_name": "PostToolUseFailure", "tool_name": "Agent", "tool_use_id": "t1" }));
    assert!(world.spawns[0].ended_at.is_some());
    world.spawn("t2", "general-purpose", "[ROLE:coder] go");
    world.start("a2", "general-purpose");
    world.hook(json!({ "hook_event_name": "PostToolUseFailure", "tool_name": "Agent", "tool_use_id": "t2" }));
    assert_eq!(world.agent("a2").end_reason.as_deref(), Some("failed"), "interrupted");
    assert_eq!(world.start("a1", "no-such-type").as_deref(), Some("default text"));
}

#[test]
fn a_ghost_of_a_compaction_is_ignored_and_marks_run_out_but_agents_stay() {
    let mut world = world();
    world.disk.names_agents = Some(Some(true));
    let main = main_tool("Read", json!({}));
    assert!(world.hook(main.clone()).context.is_some());
    world.start("a1", "tester");
    world.hook(json!({ "hook_event_name": "SubagentStop", "agent_id": "ghost", "agent_type": "" }));
    assert_eq!(world.log.last().unwrap().result, "ignored");
    let before = world.agents.clone();
    let compact = json!({ "hook_event_name": "SessionStart", "source": "compact" });
    assert_eq!(world.hook(compact).context.as_deref(), Some("main text"));
    assert_eq!(world.log.last().unwrap().hook_name, "compact_detected");
    assert_eq!(world.agents, before);
    assert!(world.hook(main.clone()).context.is_none(), "told with the event");
    world.hook(json!({ "hook_event_name": "PostCompact", "trigger": "auto" }));
    assert!(world.hook(main.clone()).context.is_none(), "of the same compaction");
    world.hook(json!({ "hook_event_name": "PostCompact", "trigger": "auto" }));
    assert!(world.hook(main).context.is_some(), "told again, where only this is posted");
}

#[test]
fn a_stopped_agents_call_does_not_come_back() {
    let mut world = world();
    world.spawn("t1", "general-purpose", "[ROLE:coder] go");
    world.start("a1", "general-purpose");
    world.hook(json!({ "hook_event_name": "SubagentStop", "agent_id": "a1" }));
    world.spawn("t1", "general-purpose", "[ROLE:coder] go"); // told again
    world.spawn("t2", "general-purpose", "[ROLE:tester] go");
    assert_eq!(world.start("a2", "general-purpose").as_deref(), Some("tester text"));
}

#[test]
fn without_ids_one_waiting_agent_is_certain_and_several_roles_get_the_default() {
    let mut world = with(
        r#"{"default":{"text":"default text"},"roles":{
            "tester":{"text":"tester text","delivery":"block"},
            "coder":{"text":"coder text","delivery":"block"}}}"#,
    );
    let start = || json!({ "hook_event_name": "SubagentStart", "agent_type": "general-purpose" });
    let call = || main_tool("Bash", json!({}));
    world.spawn("t1", "general-purpose", "[ROLE:tester] go");
    world.hook(start());
    assert_eq!(world.hook(call()).deny.as_deref(), Some("tester text"));
    assert_eq!(world.hook(call()), HookOutput::default(), "no agent waits");
    world.spawn("t2", "general-purpose", "[ROLE:coder] go");
    world.spawn("t3", "general-purpose", "[ROLE:tester] go");
    assert_eq!(world.hook(start()).context.as_deref(), Some("default text"));
    assert_eq!(world.hook(start()).context.as_deref(), Some("default text"));
    assert_eq!(world.hook(call()), HookOutput::default());
    assert_eq!(world.agents[1].confidence, RoleConfidence::None);
}

/// Any active agent may be calling, and so may the main agent while others work in the background.
#[test]
fn without_ids_a_role_is_given_only_where_no_other_agent_can_be_calling() {
    let roles = r#"{"main":{"text":"main text"},"default":{"text":"default text"},"roles":{
        "tester":{"text":"tester text","delivery":"block"},
        "coder":{"text":"coder text","delivery":"block"}}}"#;
    let call = || main_tool("Bash", json!({}));
    let start = |id| json!({ "hook_event_name": "SubagentStart", "agent_id": id, "agent_type": "general-purpose" });
    let mut world = with(roles);
    world.spawn("t1", "general-purpose", "[ROLE:tester] go");
    world.hook(start("a1"));
    let spawn = world.spawn("t2", "general-purpose", "[ROLE:coder] go");
    assert_eq!(spawn, HookOutput::default(), "the main agent spawns, and has its text");
    world.hook(start("a2"));
    assert_eq!(world.hook(call()).context.as_deref(), Some("default text"));
    assert_eq!(world.hook(call()).context.as_deref(), Some("default text"), "it may be a1 again");
    world.hook(json!({ "hook_event_name": "SessionStart", "source": "compact" }));
    assert_eq!(
        world.hook(call()),
        HookOutput::default(),
        "an agent's, and perhaps not the main agent's"
    );

    let mut world = with(roles);
    world.spawn("t1", "general-purpose", "[ROLE:tester] go");
    world.hook(start("a1"));
    world.hook(json!({
        "hook_event_name": "PostToolUse", "tool_name": "Agent", "tool_use_id": "t1",
        "tool_response": { "agentId": "a1", "status": "async_launched" },
    }));
    assert_eq!(world.hook(call()).context.as_deref(), Some("default text"));
    world.spawn("t2", "general-purpose", "[ROLE:coder] go");
    world.hook(json!({ "hook_event_name": "SubagentStart", "agent_type": "general-purpose" }));
    assert_eq!(world.agents.last().unwrap().role, None, "a1 may have started only now");
}

#[test]
fn a_claude_code_that_names_agents_means_the_main_agent_when_it_names_none() {
    let mut world = world();
    world.disk.names_agents = Some(Some(true));
    world.spawn("t1", "general-purpose", "[ROLE:tester] go");
    world.spawn("t2", "general-purpose", "[ROLE:coder] go");
    world.start("a1", "general-purpose");
    assert_eq!(
        world.hook(main_tool("Bash", json!({}))),
        HookOutput::default(),
        "main has its text"
    );
    assert_eq!(world.agent("a1").delivered, None, "it is none of the agents");
    world.hook(main_tool("Bash", json!({})));
    let asked = world.asked.iter().filter(|want| **want == EvidenceRequest::NamesAgents).count();
    assert_eq!(asked, 1, "it is remembered");
}

#[test]
fn a_teammate_is_known_by_its_name_or_by_its_own_session() {
    let mut world = world();
    world.hook(json!({
        "hook_event_name": "PreToolUse", "tool_name": "Agent", "tool_use_id": "t1",
        "tool_input": { "subagent_type": "general-purpose", "name": "alice", "prompt": "[ROLE:coder] go" },
    }));
    assert_eq!(world.start("aalice-1", "alice").as_deref(), Some("coder text"));
    // In a pane of its own: its session is its own, and says only the type.
    let pane = json!({
        "hook_event_name": "PreToolUse", "session_id": "pane", "agent_type": "general-purpose",
        "tool_name": "Bash", "tool_input": {},
    });
    world.disk.prompt_role = Some(PromptRole::Named("tester".to_owned()));
    assert_eq!(world.hook(pane.clone()).context.as_deref(), Some("tester text"));
    assert_eq!(world.hook(pane).context, None);
}

#[test]
fn a_type_that_is_turned_off_is_recorded_and_told_nothing() {
    let mut world = world();
    assert_eq!(world.start("a1", "Explore"), None);
    assert_eq!(world.tool("a1", "Explore"), None);
    assert_eq!(world.agent("a1").agent_type, "Explore");
}

#[test]
fn the_main_agent_is_reminded_after_so_many_more_tokens() {
    let mut world = with(r#"{"main":{"text":"main text","token_threshold":1000}}"#);
    let mut at = |tokens: u64| {
        world.disk.tokens = Some(Some(tokens));
        world.hook(main_tool("Bash", json!({}))).context.is_some()
    };
    assert_eq!([500, 1_499, 1_500, 1_600, 2_500].map(&mut at), [true, false, true, false, true]);
}

const RULES: &str = r#"{"rules":[
    {"name":"tests only","tools":["Write","Edit"],"paths":["src/**"],"exclude_paths":["src/gen/**"],
     "roles":["tester"],"severity":"block","message":"testers do not touch src"},
    {"name":"push","commands":["git push*"],"severity":"warn","message":"ask first"},
    {"name":"mcp","tools":["mcp__github__*"],"severity":"info","message":"github is slow"},
    {"name":"main","tools":["Read"],"roles":["main"],"severity":"warn","message":"for main"}
]}"#;

#[test]
fn rules_are_for_tools_files_commands_and_roles() {
    let mut world = with(RULES);
    let mut call = |kind: Option<&str>, name: &str, input: Value| {
        let mut payload = main_tool(name, input);
        payload["cwd"] = json!("/p");
        if let Some(kind) = kind {
            (payload["agent_id"], payload["agent_type"]) = (json!(kind), json!(kind));
        }
        let answer = world.hook(payload);
        answer.deny.or(answer.context).unwrap_or_default()
    };
    let file = |path: &str| json!({ "file_path": path });
    let tester = Some("tester");
    assert_eq!(call(tester, "Write", file("/p/src/a.rs")), "testers do not touch src");
    assert_eq!(call(tester, "Edit", file("docs/../src/a.rs")), "testers do not touch src");
    assert_eq!(call(tester, "Write", file("/p/src/gen/a.rs")), "");
    assert_eq!(call(tester, "Write", file("/p/tests/a.rs")), "");
    assert_eq!(call(tester, "Read", file("/p/src/a.rs")), "");
    assert_eq!(call(Some("coder"), "Write", file("/p/src/a.rs")), "");
    assert_eq!(call(None, "Write", file("/p/src/a.rs")), "");
    let push = || json!({ "command": "cd x && git push" });
    assert_eq!(call(None, "Bash", push()), "ask first");
    assert_eq!(call(None, "Bash", push()), "ask first", "a warning is given every time");
    assert_eq!(call(None, "mcp__github__list", json!({})), "github is slow");
    assert_eq!(call(None, "mcp__github__get", json!({})), "", "information once");
    assert_eq!(call(tester, "mcp__github__get", json!({})), "github is slow", "to each");
    assert_eq!(call(None, "Read", json!({})), "for main");
}

#[test]
fn calls_of_mcp_tools_are_logged_with_their_id_and_others_without() {
    let mut world = world();
    for name in ["mcp__shikiri__echo", "Bash"] {
        let mut payload = tool("a1", "tester");
        payload["tool_name"] = json!(name);
        world.hook(payload);
    }
    let ids: Vec<_> = world.log.iter().map(|line| line.tool_use_id.as_deref()).collect();
    assert_eq!(ids, [Some("toolu_x"), None]);
}

#[test]
fn an_event_of_a_later_claude_code_is_logged_and_ignored() {
    let mut world = world();
    assert_eq!(world.hook(json!({ "hook_event_name": "Dreaming" })), HookOutput::default());
    assert_eq!((world.log[0].hook_name.as_str(), world.log[0].result), ("Dreaming", "ignored"));
    world.hook(json!({ "hook_event_name": "PreCompact" }));
    assert_eq!(world.log[1].result, "ok");
}

#[test]
fn answers_are_written_as_claude_code_reads_them() {
    let answer = HookOutput {
        context: Some("規約".to_owned()),
        deny: Some("no".to_owned()),
        ..HookOutput::default()
    };
    assert_eq!(
        answer.to_json("PreToolUse").unwrap(),
        json!({ "hookSpecificOutput": {
            "hookEventName": "PreToolUse", "additionalContext": "規約",
            "permissionDecision": "deny", "permissionDecisionReason": "no",
        }})
    );
    assert_eq!(HookOutput::default().to_json("Stop"), None);
}
