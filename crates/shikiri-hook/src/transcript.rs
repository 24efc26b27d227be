//! Transcripts of Claude Code: one JSON object a line, appended while it works.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};

use serde_json::Value;
use shikiri_model::execution::Usage;

/// How far a file has been read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    pub inode: u64,
    pub offset: u64,
    pub lines: u64,
}

/// What new lines tell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct News {
    /// Tokens of the newest answer's context: all that went in and came out.
    pub tokens: Option<u64>,
    /// Calls that spawn subagents.
    pub calls: Vec<Call>,
}

/// One call of the tool that spawns subagents.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub tool_use_id: String,
    pub line: u64,
    pub input: Value,
}

/// Reads what was appended since; a last line that is not whole is left for the next time.
pub fn read_new(file: &mut File, from: Position) -> io::Result<(News, Position)> {
    let mut news = News::default();
    let mut position = from;
    file.seek(SeekFrom::Start(from.offset))?;
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 && line.ends_with(b"\n") {
        position.offset += line.len() as u64;
        position.lines += 1;
        if let Ok(value) = serde_json::from_slice::<Value>(&line) {
            take(&value, position.lines, &mut news);
        }
        line.clear();
    }
    Ok((news, position))
}

fn take(line: &Value, number: u64, news: &mut News) {
    if line["type"] != "assistant" {
        return;
    }
    if let Some(usage) = usage_of(&line["message"]) {
        let parts = [usage.input_tokens, usage.output_tokens, usage.cache_read_tokens];
        let written = usage.cache_write_5m_tokens + usage.cache_write_1h_tokens;
        news.tokens = Some(parts.iter().sum::<u64>() + written);
    }
    for block in line["message"]["content"].as_array().into_iter().flatten() {
        if block["type"] == "tool_use"
            && (block["name"] == "Task" || block["name"] == "Agent")
            && let Some(id) = block["id"].as_str()
        {
            let (tool_use_id, input) = (id.to_owned(), block["input"].clone());
            news.calls.push(Call { tool_use_id, line: number, input });
        }
    }
}

fn usage_of(message: &Value) -> Option<Usage> {
    let usage = message.get("usage")?.as_object()?;
    let count = |name: &str| usage.get(name).and_then(Value::as_u64).unwrap_or(0);
    let written = count("cache_creation_input_tokens");
    let hour = usage.get("cache_creation").and_then(|c| c["ephemeral_1h_input_tokens"].as_u64());
    let hour = hour.unwrap_or(0).min(written);
    Some(Usage {
        input_tokens: count("input_tokens"),
        output_tokens: count("output_tokens"),
        cache_write_5m_tokens: written - hour,
        cache_write_1h_tokens: hour,
        cache_read_tokens: count("cache_read_input_tokens"),
    })
}

/// What all of a file's answers cost, by model. An answer has a line for each of its blocks, which
/// all tell the whole.
pub fn usage(file: &mut File) -> io::Result<BTreeMap<String, Usage>> {
    let mut answers: BTreeMap<String, (String, Usage)> = BTreeMap::new();
    let mut line = Vec::new();
    let mut reader = BufReader::new(file);
    while reader.read_until(b'\n', &mut line)? > 0 {
        if let Ok(value) = serde_json::from_slice::<Value>(&line)
            && value["type"] == "assistant"
            && let Some(usage) = usage_of(&value["message"])
            && let (Some(id), Some(model)) =
                (value["message"]["id"].as_str(), value["message"]["model"].as_str())
            && model != "<synthetic>"
        {
            answers.insert(id.to_owned(), (model.to_owned(), usage));
        }
        line.clear();
    }
    let mut sums = BTreeMap::new();
    for (model, usage) in answers.into_values() {
        *sums.entry(model).or_default() += usage;
    }
    Ok(sums)
}

/// The text of the first user message: a subagent's prompt.
pub fn first_prompt(file: &mut File) -> io::Result<Option<String>> {
    const FIRST: u64 = 1024 * 1024;
    let mut line = Vec::new();
    let mut reader = BufReader::new(file.take(FIRST));
    while reader.read_until(b'\n', &mut line)? > 0 {
        if let Ok(value) = serde_json::from_slice::<Value>(&line)
            && value["type"] == "user"
        {
            return Ok(value["message"]["content"].as_str().map(str::to_owned));
        }
        line.clear();
    }
    Ok(None)
}

/// The version of the Claude Code that writes the file, if its first lines tell.
pub fn version(file: &mut File) -> io::Result<Option<String>> {
    const FIRST: u64 = 256 * 1024;
    let mut text = String::new();
    file.take(FIRST).read_to_string(&mut text)?;
    let told = text.lines().find_map(|line| {
        let value: Value = serde_json::from_str(line).ok()?;
        Some(value["version"].as_str()?.to_owned())
    });
    Ok(told)
}
