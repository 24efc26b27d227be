//! The contents of the log: events in streams, packed in chunks.
//!
//! A chunk holds the events of one stream that were committed together, in the database's text
//! form: one line `AT KIND DATA` each. Readers walk the lines without allocating, so a replay of
//! the log and a live reader see the same bytes.

use std::fmt;
use std::fmt::Write as _;
use std::sync::Arc;

use serde::Serialize;

use crate::time::Timestamp;

/// The position of an event in its stream: 1, 2, 3 … A cursor of 0 is before the first event.
pub type Seq = u64;

/// The name of a stream, such as `run/run_0198…`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(Arc<str>);

impl StreamId {
    pub fn new(name: impl AsRef<str>) -> Self {
        Self(Arc::from(name.as_ref()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An event that is not committed yet. It has neither number nor time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    kind: &'static str,
    data: String,
}

impl NewEvent {
    /// `kind` is lower-case text without spaces; `data` becomes one line of JSON.
    ///
    /// # Panics
    /// In debug builds, if `kind` would not be readable on the line.
    pub fn new(kind: &'static str, data: &impl Serialize) -> Result<Self, serde_json::Error> {
        debug_assert!(kind.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{kind:?}");
        Ok(Self { kind, data: serde_json::to_string(data)? })
    }

    /// For JSON values, which can always be printed.
    pub fn from_value(kind: &'static str, data: &serde_json::Value) -> Self {
        debug_assert!(kind.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{kind:?}");
        // `serde_json` directly, because `Value::to_string` goes through the slower formatter.
        Self { kind, data: serde_json::to_string(data).unwrap_or_else(|_| data.to_string()) }
    }

    pub fn kind(&self) -> &'static str {
        self.kind
    }

    pub fn data(&self) -> &str {
        &self.data
    }

    /// The bytes of this event in a chunk, for bounding batches.
    pub fn size(&self) -> usize {
        self.kind.len() + self.data.len() + 16
    }
}

/// A committed event, borrowed from its chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventRef<'a> {
    pub seq: Seq,
    pub at: Timestamp,
    pub kind: &'a str,
    /// One line of JSON.
    pub data: &'a str,
}

/// Committed events of one stream with consecutive numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    first_seq: Seq,
    last_seq: Seq,
    body: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the log holds a damaged chunk at seq {first_seq}: run `shikiri db check`")]
pub struct DamagedChunk {
    first_seq: Seq,
}

impl Chunk {
    /// Reads a chunk from the database and checks it against the numbers of its row.
    pub fn from_stored(first_seq: Seq, last_seq: Seq, body: String) -> Result<Self, DamagedChunk> {
        let chunk = Self { first_seq, last_seq, body: Arc::from(body) };
        let lines = chunk.body.bytes().filter(|b| *b == b'\n').count() as u64;
        let expected = last_seq.checked_sub(first_seq).map(|n| n + 1);
        if expected == Some(lines) && chunk.events().count() as u64 == lines {
            Ok(chunk)
        } else {
            Err(DamagedChunk { first_seq })
        }
    }

    pub fn first_seq(&self) -> Seq {
        self.first_seq
    }

    pub fn last_seq(&self) -> Seq {
        self.last_seq
    }

    /// The stored text.
    pub fn body(&self) -> &str {
        &self.body
    }

    pub fn events(&self) -> impl Iterator<Item = EventRef<'_>> {
        self.body.split_terminator('\n').zip(self.first_seq..).filter_map(|(line, seq)| {
            let (at, rest) = line.split_once(' ')?;
            let (kind, data) = rest.split_once(' ')?;
            Some(EventRef { seq, at: Timestamp::from_millis(at.parse().ok()?), kind, data })
        })
    }

    pub fn events_after(&self, cursor: Seq) -> impl Iterator<Item = EventRef<'_>> {
        self.events().filter(move |event| event.seq > cursor)
    }
}

/// Packs events as they are committed.
#[derive(Debug, Default)]
pub struct ChunkBuilder {
    body: String,
    count: u64,
}

impl ChunkBuilder {
    pub fn push(&mut self, at: Timestamp, event: &NewEvent) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.body, "{} {} {}", at.as_millis(), event.kind, event.data);
        self.count += 1;
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn size(&self) -> usize {
        self.body.len()
    }

    /// The chunk, if anything was pushed.
    pub fn finish(self, first_seq: Seq) -> Option<Chunk> {
        let last_seq = (first_seq + self.count).checked_sub(1)?;
        (self.count > 0).then(|| Chunk { first_seq, last_seq, body: Arc::from(self.body) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn chunk() -> Chunk {
        let mut builder = ChunkBuilder::default();
        let at = Timestamp::from_millis(1_000);
        builder.push(at, &NewEvent::from_value("log", &json!({"message": "一\n二 三"})));
        builder.push(at, &NewEvent::from_value("progress", &json!({})));
        builder.finish(5).unwrap()
    }

    #[test]
    fn what_was_packed_is_read_back_from_its_stored_form() {
        let chunk = chunk();
        let stored = Chunk::from_stored(5, 6, chunk.body().to_owned()).unwrap();
        assert_eq!(stored, chunk);
        let events: Vec<_> = stored.events().map(|e| (e.seq, e.kind, e.data)).collect();
        assert_eq!(events, [(5, "log", r#"{"message":"一\n二 三"}"#), (6, "progress", "{}")]);
        assert_eq!(stored.events_after(5).count(), 1);
    }

    #[test]
    fn a_chunk_that_lost_a_line_is_reported() {
        let body = chunk().body().to_owned();
        assert!(Chunk::from_stored(5, 7, body.clone()).is_err());
        assert!(Chunk::from_stored(6, 5, body).is_err());
        assert!(Chunk::from_stored(1, 1, "nonsense\n".to_owned()).is_err());
    }
}
