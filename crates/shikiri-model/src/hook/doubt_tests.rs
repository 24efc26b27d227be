//! Who is who where events come twice, late, out of order or not at all.

use serde_json::{Value, json};

use super::world::{HookTestWorld, main_tool, with, world};
use super::*;
use crate::time::Timestamp;

const KIND: &str = "general-purpose";

fn call(world: &mut HookTestWorld, id: &str, role: &str) {
    world.spawn(id, KIND, &format!("[ROLE:{role}] go"));
}

/// A call as it is read from the transcript.
fn read(id: &str, role: &str) -> SpawnCall {
    let call = json!({
        "session_id": "s", "hook_event_name": "PreToolUse", "tool_name": "Agent",
        "tool_input": { "subagent_type": KIND, "prompt": format!("[ROLE:{role}] go") },
    });
    let call = HookInput::parse(call.to_string().as_bytes()).unwrap();
    SpawnCall::from_call(&call, id, Timestamp::default())
}

fn failed(call: &str, by: Option<&str>) -> Value {
    json!({ "hook_event_name": "PostToolUseFailure", "tool_name": "Agent", "tool_use_id": call,
            "agent_id": by })
}

#[test]
fn a_start_that_is_told_again_takes_no_other_agents_call() {
    let mut world = world();
    call(&mut world, "t1", "tester");
    assert_eq!(world.start("a1", KIND).as_deref(), Some("tester text"));
    call(&mut world, "t2", "coder");
    assert_eq!(world.start("a1", KIND), None);
    assert_eq!(world.agent("a1").tool_use_id.as_deref(), Some("t1"));
    assert_eq!(world.start("a2", KIND).as_deref(), Some("coder text"));
    assert_eq!(world.agent("a1").role.as_deref(), Some("tester"));
}

#[test]
fn a_start_that_is_told_again_takes_no_call_that_no_hook_saw() {
    let mut world = world();
    call(&mut world, "t1", "tester");
    world.start("a1", KIND);
    let before = Timestamp::from_millis(1);
    world.disk.spawns = Some(vec![SpawnCall { created_at: before, ..read("t0", "coder") }]);
    assert_eq!(world.start("a1", KIND), None);
    assert_eq!(world.agent("a1").tool_use_id.as_deref(), Some("t1"));
}

#[test]
fn a_start_that_is_told_again_takes_no_call_that_was_made_after_the_first() {
    let mut world = world();
    // The hook of its own call was killed.
    assert_eq!(world.start("a1", KIND).as_deref(), Some("default text"));
    call(&mut world, "t2", "coder");
    assert_eq!(world.start("a1", KIND), None);
    assert_eq!(world.start("a2", KIND).as_deref(), Some("coder text"));
}

