//! The two faults of the original, and the flow that they were in.

use std::path::Path;

use serde_json::{Value, json};

use crate::process;
use crate::world::{self, conventions, text_of, write};

fn block(call: &str, role: &str) -> Value {
    let input =
        json!({ "subagent_type": "general-purpose", "prompt": format!("[ROLE:{role}] go") });
    json!({ "type": "tool_use", "id": call, "name": "Task", "input": input })
}

/// One line of a transcript, with all its blocks.
fn line(blocks: &[Value]) -> String {
    format!("{}\n", json!({ "type": "assistant", "message": { "content": blocks } }))
}

fn append(path: &Path, text: &str) {
    let before = std::fs::read_to_string(path).unwrap_or_default();
    write(path, &format!("{before}{text}"));
}

/// The first fault: the second of two calls in one line was lost, and its agent had no role. Here
/// only the transcript has seen the calls. Row 3.13.
#[test]
fn two_spawns_in_one_line_of_the_transcript_are_two() {
    let mut world = world::world();
    let (first, second) = (block("t1", "coder"), block("t2", "tester"));
    write(&world.transcript("s"), &line(&[first, second]));
    assert_eq!(world.start("a1", "general-purpose").context(), None, "it may be either");
    assert_eq!(world.start("a2", "general-purpose").context(), None);
    let spawns =
        world.rows("SELECT tool_use_id, role, transcript_index FROM task_spawns ORDER BY 1");
    let row = |values: [&str; 3]| values.map(|value| Some(value.to_owned())).to_vec();
    assert_eq!(spawns, [row(["t1", "coder", "1"]), row(["t2", "tester", "1"])]);
    world.meta("s", "a1", &json!({ "toolUseId": "t2" }));
    world.meta("s", "a2", &json!({ "toolUseId": "t1" }));
    let told = |told: Option<&str>| told.map(str::to_owned);
    assert_eq!(told(world.tool("a1", "general-purpose").context()), Some(text_of("tester")));
    assert_eq!(told(world.tool("a2", "general-purpose").context()), Some(text_of("coder")));
    assert_eq!(world.row("SELECT count(*) FROM task_spawns"), [Some("2".to_owned())]);
}

/// The second fault: a stopped agent's call came back with the next reading of the transcript, and
/// a new tester was told the coder's rules. The whole transcript is read again here: it is another
/// file. Trace names of the original: #5934, #5935, #5936. Rows 3.12, 3.22, 3.30.
#[test]
fn a_stopped_subagents_spawn_does_not_come_back() {
    let mut world = world::world();
    let transcript = world.transcript("s");
    write(&transcript, &line(&[block("t1", "coder")]));
    assert_eq!(world.start("a1", "general-purpose").context(), Some(text_of("coder").as_str()));
    world.stop("a1", "general-purpose");
    assert_eq!(world.row("SELECT state, end_reason FROM subagents")[0].as_deref(), Some("ended"));
    let text = std::fs::read_to_string(&transcript).unwrap();
    let copy = transcript.with_extension("copy");
    write(&copy, &(text + &line(&[block("t2", "tester")])));
    std::fs::rename(&copy, &transcript).unwrap();
    assert_eq!(world.start("a2", "general-purpose").context(), Some(text_of("tester").as_str()));
    let matched = world.rows("SELECT tool_use_id, matched_agent_id FROM task_spawns ORDER BY 1");
    let row = |a: &str, b: &str| vec![Some(a.to_owned()), Some(b.to_owned())];
    assert_eq!(matched, [row("t1", "a1"), row("t2", "a2")]);
}

/// The same with the program, a call that is torn when it is first read, and one that is written
/// twice, as after a compaction.
#[test]
fn the_program_reads_calls_that_no_hook_saw_from_the_transcript_as_they_come() {
    let project = process::project(&conventions());
    let transcript = project.home.join(".claude/projects/-p/s.jsonl");
    let start = |agent: &str| {
        let done = project.hook(&json!({
            "session_id": "s", "hook_event_name": "SubagentStart", "transcript_path": transcript,
            "agent_id": agent, "agent_type": "general-purpose",
        }));
        done.goes_on().context()
    };
    let second = line(&[block("t2", "tester")]);
    let (head, tail) = second.split_at(second.len() / 2);
    append(&transcript, &line(&[block("t1", "coder")]));
    append(&transcript, head);
    assert_eq!(start("a1"), Some(text_of("coder")));
    append(&transcript, tail);
    assert_eq!(start("a2"), Some(text_of("tester")));
    append(&transcript, &second);
    append(&transcript, &line(&[block("t3", "scribe")]));
    assert_eq!(start("a3"), Some(text_of("scribe")));
    assert_eq!(project.count("SELECT count(*) FROM task_spawns"), 3);
}

