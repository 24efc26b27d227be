use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

use serde_json::json;
use tempfile::TempDir;

use super::*;

/// A project with a transcript, and what hooks remember of it.
struct World {
    folder: TempDir,
    read: RefCell<HashMap<String, TranscriptOffset>>,
}

impl World {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), read: RefCell::default() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("session.jsonl")
    }

    /// One hook that wants to know this.
    fn ask(&self, want: &EvidenceRequest) -> HookEvidence {
        let payload = json!({ "session_id": "s", "hook_event_name": "SubagentStart",
                              "transcript_path": self.path() });
        let payload = HookInput::parse(payload.to_string().as_bytes()).unwrap();
        let place = HookProject { root: self.folder.path().to_owned() };
        let mut finder = EvidenceFinder::new(&place, &payload, &|_| false, Instant::now());
        let mut evidence = HookEvidence::default();
        finder.find(want, &mut evidence, &|path| self.read.borrow().get(path).copied());
        let read = finder.read().map(|(path, read)| (path.to_owned(), read));
        self.read.borrow_mut().extend(read);
        evidence
    }

    /// Ids and lines of the calls that are new.
    fn spawns(&self) -> Vec<(String, Option<i64>)> {
        let spawns = self.ask(&EvidenceRequest::Spawns).spawns.unwrap();
        spawns.into_iter().map(|spawn| (spawn.tool_use_id, spawn.transcript_index)).collect()
    }
}

fn call(id: &str) -> String {
    let block =
        json!({ "type": "tool_use", "id": id, "name": "Agent", "input": { "prompt": "go" } });
    let message = json!({ "id": format!("msg_{id}"), "model": "m", "role": "assistant",
                          "content": [block], "usage": { "input_tokens": id.len() } });
    format!("{}\n", json!({ "type": "assistant", "message": message }))
}

fn told(id: &str, line: i64) -> (String, Option<i64>) {
    (id.to_owned(), Some(line))
}

#[test]
fn only_what_is_new_in_a_transcript_is_told() {
    let world = World::new();
    assert_eq!(world.spawns(), [], "there is no file yet");
    fs::write(world.path(), call("t1")).unwrap();
    assert_eq!(world.spawns(), [told("t1", 1)]);
    assert_eq!(world.spawns(), []);
    fs::write(world.path(), call("t1") + &call("t2")).unwrap();
    assert_eq!(world.spawns(), [told("t2", 2)]);
}

#[test]
fn a_transcript_that_was_replaced_or_cut_is_read_from_its_start() {
    let world = World::new();
    fs::write(world.path(), call("t1") + &call("t2")).unwrap();
    assert_eq!(world.spawns().len(), 2);
    fs::write(world.path(), call("t3")).unwrap();
    assert_eq!(world.spawns(), [told("t3", 1)], "it is shorter");
    let other = world.folder.path().join("other");
    fs::write(&other, call("t4") + &call("t5") + &call("t6")).unwrap();
    fs::rename(&other, world.path()).unwrap();
    assert_eq!(world.spawns(), [told("t4", 1), told("t5", 2), told("t6", 3)], "it is another");
}

#[test]
fn a_process_lives_until_it_has_ended_whatever_it_is_called() {
    let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    let claimant = format!("{}.1", child.id());
    assert!(is_process_alive(&claimant));
    child.kill().unwrap();
    // It is dead, though its parent has not waited for it yet.
    let started = Instant::now();
    while is_process_alive(&claimant) {
        assert!(started.elapsed() < Duration::from_secs(10), "it lives on");
        std::thread::yield_now();
    }
    child.wait().unwrap();
    assert!(!is_process_alive(&claimant));
}

#[test]
fn a_prompt_that_cannot_be_read_is_told_from_one_without_a_role() {
    let world = World::new();
    let ask = || world.ask(&EvidenceRequest::PromptRole { agent_id: None }).prompt_role.unwrap();
    assert_eq!(ask(), PromptRole::Unread);
    let prompt = |text: &str| {
        let line = json!({ "type": "user", "message": { "content": text } });
        fs::write(world.path(), format!("{line}\n")).unwrap();
    };
    prompt("go");
    assert_eq!(ask(), PromptRole::NoTag);
    prompt("[ROLE:試験] go");
    assert_eq!(ask(), PromptRole::Named("試験".to_owned()));
}

/// The same lines tell both: who asks for one must not use up the other.
#[test]
fn calls_are_told_after_the_tokens_were_asked_for() {
    let world = World::new();
    fs::write(world.path(), call("t1")).unwrap();
    assert_eq!(world.ask(&EvidenceRequest::Tokens { agent_id: None }).tokens, Some(Some(2)));
    assert_eq!(world.spawns(), [told("t1", 1)]);
    assert_eq!(world.ask(&EvidenceRequest::Tokens { agent_id: None }).tokens, Some(Some(2)));
}

/// An answer of the model, as a line of a transcript.
fn answer(id: &str, words: &str, at: &str) -> String {
    let block = json!({ "type": "text", "text": words });
    let message = json!({ "id": id, "model": "m", "role": "assistant", "content": [block],
                          "stop_reason": "end_turn", "usage": { "input_tokens": 10 } });
    format!("{}\n", json!({ "type": "assistant", "timestamp": at, "message": message }))
}

fn prompt(words: &str) -> String {
    format!("{}\n", json!({ "type": "user", "message": { "content": words } }))
}