#[test]
fn an_agent_that_waits_for_its_call_gets_the_one_that_is_left_when_its_start_is_told_again() {
    let mut world = with(r#"{"roles":{"tester":{"text":"T"},"coder":{"text":"C"}}}"#);
    call(&mut world, "t1", "tester");
    call(&mut world, "t2", "coder");
    assert_eq!(world.start("a1", KIND), None);
    world.start("a2", KIND);
    world.hook(json!({
        "hook_event_name": "PostToolUse", "tool_name": "Agent", "tool_use_id": "t2",
        "tool_response": { "status": "async_launched", "agentId": "a2" },
    }));
    assert_eq!(world.start("a1", KIND).as_deref(), Some("T"));
}

#[test]
fn an_agent_that_another_call_resumes_keeps_its_role() {
    let mut world = world();
    call(&mut world, "t1", "tester");
    world.start("a1", KIND);
    let returned = |call: &str| {
        json!({
            "hook_event_name": "PostToolUse", "tool_name": "Agent", "tool_use_id": call,
            "tool_response": { "status": "async_launched", "agentId": "a1" },
        })
    };
    world.hook(returned("t1"));
    world.spawn("t2", KIND, "go on");
    assert_eq!(world.start("a1", KIND), None);
    world.hook(returned("t2"));
    let agent = world.agent("a1");
    assert_eq!((agent.role.as_deref(), agent.tool_use_id.as_deref()), (Some("tester"), Some("t1")));
    assert!(world.spawns.iter().all(|spawn| spawn.matched_agent_id.is_some()));
}

#[test]
fn a_call_that_was_answered_long_ago_belongs_to_no_agent() {
    let mut world = world();
    let done = |id: &str, role: &str, agent: Option<&str>| SpawnCall {
        matched_agent_id: agent.map(str::to_owned),
        ended_at: Some(Timestamp::default()),
        ..read(id, role)
    };
    world.disk.spawns = Some(vec![done("t1", "coder", Some("old")), done("t2", "tester", None)]);
    assert_eq!(world.start("a1", KIND).as_deref(), Some("default text"));
    assert_eq!(world.agent("a1").tool_use_id, None);
    let now = Timestamp::from_millis(world.now);
    assert!(world.spawns.iter().all(|spawn| spawn.ended_at == Some(now)), "{:?}", world.spawns);
    assert!(world.spawns.iter().all(|spawn| spawn.created_at == now));
    world.disk.spawns = None;
    call(&mut world, "t3", "coder");
    assert_eq!(world.start("a2", KIND).as_deref(), Some("coder text"), "no old one is in the way");
}

#[test]
fn an_answer_in_the_transcript_names_its_agent() {
    let mut world = world();
    let launched = SpawnCall { matched_agent_id: Some("a1".to_owned()), ..read("t1", "coder") };
    world.disk.spawns = Some(vec![read("t0", "tester"), launched]);
    assert_eq!(world.start("a1", KIND).as_deref(), Some("coder text"));
    assert_eq!(world.agent("a1").confidence, RoleConfidence::Exact);
}

#[test]
fn a_call_whose_answer_names_another_agent_is_not_taken() {
    let mut world = world();
    let launched = SpawnCall { matched_agent_id: Some("other".to_owned()), ..read("t1", "coder") };
    world.disk.spawns = Some(vec![launched]);
    assert_eq!(world.start("a1", KIND).as_deref(), Some("default text"));
}

/// What is read is read once: it must not be lost if another hook was quicker.
#[test]
fn calls_that_were_read_are_kept_whatever_the_event_leads_to() {
    let mut world = world();
    let payload = json!({ "session_id": "s", "hook_event_name": "Notification" });
    let payload = HookInput::parse(payload.to_string().as_bytes()).unwrap();
    let evidence =
        HookEvidence { spawns: Some(vec![read("t1", "coder")]), ..HookEvidence::default() };
    let known = world.load(&HookRowsNeeded::of(&payload, &evidence, &world.conventions));
    let now = Timestamp::from_millis(7);
    let HookOutcome::Done(decision) = decide(&payload, &known, &evidence, &world.conventions, now)
    else {
        panic!("nothing is wanted");
    };
    decision.changes.into_iter().for_each(|change| world.apply(change));
    assert_eq!(world.spawns[0].tool_use_id, "t1");
}

#[test]
fn a_refused_call_is_in_no_agents_way_when_its_caller_has_stopped() {
    let stop = json!({ "hook_event_name": "Stop", "background_tasks": [] });
    let old = json!({ "hook_event_name": "Stop" });
    let end = json!({ "hook_event_name": "SessionEnd" });
    let resume = json!({ "hook_event_name": "SessionStart", "source": "resume" });
    for event in [stop, old, end, resume] {
        let mut world = world();
        call(&mut world, "t1", "tester");
        world.hook(event.clone());
        call(&mut world, "t2", "coder");
        assert_eq!(world.start("a1", KIND).as_deref(), Some("coder text"), "{event}");
    }
    // An agent may still be about to start.
    for event in ["UserPromptSubmit", "PreCompact"] {
        let mut world = world();
        call(&mut world, "t1", "tester");
        world.hook(json!({ "hook_event_name": event }));
        world.hook(json!({ "hook_event_name": "SessionStart", "source": "compact" }));
        assert_eq!(world.start("a1", KIND).as_deref(), Some("tester text"), "{event}");
    }
}

#[test]
fn a_subagents_refused_calls_end_with_it_and_others_stay() {
    let mut world = world();
    call(&mut world, "t1", "tester");
    world.start("a1", KIND);
    let mut nested =
        main_tool("Agent", json!({ "subagent_type": "other", "prompt": "[ROLE:coder]" }));
    (nested["agent_id"], nested["tool_use_id"]) = (json!("a1"), json!("n1"));
    world.hook(nested);
    call(&mut world, "t2", "coder");
    world.hook(json!({ "hook_event_name": "SubagentStop", "agent_id": "a1" }));
    let ended: Vec<_> = world.spawns.iter().map(|spawn| spawn.ended_at.is_some()).collect();
    assert_eq!(ended, [false, true, false], "t1 is matched, n1 was refused, t2 is about to start");
}

#[test]
fn a_teammate_may_start_after_its_lead_has_stopped() {
    let mut world = world();
    let mut named = main_tool(
        "Agent",
        json!({ "subagent_type": KIND, "name": "alice", "prompt": "[ROLE:coder]" }),
    );
    named["tool_use_id"] = json!("t1");
    world.hook(named);
    let tasks = json!([{ "id": "alice@x", "type": "teammate" }]);
    world.hook(json!({ "hook_event_name": "Stop", "background_tasks": tasks }));
    assert_eq!(world.start("aalice-1", "alice").as_deref(), Some("coder text"));
}

/// An agent that never uses a tool has only its prompt and its start to hear anything.
#[test]
fn each_agent_of_a_mixed_crowd_hears_its_own_text_and_no_other_before_any_tool_call() {
    let mut world = world();
    call(&mut world, "t0", "tester");
    // The other calls wait until the first agent has started, or for a moment.
    assert_eq!(world.start("a0", KIND).as_deref(), Some("tester text"));
    let mut heard = Vec::new();
    world.now += 1;
    call_again_while_pending(&mut world, "p", "coder");
    for (id, prompt) in [("t1", "[ROLE:coder] go"), ("t2", "go"), ("t3", "[ROLE:tester] go")] {
        let input = world.spawn(id, KIND, prompt).input.unwrap();
        heard.push(input["prompt"].as_str().unwrap().to_owned());
    }
    let told = |text: &str, prompt: &str| format!("{text} text\n\n{prompt}");
    assert_eq!(
        heard,
        [
            told("coder", "[ROLE:coder] go"),
            told("default", "go"),
            told("tester", "[ROLE:tester] go")
        ]
    );
    for (agent, id) in [("a3", "t1"), ("a1", "t2"), ("a2", "t3")] {
        assert_eq!(world.start(agent, KIND), None);
        world.meta(id);
        assert_eq!(world.tool(agent, KIND), None, "it was in its prompt");
        assert_eq!(world.agent(agent).confidence, RoleConfidence::Exact);
    }
}

/// A call whose agent never starts, so that others of its type are in a crowd.
fn call_again_while_pending(world: &mut HookTestWorld, id: &str, role: &str) {
    world.spawn(id, KIND, &format!("[ROLE:{role}] never"));
    let only = world.spawn(&format!("{id}2"), KIND, "[ROLE:other] never");
    assert!(only.input.is_some());
}

#[test]
fn a_call_waits_until_the_agent_of_another_has_started() {
    let mut world = world();
    call(&mut world, "t0", "tester");
    let waits = |world: &HookTestWorld| {
        let is_wait = |want: &&EvidenceRequest| matches!(want, EvidenceRequest::Start { .. });
        world.asked.iter().filter(is_wait).count()
    };
    assert_eq!(waits(&world), 0, "there is no other");
    assert!(world.spawn("t1", KIND, "[ROLE:coder] go").input.is_some());
    let waited = waits(&world);
    assert!((1..100).contains(&waited), "{waited}: not for ever");
    // A call that was refused long ago starts nothing.
    world.now += 10_000;
    assert!(world.spawn("t2", KIND, "[ROLE:scribe] go").input.is_some());
    assert_eq!(waits(&world), waited);
    // In doubt the agent hears nothing before its file tells whose it is.
    assert_eq!(world.start("a0", KIND), None);
    world.meta("t0");
    assert_eq!(world.tool("a0", KIND).as_deref(), Some("tester text"));
}

/// A call that waits is in the transcript, and its agent cannot have started.
#[test]
fn a_call_that_waits_is_not_taken_for_one_that_no_hook_saw() {
    let mut world = world();
    call(&mut world, "t1", "tester");
    let waiting = SpawnCall { ended_at: Some(Timestamp::from_millis(2)), ..read("t2", "coder") };
    world.apply(HookRowChange::Spawn(waiting));
    world.disk.spawns = Some(vec![read("t1", "tester"), read("t2", "coder")]);
    assert_eq!(world.start("a1", KIND).as_deref(), Some("tester text"));
    let answer = world.spawn("t2", KIND, "[ROLE:coder] go");
    assert_eq!(answer.input, None, "no other is pending any more");
}

/// The event of its own call was lost, and another call is pending.
#[test]
fn an_agent_whose_call_no_hook_saw_never_hears_the_text_of_another_role() {
    let mut world = world();
    call(&mut world, "t2", "coder");
    world.disk.spawns = Some(vec![read("t1", "tester"), read("t2", "coder")]);
    assert_eq!(world.start("a1", KIND), None, "the transcript shows two calls");
    assert_eq!(world.agent("a1").confidence, RoleConfidence::None);
    world.meta("t1");
    assert_eq!(world.tool("a1", KIND).as_deref(), Some("tester text"));
    assert_eq!(world.start("a2", KIND).as_deref(), Some("coder text"), "the other is known");

    // The transcript is late, too: of three agents, two are in doubt, and what is left is no proof.
    let mut world = super::world::world();
    call(&mut world, "t2", "coder");
    call(&mut world, "t3", "tester");
    for agent in ["a1", "a2"] {
        assert_eq!(world.start(agent, KIND), None);
    }
    world.meta("t3");
    assert_eq!(world.tool("a2", KIND), None, "it was in its prompt");
    assert_eq!(world.start("a3", KIND), None, "t2 may be the call of the first");
    assert_eq!(world.agent("a3").confidence, RoleConfidence::None);
    world.meta("t2");
    assert_eq!(world.tool("a3", KIND).as_deref(), Some("coder text"));
}

#[test]
fn texts_of_one_crowd_are_written_into_prompts_only_where_they_differ() {
    let mut world = world();
    for id in ["t1", "t2"] {
        assert_eq!(world.spawn(id, KIND, "[ROLE:tester] go").input, None);
    }
    assert_eq!(world.spawn("t3", "tester", "go").input, None, "its type says it all");
    assert_eq!(world.spawn("t4", "other", "[ROLE:coder] go").input, None, "of another type");
    assert_eq!(world.start("a1", KIND).as_deref(), Some("tester text"));
}

#[test]
fn two_of_one_role_with_the_text_in_their_prompts_are_not_told_again() {
    let mut world = with(r#"{"roles":{"tester":{"text":"T","delivery":"prompt"}}}"#);
    for id in ["t1", "t2"] {
        assert!(world.spawn(id, KIND, "[ROLE:tester] go").input.is_some());
    }
    for (agent, id) in [("a1", "t2"), ("a2", "t1")] {
        assert_eq!(world.start(agent, KIND), None);
        world.meta(id);
        assert_eq!(world.tool(agent, KIND), None);
        assert!(world.agent(agent).startup_processed);
    }
}

/// Their types or names say who they are, and their prompts what they are to know.
#[test]
fn agents_known_by_type_or_name_do_not_hear_again_what_stands_in_their_prompts() {
    let mut world = with(r#"{"roles":{"tester":{"text":"T","delivery":"prompt"}}}"#);
    for id in ["t1", "t2"] {
        assert!(world.spawn(id, "tester", "go").input.is_some());
    }
    assert_eq!(world.start("a1", "tester"), None);
    assert_eq!(world.tool("a1", "tester"), None);
    assert_eq!(world.start("a2", "tester"), None);

    let mut world = with(r#"{"roles":{"alice":{"text":"A"},"bob":{"text":"B"}}}"#);
    let told = ["alice", "bob"].map(|name| {
        let input =
            json!({ "subagent_type": KIND, "name": name, "prompt": format!("[ROLE:{name}]") });
        let mut call = main_tool("Agent", input);
        call["tool_use_id"] = json!(name);
        world.hook(call).input.is_some()
    });
    assert_eq!(told, [false, true], "it may be started as one of several of a type");
    assert_eq!(world.start("b1", "bob"), None);
    assert_eq!(world.start("a1", "alice").as_deref(), Some("A"));
}

#[test]
fn a_prompt_that_is_not_written_yet_is_looked_for_again() {
    let mut world = world();
    assert_eq!(world.start("a1", KIND).as_deref(), Some("default text"));
    world.meta("unseen");
    assert_eq!(world.tool("a1", KIND), None);
    assert!(!world.agent("a1").checked);
    world.disk.prompt_role = Some(PromptRole::Named("tester".to_owned()));
    assert_eq!(world.tool("a1", KIND).as_deref(), Some("tester text"));
    let asked = world.asked.len();
    assert_eq!(world.tool("a1", KIND), None);
    assert_eq!(world.asked.len(), asked, "it is not looked for any more");

    let mut world = super::world::world();
    world.start("a2", KIND);
    world.meta("unseen");
    world.disk.prompt_role = Some(PromptRole::NoTag);
    world.tool("a2", KIND);
    assert!(world.agent("a2").checked, "there is no role to be found");
}

#[test]
fn a_call_that_no_hook_saw_is_found_in_the_transcript_by_its_id() {
    let mut world = world();
    world.start("a1", KIND);
    world.meta("t2");
    world.disk.spawns = Some(vec![read("t1", "coder"), read("t2", "tester")]);
    assert_eq!(world.tool("a1", KIND).as_deref(), Some("tester text"));
    assert_eq!(world.agent("a1").confidence, RoleConfidence::Exact);
    assert_eq!(world.spawns.len(), 2);
}

/// The guess is dropped with all that followed from it.
#[test]
fn an_agent_of_an_unseen_call_without_a_role_does_not_keep_the_role_it_was_guessed_to_have() {
    let mut world = world();
    call(&mut world, "t1", "tester");
    world.start("a1", KIND);
    world.meta("unseen");
    world.disk.prompt_role = Some(PromptRole::NoTag);
    assert_eq!(world.tool("a1", KIND).as_deref(), Some("default text"));
    assert_eq!(world.agent("a1").role, None);
    assert_eq!(world.start("a2", KIND).as_deref(), Some("tester text"), "t1 is free");
}

#[test]
fn a_nested_agent_ends_when_its_call_fails() {
    let mut world = world();
    call(&mut world, "t1", "tester");
    world.start("a1", KIND);
    let mut nested = main_tool("Agent", json!({ "subagent_type": KIND, "prompt": "[ROLE:coder]" }));
    (nested["agent_id"], nested["tool_use_id"]) = (json!("a1"), json!("n1"));
    world.hook(nested);
    world.start("a2", KIND);
    assert_eq!(world.agent("a2").parent_agent_id.as_deref(), Some("a1"));
    world.hook(failed("n1", Some("a1")));
    assert_eq!(world.agent("a2").end_reason.as_deref(), Some("failed"));
    assert!(world.agent("a1").is_active());
    world.hook(failed("t1", None));
    assert!(!world.agent("a1").is_active());
}

#[test]
fn without_time_left_agents_end_without_their_bills() {
    let payload = json!({ "session_id": "s", "hook_event_name": "SessionEnd" });
    let mut world = world();
    world.start("a1", "tester");
    world.start("a2", "coder");
    let payload = HookInput::parse(payload.to_string().as_bytes()).unwrap();
    let evidence = HookEvidence { is_late: true, ..HookEvidence::default() };
    let known = world.load(&HookRowsNeeded::of(&payload, &evidence, &world.conventions));
    let now = Timestamp::from_millis(9);
    let outcome = decide(&payload, &known, &evidence, &world.conventions, now);
    let HookOutcome::Done(decision) = outcome else { panic!("{outcome:?}") };
    decision.changes.into_iter().for_each(|change| world.apply(change));
    assert!(world.agents.iter().all(|agent| !agent.is_active() && agent.usage.is_none()));
}

#[test]
fn a_fork_begins_anew_and_knows_the_calls_of_the_old_session_as_answered() {
    let mut world = world();
    call(&mut world, "t1", "tester");
    world.start("a1", KIND);
    let fork = |event: &str, more: Value| {
        let mut payload = json!({ "hook_event_name": event, "session_id": "fork" });
        payload.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        payload
    };
    world.hook(fork("SessionStart", json!({ "source": "fork" })));
    assert!(world.agent("a1").is_active(), "the old session goes on");
    // Its transcript begins with what the old one said.
    let old = SpawnCall {
        session_id: "fork".to_owned(),
        ended_at: Some(Timestamp::default()),
        ..read("t1", "tester")
    };
    world.disk.spawns = Some(vec![old]);
    let start = fork("SubagentStart", json!({ "agent_id": "b1", "agent_type": KIND }));
    assert_eq!(world.hook(start).context.as_deref(), Some("default text"));
    let tool = fork("PreToolUse", json!({ "tool_name": "Read", "tool_input": {} }));
    assert_eq!(world.hook(tool).context, None, "an agent's, and not surely the main agent's");
    assert_eq!(world.agent("a1").role.as_deref(), Some("tester"));
}

const INFO: &str = r#"{"rules":[{"name":"i:a1","severity":"info","message":"INFO"},
                                {"name":"i","severity":"info","message":"MORE"}]}"#;

#[test]
fn a_compaction_of_the_main_agent_makes_no_subagent_forget_and_none_the_main_agent() {
    let mut world = with(INFO);
    world.disk.names_agents = Some(Some(true));
    let main = || main_tool("Bash", json!({}));
    assert!(world.tool("a1", KIND).is_some());
    assert!(world.hook(main()).context.is_some());
    world.hook(json!({ "hook_event_name": "SessionStart", "source": "compact" }));
    assert_eq!(world.tool("a1", KIND), None, "it has lost nothing");
    assert!(world.hook(main()).context.is_some());
    for event in ["SessionStart", "PostCompact"] {
        world.hook(json!({ "hook_event_name": event, "source": "compact", "agent_id": "a1" }));
    }
    assert_eq!(world.hook(main()).context, None, "a subagent was compacted");
}

#[test]
fn a_subagent_is_reminded_after_so_many_more_tokens() {
    let mut world = with(r#"{"roles":{"tester":{"text":"T","token_threshold":1000}}}"#);
    assert_eq!(world.start("a1", "tester").as_deref(), Some("T"));
    let mut at = |tokens: u64| {
        world.disk.tokens = Some(Some(tokens));
        world.tool("a1", "tester").is_some()
    };
    assert_eq!([500, 1_000, 1_999, 2_000, 2_001].map(&mut at), [false, true, false, true, false]);
}
