//! Server-Sent Events, as far as the API uses them: the data of each, within bounds.

use super::failure::Failure;
use super::stream::MAX_EVENT;

/// Puts events together from whatever pieces the network gives.
#[derive(Debug, Default)]
pub(super) struct Events {
    buffer: Vec<u8>,
    /// Where the next line starts.
    start: usize,
    /// How far it was looked for a line's end.
    seen: usize,
    data: Vec<u8>,
}

impl Events {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            (self.seen, self.start) = (self.seen - self.start, 0);
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The data of the next whole event; None until more has come.
    pub(super) fn next(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        while let Some(line) = self.line()? {
            if line.is_empty() {
                if !self.data.is_empty() {
                    return Ok(Some(std::mem::take(&mut self.data)));
                }
                continue;
            }
            // All else (the event's name, comments) says nothing that the data does not.
            let Some(value) = line.strip_prefix(b"data:") else { continue };
            if !self.data.is_empty() {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
            if self.data.len() > MAX_EVENT {
                return Err(Failure::TooLarge(MAX_EVENT));
            }
        }
        Ok(None)
    }

    fn line(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        let end = self.buffer[self.seen..].iter().position(|byte| *byte == b'\n');
        let Some(end) = end.map(|end| self.seen + end) else {
            self.seen = self.buffer.len();
            if self.seen - self.start > MAX_EVENT {
                return Err(Failure::TooLarge(MAX_EVENT));
            }
            return Ok(None);
        };
        let line = &self.buffer[self.start..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line).to_vec();
        (self.start, self.seen) = (end + 1, end + 1);
        Ok(Some(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(pieces: &[&[u8]]) -> Vec<String> {
        let (mut events, mut found) = (Events::default(), Vec::new());
        for piece in pieces {
            events.push(piece);
            while let Some(data) = events.next().unwrap() {
                found.push(String::from_utf8(data).unwrap());
            }
        }
        found
    }

    #[test]
    fn however_a_stream_is_cut_its_events_are_the_same() {
        let text =
            "event: a\r\ndata: {\"木\":1}\r\n\r\n: note\n\ndata:x\ndata: y\n\nid: 7\n\ndata: z\n\n";
        let whole = all(&[text.as_bytes()]);
        assert_eq!(whole, ["{\"木\":1}", "x\ny", "z"]);
        for cut in 0..text.len() {
            let (first, second) = text.as_bytes().split_at(cut);
            assert_eq!(all(&[first, second]), whole, "{cut}");
        }
        let bytes: Vec<_> = text.as_bytes().chunks(1).collect();
        assert_eq!(all(&bytes), whole);
        assert!(all(&[b"data: unfinished\n"]).is_empty());
    }

    #[test]
    fn an_event_without_an_end_is_not_kept_for_ever() {
        for piece in [&b"x"[..], b"data: x\n"] {
            let mut events = Events::default();
            let many = piece.repeat(64 * 1024);
            let failed = (0..1_000).find_map(|_| {
                events.push(&many);
                events.next().err()
            });
            assert_eq!(failed, Some(Failure::TooLarge(MAX_EVENT)));
        }
    }
}
