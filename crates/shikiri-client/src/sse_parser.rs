//! Parses server-sent events from bytes in chunks of any size. Pure: the caller reads the bytes.

use bytes::{Buf as _, BytesMut};

/// One event. A field that the stream does not give is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SseEvent {
    pub id: Option<String>,
    pub name: String,
    pub data: String,
    pub retry_ms: Option<u64>,
}

/// An event is larger than the parser's bound, or does not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event of more than {} MiB", .max_bytes / 1024 / 1024)]
pub struct SseEventTooLarge {
    pub max_bytes: usize,
}

#[derive(Debug)]
pub struct SseParser {
    buffer: BytesMut,
    /// The length of the buffer's start that is known to hold no line break.
    searched: usize,
    event: SseEvent,
    is_first: bool,
    max_bytes: usize,
}

impl SseParser {
    /// `max_bytes` bounds the stored part of one event.
    pub fn new(max_bytes: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            searched: 0,
            event: SseEvent::default(),
            is_first: true,
            max_bytes,
        }
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole event that has data, an id or a retry time; None until more bytes are pushed.
    pub fn next_event(&mut self) -> Result<Option<SseEvent>, SseEventTooLarge> {
        while let Some(line) = self.take_line()? {
            if !line.is_empty() {
                self.read_field(&line);
                continue;
            }
            let event = std::mem::take(&mut self.event);
            if event.id.is_some() || event.retry_ms.is_some() || !event.data.is_empty() {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    /// A whole line, without its end.
    fn take_line(&mut self) -> Result<Option<String>, SseEventTooLarge> {
        let unsearched = &self.buffer[self.searched..];
        let Some(at) = unsearched.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else {
            self.searched = self.buffer.len();
            if self.searched + self.event.data.len() > self.max_bytes {
                return Err(SseEventTooLarge { max_bytes: self.max_bytes });
            }
            return Ok(None);
        };
        let end = self.searched + at;
        // A line may end with both characters. Wait until the second one can be seen.
        if self.buffer[end] == b'\r' && end + 1 == self.buffer.len() {
            self.searched = end;
            return Ok(None);
        }
        let has_both = self.buffer[end] == b'\r' && self.buffer[end + 1] == b'\n';
        let line = self.buffer.split_to(end);
        self.buffer.advance(if has_both { 2 } else { 1 });
        self.searched = 0;
        let text = String::from_utf8_lossy(&line).into_owned();
        Ok(Some(match std::mem::take(&mut self.is_first) {
            true => text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text),
            false => text,
        }))
    }

    fn read_field(&mut self, line: &str) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "event" => self.event.name = value.to_owned(),
            "data" => {
                if !self.event.data.is_empty() {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            "id" if !value.contains('\0') => self.event.id = Some(value.to_owned()),
            "retry" => self.event.retry_ms = value.parse().ok(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: usize = 1024 * 1024;

    fn parse<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Vec<SseEvent> {
        let (mut parser, mut events) = (SseParser::new(BOUND), Vec::new());
        for part in parts {
            parser.push(part);
            while let Some(event) = parser.next_event().unwrap() {
                events.push(event);
            }
        }
        events
    }

    fn event(id: Option<&str>, name: &str, data: &str, retry_ms: Option<u64>) -> SseEvent {
        let id = id.map(str::to_owned);
        SseEvent { id, name: name.to_owned(), data: data.to_owned(), retry_ms }
    }

    #[test]
    fn events_come_out_whole_however_the_bytes_are_cut() {
        let text = "\u{feff}: hello\nid: a\nretry: 5\ndata:\n\nevent: message\r\nid: b\r\n\
                    data: {\"鍵\":\r\ndata: 1}\r\n\r\n:ping\n\nevent: alone\n\ndata:c\r\rid: 7\n\n\
                    : note\ndata: torn";
        let expected = [
            event(Some("a"), "", "", Some(5)),
            event(Some("b"), "message", "{\"鍵\":\n1}", None),
            event(None, "", "c", None),
            event(Some("7"), "", "", None),
        ];
        assert_eq!(parse([text.as_bytes()]), expected);
        for at in 0..text.len() {
            let (first, second) = text.as_bytes().split_at(at);
            assert_eq!(parse([first, second]), expected, "cut at {at}");
        }
        for size in 1..8 {
            assert_eq!(parse(text.as_bytes().chunks(size)), expected, "in parts of {size}");
        }
    }

    #[test]
    fn an_event_that_is_too_large_or_has_no_end_is_an_error() {
        for piece in [&b"x"[..], b"data: x\n"] {
            let mut parser = SseParser::new(BOUND);
            let part = piece.repeat(64 * 1024);
            let failed = (0..100).find_map(|_| {
                parser.push(&part);
                parser.next_event().err()
            });
            let expected = SseEventTooLarge { max_bytes: BOUND };
            assert_eq!(failed, Some(expected), "{:?}", piece.len());
            assert_eq!(expected.to_string(), "an event of more than 1 MiB");
        }
        let mut parser = SseParser::new(BOUND);
        parser.push(format!("data: {}\n\n", "x".repeat(BOUND - 6)).as_bytes());
        assert!(parser.next_event().unwrap().is_some());
    }
}
