//! Reads one SSE answer to its end and sees that nothing of it is missing.

use anyhow::{Context, Result, ensure};

use crate::machine::monotonic_ns;
use crate::sse::http::Connection;

/// What came, and when.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// Of the first event, in nanoseconds.
    pub(super) first: u64,
    pub(super) ended: u64,
    /// Numbers that were left out.
    pub(super) lost: u64,
    /// The last event's.
    pub(super) seq: u64,
    pub(super) kind: String,
    pub(super) data: String,
    /// How old each text was that tells its time, in nanoseconds.
    pub(super) ages: Vec<u64>,
    /// When the first such text was written.
    pub(super) written: Option<u64>,
    line: Vec<u8>,
}

/// How a text tells when it was written.
const TIMED: &str = "\"text\":\"at ";

impl Stream {
    /// The whole answer; its head has been read.
    pub(super) async fn read(connection: &mut Connection) -> Result<Self> {
        let mut stream = Self::default();
        while let Some(chunk) = connection.chunk().await? {
            let now = monotonic_ns();
            for byte in chunk {
                match byte {
                    b'\n' => stream.take_line(now)?,
                    byte => stream.line.push(byte),
                }
            }
        }
        stream.ended = monotonic_ns();
        ensure!(stream.seq > 0, "a stream without events");
        Ok(stream)
    }

    fn take_line(&mut self, now: u64) -> Result<()> {
        let bytes = std::mem::take(&mut self.line);
        let line = std::str::from_utf8(&bytes).context("no text")?;
        if let Some(seq) = line.strip_prefix("id: ") {
            let seq: u64 = seq.parse().context("an event's number")?;
            ensure!(seq > self.seq, "{seq} came after {}", self.seq);
            self.lost += seq - self.seq - 1;
            if self.seq == 0 {
                self.first = now;
            }
            self.seq = seq;
        } else if let Some(kind) = line.strip_prefix("event: ") {
            kind.clone_into(&mut self.kind);
        } else if let Some(data) = line.strip_prefix("data: ") {
            data.clone_into(&mut self.data);
            let written = time_of(data)?;
            self.written = self.written.or(written);
            self.ages.extend(written.map(|time| now.saturating_sub(time)));
        }
        Ok(())
    }
}

fn time_of(data: &str) -> Result<Option<u64>> {
    let Some((_, time)) = data.split_once(TIMED) else { return Ok(None) };
    let digits = time.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
    Ok(Some(digits.parse().context("a time")?))
}
