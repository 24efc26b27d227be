//! Reads an answer of the model from a line.

use std::borrow::Cow;

use memchr::memmem::{self, Finder};
use shikiri_model::execution::TokenUsage;
use shikiri_model::time::Timestamp;

use super::json_cursor::JsonCursor;
use super::line_reader::LineBlock;

/// Claude Code's model name for messages of its own about failures.
const MADE_UP: &str = "<synthetic>";

#[derive(Clone, Debug, PartialEq)]
pub(super) struct TranscriptAnswer<'a> {
    pub(super) id: Cow<'a, str>,
    pub(super) model: Cow<'a, str>,
    pub(super) usage: TokenUsage,
    /// The agent does not go on after it by itself.
    pub(super) is_final: bool,
    pub(super) at: Option<Timestamp>,
    /// An older version wrote the answers of subagents into the session's file.
    pub(super) is_of_subagent: bool,
}

/// Finds lines that may contain an answer.
pub(super) struct TranscriptAnswerFinder(Finder<'static>);

impl TranscriptAnswerFinder {
    pub(super) fn new() -> Self {
        Self(Finder::new(br#""assistant""#))
    }

    /// The lines of a block that may contain an answer, in reverse order.
    pub(super) fn lines<'a>(
        &self,
        block: &LineBlock<'a>,
    ) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        block.lines_containing(&self.0).into_iter().rev()
    }
}

impl<'a> TranscriptAnswer<'a> {
    /// None if the line is of another kind, malformed, or about a known answer.
    pub(super) fn read(line: &'a [u8], known: impl Fn(&str) -> bool) -> Option<Self> {
        let mut cursor = JsonCursor::new(line);
        let (mut kind, mut message) = (None, TranscriptMessage::default());
        let (mut at, mut is_of_subagent) = (None, false);
        cursor.object(|name, value| match name {
            b"type" => text(value).map(|told| kind = told),
            b"message" => {
                message = TranscriptMessage::default();
                message.read(value, &known)
            }
            b"timestamp" => text(value).map(|told| at = told.and_then(|at| at.parse().ok())),
            b"isSidechain" if !matches!(value.peek()?, b'"' | b'{' | b'[') => {
                value.scalar().map(|told| is_of_subagent = told == b"true")
            }
            _ => value.skip(),
        })?;
        let (model, id) = (message.model?, message.id?);
        let is_answer = kind.as_deref() == Some("assistant") && model != MADE_UP;
        // Older versions write no reason.
        let is_final = match message.stop {
            Some(stop) => stop != "tool_use" && stop != "pause_turn",
            None => memmem::find(line, br#""tool_use""#).is_none(),
        };
        (is_answer && cursor.is_at_end()).then_some(Self {
            id,
            model,
            usage: message.usage?,
            is_final,
            at,
            is_of_subagent,
        })
    }
}

#[derive(Default)]
struct TranscriptMessage<'a> {
    id: Option<Cow<'a, str>>,
    model: Option<Cow<'a, str>>,
    usage: Option<TokenUsage>,
    stop: Option<Cow<'a, str>>,
}

impl<'a> TranscriptMessage<'a> {
    fn read(&mut self, value: &mut JsonCursor<'a>, known: impl Fn(&str) -> bool) -> Option<()> {
        if value.peek()? != b'{' {
            return value.skip();
        }
        value.object(|name, value| match name {
            b"id" => {
                self.id = text(value)?;
                self.id.as_deref().is_none_or(|id| !known(id)).then_some(())
            }
            b"model" => text(value).map(|told| self.model = told),
            b"stop_reason" => text(value).map(|told| self.stop = told),
            b"usage" => usage(value).map(|told| self.usage = told),
            _ => value.skip(),
        })
    }
}

/// The outer None is a malformed line, the inner None a value other than text.
fn text<'a>(value: &mut JsonCursor<'a>) -> Option<Option<Cow<'a, str>>> {
    if value.peek()? != b'"' {
        return value.skip().map(|()| None);
    }
    let raw = std::str::from_utf8(value.string()?).ok()?;
    if !raw.contains('\\') {
        return Some(Some(raw.into()));
    }
    let plain: String = serde_json::from_str(&format!("\"{raw}\"")).ok()?;
    Some(Some(plain.into()))
}

fn usage(value: &mut JsonCursor<'_>) -> Option<Option<TokenUsage>> {
    if value.peek()? != b'{' {
        return value.skip().map(|()| None);
    }
    let (mut usage, mut written, mut hour) = (TokenUsage::default(), 0, 0);
    value.object(|name, value| match name {
        b"input_tokens" => count(value).map(|told| usage.input_tokens = told),
        b"output_tokens" => count(value).map(|told| usage.output_tokens = told),
        b"cache_read_input_tokens" => count(value).map(|told| usage.cache_read_tokens = told),
        b"cache_creation_input_tokens" => count(value).map(|told| written = told),
        b"cache_creation" if value.peek()? == b'{' => value.object(|name, value| match name {
            b"ephemeral_1h_input_tokens" => count(value).map(|told| hour = told),
            _ => value.skip(),
        }),
        _ => value.skip(),
    })?;
    usage.cache_write_1h_tokens = hour.min(written);
    usage.cache_write_5m_tokens = written - usage.cache_write_1h_tokens;
    Some(Some(usage))
}

/// A value that is not a whole number is ignored.
fn count(value: &mut JsonCursor<'_>) -> Option<u64> {
    if matches!(value.peek()?, b'"' | b'{' | b'[') {
        return value.skip().map(|()| 0);
    }
    let digits = std::str::from_utf8(value.scalar()?).ok()?;
    Some(digits.parse().unwrap_or(0))
}
