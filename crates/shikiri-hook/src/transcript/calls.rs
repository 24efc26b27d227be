//! Calls that spawn subagents, and whether they were answered.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::time::Instant;

use memchr::memmem;
use serde_json::Value;
use shikiri_model::time::Timestamp;

use super::READING;
use super::json::Cursor;
use super::lines::{Lines, Position, Sizes};

/// One call of the tool that spawns subagents.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub tool_use_id: String,
    pub line: u64,
    pub input: Value,
    /// When it was made, if the line tells.
    pub at: Option<Timestamp>,
    /// None if no answer follows it in what was read.
    pub answer: Option<Answered>,
}

/// What a call was answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// The subagent that it spawned; none if it was refused or failed.
    pub agent_id: Option<String>,
    /// The subagent works in the background.
    pub goes_on: bool,
    pub at: Option<Timestamp>,
}

/// Calls that spawn subagents, in what was appended since; each once, although Claude Code writes
/// lines that it keeps again after a compaction. What there is no time for, and a last line that is
/// not whole, are left for the next time.
pub fn read_new(file: &mut File, from: Position) -> io::Result<(Vec<Call>, Position)> {
    calls(Lines::new(file, from, Instant::now() + READING, Sizes::USUAL)?)
}

pub(super) fn calls(mut lines: Lines<'_>) -> io::Result<(Vec<Call>, Position)> {
    // With what follows it, `"tool_use"` is a call, and `"tool_use_id"` and `"tool_result"` are of
    // an answer: one search finds all.
    let words = memmem::Finder::new(br#""tool_"#);
    let mut found = Found::default();
    loop {
        match lines.next() {
            Ok(Some(block)) => {
                let mut places = block.places(&words).peekable();
                for (number, range, line) in block.lines() {
                    let (mut is_call, mut is_answer) = (false, false);
                    while let Some(at) = places.next_if(|at| *at < range.end) {
                        let calls = line[at - range.start..].starts_with(br#""tool_use""#);
                        (is_call, is_answer) = (is_call || calls, is_answer || !calls);
                    }
                    if is_call {
                        found.take_calls(line, number);
                    }
                    if is_answer {
                        found.take_answers(line);
                    }
                }
            }
            Ok(None) => break,
            Err(error) if error.kind() == io::ErrorKind::TimedOut => break,
            Err(error) => return Err(error),
        }
    }
    Ok((found.calls, lines.position()))
}

#[derive(Default)]
struct Found {
    calls: Vec<Call>,
    /// Where the call with an id is; the id as it is written in JSON.
    places: HashMap<Vec<u8>, usize>,
}

impl Found {
    fn take_calls(&mut self, line: &[u8], number: u64) {
        let holds = |word: &[u8]| memmem::find(line, word).is_some();
        if !(holds(br#""Agent""#) || holds(br#""Task""#)) {
            return;
        }
        let value: Value = serde_json::from_slice(line).unwrap_or_default();
        if value["type"] != "assistant" {
            return;
        }
        for block in value["message"]["content"].as_array().into_iter().flatten() {
            let spawns = block["name"] == "Agent" || block["name"] == "Task";
            let Some(id) = block["id"].as_str().filter(|_| spawns) else { continue };
            let (tool_use_id, input) = (id.to_owned(), block["input"].clone());
            let place = self.places.entry(written(id));
            if block["type"] == "tool_use"
                && let std::collections::hash_map::Entry::Vacant(place) = place
            {
                place.insert(self.calls.len());
                let at = time_of(&value);
                self.calls.push(Call { tool_use_id, line: number, input, at, answer: None });
            }
        }
    }

    /// Most answers are of other tools: only those of our calls are parsed.
    fn take_answers(&mut self, line: &[u8]) {
        if self.places.is_empty() || !ids_in(line).any(|id| self.places.contains_key(id)) {
            return;
        }
        let value: Value = serde_json::from_slice(line).unwrap_or_default();
        if value["type"] != "user" {
            return;
        }
        for block in value["message"]["content"].as_array().into_iter().flatten() {
            let id = block["tool_use_id"].as_str().filter(|_| block["type"] == "tool_result");
            let place = id.and_then(|id| self.places.get(&written(id)));
            let Some(call) = place.and_then(|place| self.calls.get_mut(*place)) else { continue };
            call.answer.get_or_insert_with(|| answer(&value));
        }
    }
}

fn answer(line: &Value) -> Answered {
    let result = &line["toolUseResult"];
    let status = result["status"].as_str();
    Answered {
        agent_id: result["agentId"].as_str().map(str::to_owned),
        goes_on: matches!(status, Some("async_launched" | "teammate_spawned")),
        at: time_of(line),
    }
}

fn time_of(line: &Value) -> Option<Timestamp> {
    line["timestamp"].as_str()?.parse().ok()
}

/// As JSON writes it, without the quotes.
fn written(id: &str) -> Vec<u8> {
    let mut text = serde_json::to_vec(id).unwrap_or_default();
    text.pop();
    text.drain(..1.min(text.len()));
    text
}

/// The calls that a line is about, as they are written.
fn ids_in(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    const NAME: &[u8] = br#""tool_use_id""#;
    memmem::find_iter(line, NAME).filter_map(|at| {
        let rest = line.get(at + NAME.len()..)?.trim_ascii_start();
        Cursor::new(rest.strip_prefix(b":")?).string()
    })
}
