//! What a line says of an answer of the model.

use std::borrow::Cow;

use memchr::memmem::Finder;
use shikiri_model::execution::Usage;

use super::json::Cursor;
use super::lines::Block;

/// Claude Code's name for the model of messages that it made up itself, about failures.
const MADE_UP: &str = "<synthetic>";

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Answer<'a> {
    pub(super) id: Cow<'a, str>,
    pub(super) model: Cow<'a, str>,
    pub(super) usage: Usage,
}

/// Reads answers from lines: those that hold this.
pub(super) struct Answers(Finder<'static>);

impl Answers {
    pub(super) fn new() -> Self {
        Self(Finder::new(br#""assistant""#))
    }

    /// The lines of a block that may tell of one, the last one first.
    pub(super) fn lines<'a>(&self, block: &Block<'a>) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        block.holding(&self.0).into_iter().rev()
    }
}

impl<'a> Answer<'a> {
    /// Nothing if the line is of another kind, or broken, or about an answer that is known.
    pub(super) fn read(line: &'a [u8], known: impl Fn(&str) -> bool) -> Option<Self> {
        let mut cursor = Cursor::new(line);
        let (mut kind, mut message) = (None, Message::default());
        cursor.object(|name, value| match name {
            b"type" => text(value).map(|told| kind = told),
            b"message" => {
                message = Message::default();
                message.read(value, &known)
            }
            _ => value.skip(),
        })?;
        let (model, id) = (message.model?, message.id?);
        let is_answer = kind.as_deref() == Some("assistant") && model != MADE_UP;
        (is_answer && cursor.is_at_end()).then_some(Self { id, model, usage: message.usage? })
    }
}

#[derive(Default)]
struct Message<'a> {
    id: Option<Cow<'a, str>>,
    model: Option<Cow<'a, str>>,
    usage: Option<Usage>,
}

impl<'a> Message<'a> {
    fn read(&mut self, value: &mut Cursor<'a>, known: impl Fn(&str) -> bool) -> Option<()> {
        if value.peek()? != b'{' {
            return value.skip();
        }
        value.object(|name, value| match name {
            b"id" => {
                self.id = text(value)?;
                self.id.as_deref().is_none_or(|id| !known(id)).then_some(())
            }
            b"model" => text(value).map(|told| self.model = told),
            b"usage" => usage(value).map(|told| self.usage = told),
            _ => value.skip(),
        })
    }
}

/// The outer none is a broken line, the inner one something else than text.
fn text<'a>(value: &mut Cursor<'a>) -> Option<Option<Cow<'a, str>>> {
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

fn usage(value: &mut Cursor<'_>) -> Option<Option<Usage>> {
    if value.peek()? != b'{' {
        return value.skip().map(|()| None);
    }
    let (mut usage, mut written, mut hour) = (Usage::default(), 0, 0);
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

/// What is no whole number counts for nothing.
fn count(value: &mut Cursor<'_>) -> Option<u64> {
    if matches!(value.peek()?, b'"' | b'{' | b'[') {
        return value.skip().map(|()| 0);
    }
    let digits = std::str::from_utf8(value.scalar()?).ok()?;
    Some(digits.parse().unwrap_or(0))
}
