//! Hooks as Claude Code calls them.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::Value;

/// What a hook answers to an event.
pub(crate) fn told(command: &mut Command, event: &Value) -> String {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|e| panic!("cannot start {command:?}: {e}"));
    child.stdin.take().unwrap().write_all(event.to_string().as_bytes()).unwrap();
    let done = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && errors.is_empty(), "{command:?}: {errors}");
    String::from_utf8(done.stdout).unwrap()
}