/// Rows 3.14, 3.20, 3.22: from the call to the end, with what each step writes.
#[test]
fn the_whole_flow_of_one_subagent_is_recorded() {
    let mut world = world::world();
    world.spawn("t1", "general-purpose", "[ROLE:tester] go");
    world.start("a1", "general-purpose");
    world.tool("a1", "general-purpose");
    world.stop("a1", "general-purpose");
    let row = world.row(
        "SELECT session_id, agent_type, role, role_source, startup_processed,
                task_match_index = (SELECT id FROM task_spawns), state FROM subagents",
    );
    let row: Vec<_> = row.iter().map(|value| value.as_deref().unwrap()).collect();
    assert_eq!(row, ["s", "general-purpose", "tester", "task_match", "1", "1", "ended"]);
    let log = world.rows("SELECT event_type, hook_name, result FROM hook_log ORDER BY id");
    let log: Vec<_> = log
        .iter()
        .map(|row| row.iter().map(|v| v.as_deref().unwrap()).collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(
        log,
        [
            "PreToolUse session_startup injected",
            "SubagentStart subagent_event injected",
            "PreToolUse PreToolUse ok",
            "SubagentStop subagent_event ok",
        ]
    );
    let hash = world.row("SELECT prompt_hash FROM task_spawns");
    assert_eq!(
        hash,
        [Some("3e39089944b0d12b".to_owned())],
        "the first 16 digits of the prompt's SHA-256"
    );
}

/// A session that ends has its subagents' bills summed without waiting for what they said last.
#[test]
fn many_agents_that_end_together_are_ended_in_time() {
    let mut world = world::world();
    let folder = world.transcript("s").with_extension("").join("subagents");
    for number in 0..8 {
        world.start(&format!("a{number}"), "tester");
        write(&folder.join(format!("agent-a{number}.jsonl")), "{}\n");
    }
    let more = json!({ "background_tasks": [], "last_assistant_message": "the main agent's" });
    let started = std::time::Instant::now();
    world.hook(&world.event("Stop", more));
    assert!(started.elapsed() < process::LIMIT / 2, "{:?}", started.elapsed());
    let ended = world.row("SELECT count(*) FROM subagents WHERE end_reason = 'gone'");
    assert_eq!(ended, [Some("8".to_owned())]);
}

/// Without time for their bills they are ended all the same.
#[test]
fn agents_are_ended_when_there_is_no_time_left() {
    let mut world = world::world();
    for number in 0..8 {
        world.start(&format!("a{number}"), "tester");
    }
    world.waited = process::LIMIT;
    world.hook(&world.event("SessionEnd", json!({})));
    let ended = world.row("SELECT count(*) FROM subagents WHERE end_reason = 'session_end'");
    assert_eq!(ended, [Some("8".to_owned())]);
}

/// An agent that was interrupted has no event of its own, and the call that failed is its parent's.
#[test]
fn a_nested_agent_whose_call_fails_is_ended() {
    let mut world = world::world();
    let of_parent = |more: Value| {
        let mut payload = json!({ "agent_id": "a1", "agent_type": "general-purpose",
                                  "tool_name": "Agent", "tool_use_id": "n1" });
        payload.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        payload
    };
    world.spawn("t1", "general-purpose", "[ROLE:tester] go");
    world.start("a1", "general-purpose");
    let input = json!({ "subagent_type": "general-purpose", "prompt": "[ROLE:coder] go" });
    world.hook(&world.event("PreToolUse", of_parent(json!({ "tool_input": input }))));
    world.start("a2", "general-purpose");
    world.meta("s", "a2", &json!({ "toolUseId": "n1", "parentAgentId": "a1" }));
    world.tool("a2", "general-purpose");
    world.hook(&world.event("PostToolUseFailure", of_parent(json!({ "error": "interrupted" }))));
    let states = world.rows("SELECT agent_id, state, end_reason FROM subagents ORDER BY 1");
    let row = |values: [Option<&str>; 3]| values.map(|value| value.map(str::to_owned)).to_vec();
    assert_eq!(
        states,
        [row([Some("a1"), Some("active"), None]), row([Some("a2"), Some("ended"), Some("failed")])]
    );
}

/// A session that is forked has a transcript that begins with the old one's calls and answers.
#[test]
fn a_forked_session_takes_no_old_call_for_a_new_agents() {
    let mut world = world::world();
    let result = json!({ "tool_use_id": "t1", "type": "tool_result", "content": "done" });
    let answer = json!({ "type": "user", "message": { "content": [result] },
                         "toolUseResult": { "status": "completed", "agentId": "old" } });
    let transcript = world.transcript("s");
    write(&transcript, &(line(&[block("t1", "coder")]) + &format!("{answer}\n")));
    world.hook(&world.event("SessionStart", json!({ "source": "fork" })));
    // The hook of its own call was killed.
    assert_eq!(world.start("a1", "general-purpose").context(), Some(text_of("default").as_str()));
    append(&transcript, &line(&[block("t2", "tester")]));
    world.meta("s", "a1", &json!({ "toolUseId": "t2" }));
    let told = world.tool("a1", "general-purpose");
    assert_eq!(told.context(), Some(text_of("tester").as_str()), "the transcript shows its call");
    let rows = world.rows("SELECT tool_use_id, matched_agent_id FROM task_spawns ORDER BY 1");
    let row = |a: &str, b: &str| vec![Some(a.to_owned()), Some(b.to_owned())];
    assert_eq!(rows, [row("t1", "old"), row("t2", "a1")]);
    let times = world.row("SELECT count(*) FROM task_spawns WHERE created_at < '2020'");
    assert_eq!(times, [Some("0".to_owned())]);
}

/// Rows 3.24, 3.27: two and three at once, of one type with different roles, and of the same role.
#[test]
fn two_and_three_at_once_get_their_own_text_each() {
    for roles in [&["tester", "coder"][..], &["coder", "tester", "coder"], &["scribe"; 3]] {
        let mut world = world::world();
        for (number, role) in roles.iter().enumerate() {
            world.spawn(&format!("t{number}"), "general-purpose", &format!("[ROLE:{role}] go"));
        }
        let told_in_prompts = world.rows("SELECT coalesce(delivered, '') FROM task_spawns");
        let mut told = vec![Vec::new(); roles.len()];
        for (number, heard) in told.iter_mut().enumerate() {
            let agent = format!("a{number}");
            heard.extend(world.start(&agent, "general-purpose").context().map(str::to_owned));
        }
        // The last one comes first, and Claude Code says which call was its own.
        for (number, heard) in told.iter_mut().enumerate().rev() {
            let agent = format!("a{number}");
            world.meta("s", &agent, &json!({ "toolUseId": format!("t{number}") }));
            let tool = world.tool(&agent, "general-purpose");
            heard.extend(tool.context().map(str::to_owned));
        }
        // The first one of a mixed crowd hears it with its first call, the others in their prompts.
        let mixed = roles.iter().any(|role| *role != roles[0]);
        for (number, role) in roles.iter().enumerate() {
            let in_prompt = told_in_prompts[number][0].clone().unwrap();
            let expected = match (mixed, number) {
                (false, _) | (true, 0) => vec![text_of(role)],
                (true, _) => Vec::new(),
            };
            assert_eq!(told[number], expected, "{roles:?}");
            let prompt = if mixed && number > 0 { format!("roles.{role}") } else { String::new() };
            assert_eq!(in_prompt, prompt, "{roles:?}");
        }
    }
}

/// Row 3.28: where no start is told, the first call is enough.
#[test]
fn without_a_start_the_first_call_makes_the_subagent_known() {
    let mut world = world::world();
    world.spawn("t1", "general-purpose", "[ROLE:coder] go");
    world.meta("s", "a1", &json!({ "toolUseId": "t1" }));
    let told = world.tool("a1", "general-purpose");
    assert_eq!(told.context(), Some(text_of("coder").as_str()));
}

/// Row 3.2, as far as it is still so: what a payload lacks is found where Claude Code keeps it. A
/// start names no transcript, a stop names both.
#[test]
fn what_a_payload_does_not_name_is_found_on_the_disk() {
    let mut world = world::world();
    let transcript = world.transcript("s").with_extension("").join("subagents/agent-a1.jsonl");
    let prompt = json!({ "type": "user", "message": { "content": "[ROLE:scribe] go" } });
    let usage = json!({ "input_tokens": 7, "output_tokens": 5 });
    let said = json!({ "id": "m1", "model": "opus", "usage": usage });
    let said = json!({ "type": "assistant", "message": said });
    write(&transcript, &format!("{prompt}\n{said}\n"));
    world.start("a1", "general-purpose");
    let told = world.tool("a1", "general-purpose");
    assert_eq!(told.context(), Some(text_of("scribe").as_str()));
    world.stop("a1", "general-purpose");
    let row = world.row("SELECT role_source, usage FROM subagents");
    assert_eq!(row[0].as_deref(), Some("transcript_parse"));
    assert!(row[1].as_deref().unwrap().contains("opus"), "{row:?}");
}
