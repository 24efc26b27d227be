//! The log of writes stays short, however often hooks run.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::process::{Project, project};

/// Sixty calls write three times as much.
const SHORT: u64 = 76 * 1024;

/// A page, and what the log says about it.
const WRITTEN_PAGE: u64 = 4096 + 24;

fn call(project: &Project) -> Value {
    json!({
        "session_id": "s", "hook_event_name": "PreToolUse", "cwd": project.root,
        "tool_name": "Bash", "tool_use_id": "toolu_1", "tool_input": { "command": "ls" },
    })
}

fn log_length(project: &Project) -> u64 {
    std::fs::metadata(project.place().folder().join("state.db-wal")).unwrap().len()
}

#[test]
fn a_call_that_nothing_is_said_about_writes_its_row_and_its_place_in_the_index() {
    let project = project("");
    project.hook(&call(&project)).goes_on().is_silent();
    let before = log_length(&project);
    project.hook(&call(&project)).goes_on().is_silent();
    assert_eq!(log_length(&project) - before, 2 * WRITTEN_PAGE);
}

#[test]
fn the_log_stays_short_and_every_call_is_kept() {
    let project = project("");
    for _ in 0..60 {
        project.hook(&call(&project)).goes_on().is_silent();
    }
    let length = || log_length(&project);
    // It is shortened by a process that no hook waits for.
    let started = Instant::now();
    while length() > SHORT {
        assert!(started.elapsed() < Duration::from_secs(10), "{} bytes", length());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(project.count("SELECT count(*) FROM hook_log"), 60);
    assert_eq!(project.count("SELECT count(*) FROM facts WHERE name = 'log_shortened_at'"), 1);
}
