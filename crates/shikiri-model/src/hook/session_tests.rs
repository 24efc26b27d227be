//! What a session's own agent and the agents of its workflows are told and when, and what they spent.

use serde_json::{Value, json};

use super::world::{HookTestWorld, main_tool, tool, with, world};
use super::*;
use crate::time::Timestamp;

fn session_start(source: &str) -> Value {
    json!({ "hook_event_name": "SessionStart", "source": source })
}

fn prompt() -> Value {
    json!({ "hook_event_name": "UserPromptSubmit", "prompt": "go" })
}

fn of(session: &str, mut payload: Value) -> Value {
    payload["session_id"] = json!(session);
    payload
}

fn read() -> Value {
    main_tool("Read", json!({}))
}

/// What the events of one session tell, in their order.
fn told(world: &mut HookTestWorld, events: &[Value]) -> Vec<bool> {
    let mut told = Vec::new();
    for event in events {
        let answer = world.hook(event.clone());
        assert!(answer.context.as_deref().is_none_or(|text| text == "main text"), "{answer:?}");
        told.push(answer.context.is_some());
    }
    told
}

fn named() -> HookTestWorld {
    let mut world = world();
    world.disk.names_agents = Some(Some(true));
    world
}

#[test]
fn the_main_agent_has_its_text_before_any_tool_call_and_once() {
    let post_compact = || json!({ "hook_event_name": "PostCompact" });
    let cases: [(&str, Vec<Value>, Vec<bool>); 7] = [
        ("start", vec![session_start("startup"), prompt(), read()], vec![true, false, false]),
        ("posted, so without a start", vec![prompt(), prompt(), read()], vec![true, false, false]),
        ("hooks came later", vec![read(), prompt(), read()], vec![true, false, false]),
        (
            "resumed by a version that keeps what it was told",
            vec![session_start("startup"), prompt(), session_start("resume"), prompt(), read()],
            vec![true, false, false, false, false],
        ),
        (
            "resumed by a version that drops what came with a tool call",
            vec![read(), session_start("resume"), prompt(), session_start("resume"), read()],
            vec![true, true, false, false, false],
        ),
        (
            "cleared",
            vec![session_start("startup"), session_start("clear"), prompt(), read()],
            vec![true, true, false, false],
        ),
        (
            "compacted",
            vec![
                session_start("startup"),
                prompt(),
                session_start("compact"),
                post_compact(),
                prompt(),
                read(),
                post_compact(),
                prompt(),
            ],
            vec![true, false, true, false, false, false, false, true],
        ),
    ];
    for (name, events, expected) in cases {
        assert_eq!(told(&mut named(), &events), expected, "{name}");
    }
}

#[test]
fn a_hook_that_dies_at_the_start_does_not_lose_the_text() {
    let mut world = named();
    assert!(world.killed(session_start("startup")).context.is_some());
    assert_eq!(told(&mut world, &[prompt(), read()]), [true, false]);
}

#[test]
fn a_fork_is_told_once_whether_the_old_session_was_told_or_not() {
    let fork = |event: Value| of("fork", event);
    for was_told in [true, false] {
        let mut world = named();
        if was_told {
            world.transcript = "… main text …".to_owned();
        }
        let events = [fork(session_start("fork")), fork(prompt()), fork(read()), fork(read())];
        assert_eq!(told(&mut world, &events), [false, false, !was_told, false]);
    }
}

#[test]
fn a_compaction_is_logged_as_such_and_a_start_as_what_it_tells() {
    let mut world = named();
    world.hook(session_start("startup"));
    world.hook(session_start("compact"));
    let lines: Vec<_> = world.log.iter().map(|line| line.hook_name.as_str()).collect();
    assert_eq!(lines, ["session_startup", "compact_detected"]);
    assert_eq!(world.log[1].result, "injected");
}

