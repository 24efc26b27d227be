//! As much of Claude Code as the engine needs: it tells its version, answers `initialize`, and to
//! a prompt writes pieces of text that tell when they were written.

use std::io::{BufRead as _, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use crate::machine::monotonic_ns;

/// Pieces of an answer, and how far they are apart: about as fast as a model writes.
const PIECES: usize = 50;
const PAUSE: Duration = Duration::from_millis(10);
const MODEL: &str = "claude";
const SESSION: &str = "00000000-0000-4000-8000-000000000000";

/// A prompt with this word gets a single piece.
pub(crate) const SHORT: &str = "briefly";

/// The program acts as the CLI if it is started under this name.
pub(crate) const NAME: &str = "claude";

/// If this process was started as the CLI, does its work.
pub(crate) fn run_if_asked() -> Option<Result<()>> {
    let mut words = std::env::args_os();
    let name = PathBuf::from(words.next()?);
    name.ends_with(NAME).then(|| run(words.any(|word| word == "--version")))
}

fn run(wants_version: bool) -> Result<()> {
    if wants_version {
        return crate::child::tell("2.1.325 (Claude Code)");
    }
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let message: Value = serde_json::from_str(&line)?;
        match message["type"].as_str() {
            Some("control_request") => say(&json!({
                "type": "control_response",
                "response": {
                    "subtype": "success", "request_id": message["request_id"], "response": {},
                },
            }))?,
            Some("user") if line.contains(SHORT) => answer(1)?,
            Some("user") => answer(PIECES)?,
            _ => {}
        }
    }
    Ok(())
}

fn answer(pieces: usize) -> Result<()> {
    let usage = json!({ "input_tokens": 1, "output_tokens": pieces });
    let message = json!({ "id": "msg_1", "model": MODEL, "usage": usage });
    say(&json!({ "type": "system", "subtype": "init", "session_id": SESSION, "model": MODEL }))?;
    event(&json!({ "type": "message_start", "message": message }))?;
    event(&json!({ "type": "content_block_start", "index": 0 }))?;
    let mut text = String::new();
    for _ in 0..pieces {
        std::thread::sleep(PAUSE);
        let piece = format!("at {};", monotonic_ns());
        let delta = json!({ "type": "text_delta", "text": piece });
        event(&json!({ "type": "content_block_delta", "index": 0, "delta": delta }))?;
        text.push_str(&piece);
    }
    let content = json!([{ "type": "text", "text": text }]);
    let whole = json!({ "id": "msg_1", "model": MODEL, "usage": usage, "content": content });
    say(&json!({ "type": "assistant", "message": whole, "session_id": SESSION }))?;
    let stop = json!({ "stop_reason": "end_turn" });
    event(&json!({ "type": "message_delta", "delta": stop, "usage": usage }))?;
    say(&json!({
        "type": "result", "subtype": "success", "is_error": false, "num_turns": 1,
        "result": text, "session_id": SESSION, "usage": usage,
        "modelUsage": { MODEL: { "inputTokens": 1, "outputTokens": pieces } },
    }))
}

fn event(event: &Value) -> Result<()> {
    say(&json!({ "type": "stream_event", "event": event, "session_id": SESSION }))
}

fn say(message: &Value) -> Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{message}")?;
    Ok(output.flush()?)
}
