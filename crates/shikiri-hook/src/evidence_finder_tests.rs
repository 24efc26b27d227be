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
