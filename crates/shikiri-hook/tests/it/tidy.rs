//! The log of writes stays short, whoever calls how often.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::process::project;

/// Sixty calls write four times as much.
const SHORT: u64 = 140 * 1024;

#[test]
fn the_log_stays_short_and_every_call_is_kept() {
    let project = project("");
    let call = json!({
        "session_id": "s", "hook_event_name": "PreToolUse", "cwd": project.root,
        "tool_name": "Bash", "tool_use_id": "toolu_1", "tool_input": { "command": "ls" },
    });
    for _ in 0..60 {
        project.hook(&call).goes_on().is_silent();
    }
    let log = project.place().folder().join("state.db-wal");
    let length = || std::fs::metadata(&log).unwrap().len();
    // Whoever shortens it is a process that no hook waits for.
    let started = Instant::now();
    while length() > SHORT {
        assert!(started.elapsed() < Duration::from_secs(10), "{} bytes", length());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(project.count("SELECT count(*) FROM hook_log"), 60);
    assert_eq!(project.count("SELECT count(*) FROM facts WHERE name = 'log_shortened_at'"), 1);
}