/// The usage of the agent `a1` at its end, which says `done`.
fn usage(world: &World, request: UsageRequest) -> (Option<u64>, bool) {
    let payload = json!({ "session_id": "s", "hook_event_name": "SubagentStop", "agent_id": "a1",
                          "last_assistant_message": "done", "transcript_path": world.path() });
    let payload = HookInput::parse(payload.to_string().as_bytes()).unwrap();
    let place = HookProject { root: world.folder.path().to_owned() };
    // Nothing is waited for.
    let mut finder = EvidenceFinder::new(&place, &payload, &|_| false, Instant::now());
    let mut evidence = HookEvidence::default();
    finder.find(&EvidenceRequest::Usage(vec![request]), &mut evidence, &|_| None);
    let (_, found) = evidence.usage.pop().unwrap();
    let sum: Option<Value> = found.usage.map(|text| serde_json::from_str(&text).unwrap());
    (sum.map(|sum| sum["m"]["input_tokens"].as_u64().unwrap()), found.is_complete)
}

fn of_agent() -> UsageRequest {
    UsageRequest { agent_id: Some("a1".to_owned()), ..UsageRequest::default() }
}

/// Where the transcript of `a1` lies.
fn agent_file(world: &World, folder: &str) -> PathBuf {
    let folder = world.folder.path().join("session").join(folder);
    fs::create_dir_all(&folder).unwrap();
    folder.join("agent-a1.jsonl")
}

const NOON: &str = "2026-11-15T12:00:00.000Z";
const LATER: &str = "2026-11-15T12:00:05.000Z";

#[test]
fn usage_is_complete_when_the_last_answer_is_written() {
    let world = World::new();
    assert_eq!(usage(&world, of_agent()), (None, false), "a quick agent has no file yet");
    let path = agent_file(&world, "subagents");
    fs::write(&path, prompt("go")).unwrap();
    assert_eq!(usage(&world, of_agent()), (None, false));
    let calls = call("t1");
    fs::write(&path, prompt("go") + &calls).unwrap();
    assert_eq!(usage(&world, of_agent()), (Some(2), false), "half of it");
    fs::write(&path, prompt("go") + &calls + &answer("m2", "other words", NOON)).unwrap();
    assert!(!usage(&world, of_agent()).1, "not what it said");
    fs::write(&path, prompt("go") + &calls + &answer("m2", "done", NOON)).unwrap();
    assert_eq!(usage(&world, of_agent()), (Some(12), true));
}

/// A woken teammate says the same words again.
#[test]
fn usage_is_complete_only_with_an_answer_from_after_the_latest_start() {
    let world = World::new();
    let path = agent_file(&world, "subagents");
    let first = prompt("go") + &answer("m1", "done", NOON) + &prompt("again");
    fs::write(&path, &first).unwrap();
    let woken = || UsageRequest { answered_after: Some(LATER.parse().unwrap()), ..of_agent() };
    assert_eq!(usage(&world, of_agent()), (Some(10), true));
    assert_eq!(usage(&world, woken()), (Some(10), false));
    fs::write(&path, first + &answer("m2", "done", LATER)).unwrap();
    assert_eq!(usage(&world, woken()), (Some(20), true));
}

#[test]
fn a_fork_does_not_pay_for_what_was_there_before_it() {
    let world = World::new();
    let path = agent_file(&world, "subagents");
    let text = call("t1") + &prompt("you are the fork") + &answer("m2", "done", NOON);
    fs::write(path, text).unwrap();
    assert_eq!(usage(&world, of_agent()), (Some(10), true), "the parent paid for the call");

    let old = prompt("go") + &answer("m1", "done", NOON);
    fs::write(world.path(), old + &prompt("on") + &answer("m2", "done", LATER)).unwrap();
    let session =
        UsageRequest { path: world.path().to_str().map(str::to_owned), ..UsageRequest::default() };
    assert_eq!(usage(&world, session.clone()), (Some(20), true));
    let fork = UsageRequest { counted_from: Some(LATER.parse().unwrap()), ..session };
    assert_eq!(usage(&world, fork), (Some(10), true));
}

#[test]
fn files_of_a_workflows_agent_lie_in_the_folder_of_the_workflow() {
    let world = World::new();
    let path = agent_file(&world, "subagents/workflows/wf_1");
    fs::create_dir_all(world.folder.path().join("session/subagents/workflows/wf_0")).unwrap();
    fs::write(&path, prompt("[ROLE:tester] go") + &answer("m1", "done", NOON)).unwrap();
    fs::write(path.with_extension("meta.json"), r#"{"parentAgentId":"p"}"#).unwrap();
    assert_eq!(usage(&world, of_agent()), (Some(10), true));
    let agent_id = "a1".to_owned();
    let asked = world.ask(&EvidenceRequest::PromptRole { agent_id: Some(agent_id.clone()) });
    assert_eq!(asked.prompt_role, Some(PromptRole::Named("tester".to_owned())));
    let meta = world.ask(&EvidenceRequest::Meta { agent_id }).meta.flatten().unwrap();
    assert_eq!(meta.parent_agent_id.as_deref(), Some("p"));
}

#[test]
fn a_text_is_heard_where_the_transcript_has_it() {
    let world = World::new();
    let heard =
        |text: &str| world.ask(&EvidenceRequest::Heard { text: text.to_owned() }).is_heard.unwrap();
    assert!(!heard("main"), "there is no file yet");
    fs::write(world.path(), prompt("before\n\"規約\"\nafter")).unwrap();
    assert!(heard("\"規約\"\naft"));
    assert!(!heard("other"));
}
