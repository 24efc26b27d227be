//! Transcripts of Claude Code: one JSON object per line, appended during the session.
//!
//! A transcript can have hundreds of megabytes, and a hook must be fast. A text search finds the
//! lines that can matter, and only those are parsed. JSON escapes a quote inside a string, so a key
//! with its quotes rarely matches inside a message.

mod json_cursor;
mod line_reader;
#[cfg(test)]
mod plain_tests;
mod read_ahead;
mod subagent_calls;
#[cfg(test)]
mod tests;
mod transcript_answer;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

use memchr::memmem;
use serde_json::Value;
use shikiri_model::execution::TokenUsage;
use shikiri_model::time::Timestamp;

pub use self::line_reader::LinePosition;
use self::line_reader::{LineReadSizes, TranscriptLineReader};
#[cfg(test)]
use self::subagent_calls::collect_calls;
pub use self::subagent_calls::{SubagentCall, SubagentCallResult, read_new};
use self::transcript_answer::{TranscriptAnswer, TranscriptAnswerFinder};

/// The longest time for reading one file. It leaves time for the rest of the hook's work.
const READING: Duration = Duration::from_millis(250);

/// This many characters identify a text.
const TOLD_BY: usize = 200;

/// The newest answer is searched in this many bytes at the end, then in more.
const TAILS: [u64; 3] = [64 << 10, 2 << 20, 64 << 20];

/// The context tokens of the newest answer, in and out.
pub fn tokens(file: &mut File) -> io::Result<Option<u64>> {
    newest_context_tokens(file, &TAILS, LineReadSizes::USUAL)
}

fn newest_context_tokens(
    file: &File,
    tails: &[u64],
    sizes: LineReadSizes,
) -> io::Result<Option<u64>> {
    let until = Instant::now() + READING;
    let length = file.metadata()?.len();
    let answers = TranscriptAnswerFinder::new();
    for tail in tails {
        let from = LinePosition { offset: length.saturating_sub(*tail), ..LinePosition::default() };
        let mut lines = TranscriptLineReader::new(file, from, until, sizes)?;
        let mut found = None;
        while let Some(block) = lines.next()? {
            let newest =
                answers.lines(&block).find_map(|line| TranscriptAnswer::read(line, |_| false));
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

/// What a file says that its agent spent.
#[derive(Debug, Default, PartialEq)]
pub struct UsageSum {
    pub by_model: BTreeMap<String, TokenUsage>,
    /// After the last answer, the agent does not go on by itself.
    pub is_final: bool,
    /// The time of the last answer.
    pub answered_at: Option<Timestamp>,
}

/// The answers in a file that do not count.
#[derive(Debug, Default)]
pub struct UsageFilter {
    /// Older answers are another session's.
    pub counted_from: Option<Timestamp>,
    /// The file is a session's, and answers of subagents in it are not the main agent's.
    pub is_session: bool,
}

/// The usage of the answers in a file. An answer has one line per content block, and each line has
/// the usage of the whole answer. A partial sum would be wrong, so a file that takes too long is an
/// error.
pub fn usage(file: &mut File, filter: &UsageFilter) -> io::Result<UsageSum> {
    let until = Instant::now() + READING;
    let before_prompt = answers_before_prompt(file, until)?;
    let sizes = LineReadSizes::USUAL;
    let lines = TranscriptLineReader::new(file, LinePosition::default(), until, sizes)?;
    sum_usage(lines, |answer| {
        (filter.is_session && answer.is_of_subagent)
            || answer.at.is_some_and(|at| filter.counted_from.is_some_and(|from| at < from))
            || before_prompt.iter().any(|id| *id == answer.id)
    })
}

/// The file of a forked subagent begins with the answer that forked it, which its parent has paid.
fn answers_before_prompt(file: &File, until: Instant) -> io::Result<Vec<String>> {
    let ids = RefCell::new(Vec::new());
    let prompt = first(file, until, br#""message""#, |line| {
        let value: Value = serde_json::from_slice(line).ok()?;
        if value["type"] == "assistant" {
            ids.borrow_mut().extend(value["message"]["id"].as_str().map(str::to_owned));
        }
        (value["type"] == "user").then_some(())
    })?;
    Ok(if prompt.is_some() { ids.into_inner() } else { Vec::new() })
}

fn sum_usage(
    mut lines: TranscriptLineReader<'_>,
    is_foreign: impl Fn(&TranscriptAnswer<'_>) -> bool,
) -> io::Result<UsageSum> {
    let answers = TranscriptAnswerFinder::new();
    // The usage in the last line of each answer, and the block of that line.
    let mut last: HashMap<String, (u64, usize, TokenUsage)> = HashMap::new();
    let (mut models, mut number) = (Vec::<String>::new(), 0);
    let (mut is_final, mut answered_at) = (false, None);
    while let Some(block) = lines.next()? {
        number += 1;
        let mut newest = None;
        // In reverse order: of most lines, only the id must then be read, because lines of one
        // answer are usually adjacent.
        for line in answers.lines(&block) {
            let known = |id: &str| {
                newest.as_deref() == Some(id)
                    || last.get(id).is_some_and(|(block, ..)| *block == number)
            };
            let Some(answer) = TranscriptAnswer::read(line, known) else { continue };
            if is_foreign(&answer) {
                continue;
            }
            if newest.is_none() {
                (is_final, answered_at) = (answer.is_final, answer.at);
            }
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
    let by_model = sums.filter_map(|(model, sum): (_, Option<TokenUsage>)| Some((model, sum?)));
    Ok(UsageSum { by_model: by_model.collect(), is_final, answered_at })
}

/// The text of the first user message: a subagent's prompt.
pub fn first_prompt(file: &mut File) -> io::Result<Option<String>> {
    first(file, Instant::now() + READING, br#""user""#, |line| {
        let value: Value = serde_json::from_slice(line).ok()?;
        (value["type"] == "user").then(|| text_of(&value["message"]["content"]))
    })
    .map(Option::flatten)
}

/// The text of a message, which is one text or several blocks.
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

/// Whether a line at the beginning has this text, which was told to the session.
pub fn has_text(file: &mut File, text: &str) -> io::Result<bool> {
    let words: String = text.chars().take(TOLD_BY).collect();
    let words = serde_json::to_string(&words).unwrap_or_default();
    let words = words.trim_matches('"').as_bytes();
    let found = first(file, Instant::now() + READING, words, |_| Some(()))?;
    Ok(!words.is_empty() && found.is_some())
}

/// The version of the Claude Code that writes the file, if its first lines have it.
pub fn version(file: &mut File) -> io::Result<Option<String>> {
    version_by(file, Instant::now() + READING)
}

fn version_by(file: &File, until: Instant) -> io::Result<Option<String>> {
    #[derive(serde::Deserialize)]
    struct VersionLine {
        version: String,
    }
    first(file, until, br#""version""#, |line| {
        Some(serde_json::from_slice::<VersionLine>(line).ok()?.version)
    })
}

/// The first value that a line in the first megabyte has.
fn first<T>(
    file: &File,
    until: Instant,
    word: &[u8],
    tell: impl Fn(&[u8]) -> Option<T>,
) -> io::Result<Option<T>> {
    const FIRST: usize = 1024 * 1024;
    let mut lines =
        TranscriptLineReader::new(file, LinePosition::default(), until, LineReadSizes::USUAL)?;
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
