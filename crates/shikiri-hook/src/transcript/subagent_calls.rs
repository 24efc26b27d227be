//! Reads calls that spawn subagents, and their results.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::time::Instant;

use memchr::memmem;
use serde_json::Value;
use shikiri_model::time::Timestamp;

use super::READING;
use super::json_cursor::JsonCursor;
use super::line_reader::{LinePosition, LineReadSizes, TranscriptLineReader};

/// A call of the tool that spawns subagents.
#[derive(Clone, Debug, PartialEq)]
pub struct SubagentCall {
    pub tool_use_id: String,
    pub line: u64,
    pub input: Value,
    /// The time of the call, if the line has it.
    pub at: Option<Timestamp>,
    /// None if the bytes that were read contain no result.
    pub answer: Option<SubagentCallResult>,
}

/// The result of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubagentCallResult {
    /// The spawned subagent; None if the call was refused or failed.
    pub agent_id: Option<String>,
    /// Whether the subagent works in the background.
    pub goes_on: bool,
    pub at: Option<Timestamp>,
}

/// Reads the spawn calls that were appended since the last read, each once, although Claude Code
/// repeats lines after a compaction. Calls after the deadline and an incomplete last line are left
/// for the next time.
pub fn read_new(
    file: &mut File,
    from: LinePosition,
) -> io::Result<(Vec<SubagentCall>, LinePosition)> {
    collect_calls(TranscriptLineReader::new(
        file,
        from,
        Instant::now() + READING,
        LineReadSizes::USUAL,
    )?)
}

pub(super) fn collect_calls(
    mut lines: TranscriptLineReader<'_>,
) -> io::Result<(Vec<SubagentCall>, LinePosition)> {
    // `"tool_use"` marks a call; `"tool_use_id"` and `"tool_result"` mark a result. One search
    // finds all three.
    let words = memmem::Finder::new(br#""tool_"#);
    let mut found = SubagentCallCollector::default();
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
struct SubagentCallCollector {
    calls: Vec<SubagentCall>,
    /// The index of the call with each id, as the id is written in JSON.
    places: HashMap<Vec<u8>, usize>,
}

impl SubagentCallCollector {
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
            let place = self.places.entry(escape_id(id));
            if block["type"] == "tool_use"
                && let std::collections::hash_map::Entry::Vacant(place) = place
            {
                place.insert(self.calls.len());
                let at = time_of(&value);
                self.calls.push(SubagentCall {
                    tool_use_id,
                    line: number,
                    input,
                    at,
                    answer: None,
                });
            }
        }
    }

    /// Most results are of other tools. Only results of known calls are parsed.
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
            let place = id.and_then(|id| self.places.get(&escape_id(id)));
            let Some(call) = place.and_then(|place| self.calls.get_mut(*place)) else { continue };
            call.answer.get_or_insert_with(|| answer(&value));
        }
    }
}

fn answer(line: &Value) -> SubagentCallResult {
    let result = &line["toolUseResult"];
    let status = result["status"].as_str();
    SubagentCallResult {
        agent_id: result["agentId"].as_str().map(str::to_owned),
        goes_on: matches!(status, Some("async_launched" | "teammate_spawned")),
        at: time_of(line),
    }
}

fn time_of(line: &Value) -> Option<Timestamp> {
    line["timestamp"].as_str()?.parse().ok()
}

/// The text as JSON writes it, without the quotes.
fn escape_id(id: &str) -> Vec<u8> {
    let mut text = serde_json::to_vec(id).unwrap_or_default();
    text.pop();
    text.drain(..1.min(text.len()));
    text
}

/// The ids of the calls in a line, as written.
fn ids_in(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    const NAME: &[u8] = br#""tool_use_id""#;
    memmem::find_iter(line, NAME).filter_map(|at| {
        let rest = line.get(at + NAME.len()..)?.trim_ascii_start();
        JsonCursor::new(rest.strip_prefix(b":")?).string()
    })
}