#[test]
fn a_reminder_waits_for_the_tokens_that_came_after_the_first_text() {
    let mut world = with(r#"{"main":{"text":"main text","token_threshold":1000}}"#);
    assert!(world.hook(session_start("startup")).context.is_some());
    let mut at = |tokens: u64| {
        world.disk.tokens = Some(Some(tokens));
        world.hook(read()).context.is_some()
    };
    assert_eq!([999, 1_000, 1_999, 2_000].map(&mut at), [false, true, false, true]);
}

#[test]
fn a_text_that_is_told_by_a_denial_waits_for_a_tool_call() {
    let mut world = with(r#"{"main":{"text":"main text","delivery":"block"}}"#);
    assert_eq!(world.hook(session_start("startup")), HookOutput::default());
    assert_eq!(world.hook(prompt()), HookOutput::default());
    assert_eq!(world.hook(read()).deny.as_deref(), Some("main text"));
}

/// A teammate in its own pane, whose lead has written the text into its prompt.
#[test]
fn a_teammate_in_a_pane_is_told_once() {
    let of_pane = |event: Value| {
        let mut event = of("pane", event);
        event["agent_type"] = json!("general-purpose");
        event
    };
    let mut world = named();
    world.disk.prompt_role = Some(PromptRole::Named("tester".to_owned()));
    assert_eq!(world.hook(of_pane(session_start("startup"))).context, None, "no role is known yet");
    assert_eq!(world.hook(of_pane(read())).context.as_deref(), Some("tester text"));
    assert_eq!(world.hook(of_pane(read())).context, None);

    let mut world = named();
    world.disk.prompt_role = Some(PromptRole::Named("tester".to_owned()));
    world.transcript = "tester text\n\n[ROLE:tester] go".to_owned();
    world.hook(of_pane(session_start("startup")));
    assert_eq!(world.hook(of_pane(read())).context, None, "it is in its prompt");
    let session = &world.sessions[0];
    assert_eq!(session.agent_type.as_deref(), Some("general-purpose"));
    world.hook(of_pane(json!({ "hook_event_name": "Stop" })));
    assert_eq!(world.sessions[0].usage.as_deref(), Some("what the session spent"));

    let mut typed = of("pane", session_start("startup"));
    typed["agent_type"] = json!("coder");
    assert_eq!(named().hook(typed).context.as_deref(), Some("coder text"), "its type is its role");
}

fn partly(world: &mut HookTestWorld, usage: Option<&str>) {
    let usage = usage.map(str::to_owned);
    world.usage = Some(TranscriptUsage { usage, is_complete: false, path: Some("/t".to_owned()) });
}

fn stop(agent: &str) -> Value {
    json!({ "hook_event_name": "SubagentStop", "agent_id": agent, "agent_type": "tester" })
}

#[test]
fn usage_that_is_not_complete_at_the_end_is_read_again_until_it_is() {
    let later = [
        prompt(),
        json!({ "hook_event_name": "Stop", "background_tasks": [] }),
        json!({ "hook_event_name": "SessionEnd" }),
        stop("another"),
        json!({ "hook_event_name": "PostToolUse", "tool_name": "Agent", "tool_use_id": "t9",
                "tool_response": { "status": "async_launched", "agentId": "a9" } }),
    ];
    for event in later {
        let mut world = world();
        world.start("a1", "tester");
        world.start("another", "tester");
        partly(&mut world, None);
        world.hook(stop("a1"));
        assert_eq!(world.agent("a1").usage, None);
        partly(&mut world, Some("half"));
        world.hook(event.clone());
        let agent = world.agent("a1");
        assert_eq!(
            (agent.usage.as_deref(), agent.usage_complete),
            (Some("half"), false),
            "{event}"
        );
        world.usage = None;
        world.hook(event.clone());
        let agent = world.agent("a1");
        assert_eq!(agent.usage.as_deref(), Some("what a1 spent"), "{event}");
        assert!(agent.usage_complete);
        let asked = world.asked.len();
        world.hook(tool("another", "tester"));
        assert_eq!(world.asked.len(), asked, "nothing is left to read");
    }
}

#[test]
fn an_agent_that_left_no_last_answer_is_read_for_a_while_and_then_no_more() {
    let mut world = world();
    world.start("a1", "tester");
    partly(&mut world, Some("half"));
    world.hook(stop("a1"));
    world.now += 59_000;
    world.hook(prompt());
    assert!(!world.agent("a1").usage_complete);
    world.now += 1_000;
    world.hook(prompt());
    let agent = world.agent("a1");
    assert_eq!((agent.usage.as_deref(), agent.usage_complete), (Some("half"), true));
}

/// A woken teammate says the same words again, so only the time shows which answer is its last.
#[test]
fn an_agent_that_goes_on_is_read_again_from_its_new_start() {
    let mut world = world();
    world.start("a1", "tester");
    world.hook(stop("a1"));
    assert!(world.agent("a1").usage_complete);
    world.start("a1", "tester");
    let woken = Timestamp::from_millis(world.now);
    assert!(!world.agent("a1").usage_complete);
    world.asked.clear();
    world.hook(stop("a1"));
    let request = UsageRequest {
        agent_id: Some("a1".to_owned()),
        answered_after: Some(woken),
        ..UsageRequest::default()
    };
    assert_eq!(world.asked, [EvidenceRequest::Usage(vec![request])]);
    // Stopped again without a start: another hook had something to say at its end.
    let ended_at = world.agent("a1").ended_at;
    world.hook(stop("a1"));
    assert_eq!(world.agent("a1").resumed_at, ended_at);
}

#[test]
fn what_the_main_agent_spent_is_read_at_each_stop_and_at_the_end() {
    let mut world = world();
    world.hook(session_start("startup"));
    world.hook(prompt());
    let prompted = Timestamp::from_millis(world.now);
    partly(&mut world, Some("half"));
    world.hook(json!({ "hook_event_name": "Stop" }));
    let session = &world.sessions[0];
    assert_eq!((session.usage.as_deref(), session.usage_complete), (Some("half"), false));
    assert_eq!((session.prompted_at, session.counted_from), (Some(prompted), None));
    world.usage = None;
    world.hook(json!({ "hook_event_name": "SessionEnd" }));
    let session = &world.sessions[0];
    assert_eq!(session.usage.as_deref(), Some("what the session spent"));
    assert!(session.usage_complete && session.ended_at.is_some());
    world.hook(prompt());
    assert!(!world.sessions[0].usage_complete && world.sessions[0].ended_at.is_none());
}

#[test]
fn a_fork_pays_only_for_itself() {
    let mut world = world();
    world.hook(of("fork", session_start("fork")));
    assert_eq!(world.sessions[0].counted_from, Some(Timestamp::from_millis(1)));
    world.hook(of("resumed", session_start("resume")));
    assert_eq!(world.sessions[1].counted_from, None);
    // An older version names the old session at the start of the fork.
    world.hook(of("other fork", prompt()));
    assert_eq!(world.sessions[2].counted_from, Some(Timestamp::from_millis(3)));
}

#[test]
fn an_agent_of_a_workflow_has_its_role_from_its_prompt_and_hears_nothing_else() {
    let mut world = world();
    let flow = |script: &str| main_tool("Workflow", json!({ "script": script }));
    world.hook(flow("agent('count')"));
    let kind = "workflow-subagent";
    assert_eq!(world.start("a0", kind).as_deref(), Some("default text"), "no role is named");
    world.hook(flow("agent('[ROLE:tester] test')"));
    assert_eq!(world.start("a1", kind), None);
    world.disk.meta = Some(Some(SubagentMeta::default()));
    world.disk.prompt_role = Some(PromptRole::Named("tester".to_owned()));
    assert_eq!(world.tool("a1", kind).as_deref(), Some("tester text"));
    assert_eq!(world.tool("a1", kind), None);
    let agent = world.agent("a1");
    assert_eq!(agent.role_source, Some(RoleSource::TranscriptParse));
    assert_eq!(world.start("a2", kind), None);
    world.disk.prompt_role = Some(PromptRole::NoTag);
    assert_eq!(world.tool("a2", kind).as_deref(), Some("default text"));
}
