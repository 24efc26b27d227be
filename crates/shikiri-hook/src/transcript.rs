//! Transcripts of Claude Code: one JSON object a line, appended while it works.
//!
//! They grow to hundreds of megabytes, and hooks wait for nobody: lines that cannot matter are told
//! by a search for words that those that do must hold, and only the rest is parsed. In JSON a quote
//! inside a string is escaped, so a word with its quotes is hardly ever found in what somebody said.

mod ahead;
mod answer;
mod calls;
mod json;
mod lines;
#[cfg(test)]
mod plain_tests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

use memchr::memmem;
use serde_json::Value;
use shikiri_model::execution::Usage;

use self::answer::{Answer, Answers};
#[cfg(test)]
use self::calls::calls;
pub use self::calls::{Answered, Call, read_new};
pub use self::lines::Position;
use self::lines::{Lines, Sizes};

/// No file is read for longer at a time: it fits what a hook leaves for the rest of its work.
const READING: Duration = Duration::from_millis(250);

/// The newest answer is looked for in so many bytes at the end, then in more.
const TAILS: [u64; 3] = [64 << 10, 2 << 20, 64 << 20];

/// Tokens of the newest answer's context: all that went in and came out.
pub fn tokens(file: &mut File) -> io::Result<Option<u64>> {
    newest(file, &TAILS, Sizes::USUAL)
}

fn newest(file: &File, tails: &[u64], sizes: Sizes) -> io::Result<Option<u64>> {
    let until = Instant::now() + READING;
    let length = file.metadata()?.len();
    let answers = Answers::new();
    for tail in tails {
        let from = Position { offset: length.saturating_sub(*tail), ..Position::default() };
        let mut lines = Lines::new(file, from, until, sizes)?;
        let mut found = None;
        while let Some(block) = lines.next()? {
            let newest = answers.lines(&block).find_map(|line| Answer::read(line, |_| false));
            found = newest.map(|answer| answer.usage).or(found);
        }
        if let Some(usage) = found {
            let read = [usage.input_tokens, usage.cache_read_tokens];
            let written = [usage.cache_write_5m_tokens, usage.cache_write_1h_tokens];
            let all = read.into_iter().chain(written).chain([usage.output_tokens]);
            return Ok(Some(all.fold(0, u64::saturating_add)));
        }
        if from.offset == 0 {
            break;
        }
    }
    Ok(None)
}

/// What all of a file's answers cost, by model. An answer has a line for each of its blocks, which
/// all tell the whole. Half a sum would be wrong: a file that takes too long is an error.
pub fn usage(file: &mut File) -> io::Result<BTreeMap<String, Usage>> {
    sums(Lines::new(file, Position::default(), Instant::now() + READING, Sizes::USUAL)?)
}

fn sums(mut lines: Lines<'_>) -> io::Result<BTreeMap<String, Usage>> {
    let answers = Answers::new();
    // What the last line about an answer told, and which block that was in.
    let mut last: HashMap<String, (u64, usize, Usage)> = HashMap::new();
    let (mut models, mut number) = (Vec::<String>::new(), 0);
    while let Some(block) = lines.next()? {
        number += 1;
        let mut newest = None;
        // Backwards, because most lines need only be read up to the id then. Those of one answer
        // mostly stand together.
        for line in answers.lines(&block) {
            let known = |id: &str| {
                newest.as_deref() == Some(id)
                    || last.get(id).is_some_and(|(block, ..)| *block == number)
            };
            let Some(answer) = Answer::read(line, known) else { continue };
            let model = models.iter().position(|model| *model == answer.model);
            let model = model.unwrap_or_else(|| {
                models.push(answer.model.into_owned());
                models.len() - 1
            });
            last.insert(answer.id.clone().into_owned(), (number, model, answer.usage));
            newest = Some(answer.id);
        }
    }
    let mut sums = vec![None; models.len()];
    for (_, model, usage) in last.into_values() {
        *sums[model].get_or_insert_default() += usage;
    }
    let sums = models.into_iter().zip(sums);
    Ok(sums.filter_map(|(model, sum): (_, Option<Usage>)| Some((model, sum?))).collect())
}

/// The text of the first user message: a subagent's prompt.
pub fn first_prompt(file: &mut File) -> io::Result<Option<String>> {
    first(file, Instant::now() + READING, br#""user""#, |line| {
        let value: Value = serde_json::from_slice(line).ok()?;
        (value["type"] == "user").then(|| text_of(&value["message"]["content"]))
    })
    .map(Option::flatten)
}

/// What a message says, be it one text or blocks.
fn text_of(content: &Value) -> Option<String> {
    match content {
        Value::String(text) => Some(text.clone()),
        Value::Array(blocks) => {
            let texts = blocks.iter().filter(|block| block["type"] == "text");
            let texts: Vec<_> = texts.filter_map(|block| block["text"].as_str()).collect();
            (!texts.is_empty()).then(|| texts.join("\n"))
        }
        _ => None,
    }
}

/// The version of the Claude Code that writes the file, if its first lines tell.
pub fn version(file: &mut File) -> io::Result<Option<String>> {
    version_by(file, Instant::now() + READING)
}

fn version_by(file: &File, until: Instant) -> io::Result<Option<String>> {
    #[derive(serde::Deserialize)]
    struct Line {
        version: String,
    }
    first(file, until, br#""version""#, |line| {
        Some(serde_json::from_slice::<Line>(line).ok()?.version)
    })
}

/// What the first line tells that has something to tell, if it begins in the first megabyte.
fn first<T>(
    file: &File,
    until: Instant,
    word: &[u8],
    tell: impl Fn(&[u8]) -> Option<T>,
) -> io::Result<Option<T>> {
    const FIRST: usize = 1024 * 1024;
    let mut lines = Lines::new(file, Position::default(), until, Sizes::USUAL)?;
    let word = memmem::Finder::new(word);
    let mut left = FIRST;
    while let Some(block) = lines.next()? {
        for (_, _, line) in block.lines() {
            if left == 0 {
                return Ok(None);
            }
            left = left.saturating_sub(line.len() + 1);
            if word.find(line).is_some()
                && let Some(told) = tell(line)
            {
                return Ok(Some(told));
            }
        }
    }
    Ok(None)
}
