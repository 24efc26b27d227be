//! A reader of Server-Sent Events that behaves like a browser: it remembers the last id, and
//! resumes after it when the stream was cut. Its output is exact to the byte.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;

use crate::client::Client;
use crate::history::Seen;

/// One dispatched event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The id of the frame itself.
    pub id: Option<String>,
    pub event: String,
    pub data: Vec<u8>,
}

/// What a reader does if a stream ends without a terminal event.
#[derive(Clone, Copy, Debug)]
pub enum Cut {
    /// Ends too.
    End,
    /// Connects again after the pause, with `Last-Event-ID`.
    Resume(Duration),
}

/// Follows one stream.
pub struct Reader {
    client: Client,
    path: String,
    cut: Cut,
    last_id: Option<String>,
    terminal: bool,
    connections: u32,
    open: Option<Open>,
}

struct Open {
    bytes: BoxStream<'static, reqwest::Result<Vec<u8>>>,
    parser: Parser,
    ready: std::collections::VecDeque<Frame>,
}

impl Frame {
    pub fn seq(&self) -> Option<u64> {
        self.id.as_ref()?.parse().ok()
    }

    /// For the history checker.
    #[track_caller]
    pub fn seen(&self) -> Seen {
        let seq = self.seq().unwrap_or_else(|| panic!("an event without a number: {self:?}"));
        Seen::new(seq, &self.event, &self.data)
    }

    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.data).unwrap_or_else(|e| panic!("not JSON ({e}): {self:?}"))
    }

    /// Whether no event follows this one.
    pub fn is_terminal(&self) -> bool {
        matches!(self.event.as_str(), "result" | "error")
    }
}

impl Reader {
    /// Connects at the first `next`.
    pub fn new(client: &Client, path: &str, cut: Cut) -> Self {
        let (client, path) = (client.clone(), path.to_owned());
        Self { client, path, cut, last_id: None, terminal: false, connections: 0, open: None }
    }

    /// Starts after this event.
    #[must_use]
    pub fn after(mut self, last_id: impl ToString) -> Self {
        self.last_id = Some(last_id.to_string());
        self
    }

    pub fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }

    /// The number of connections so far.
    pub fn connections(&self) -> u32 {
        self.connections
    }

    /// Whether the terminal event has arrived.
    pub fn is_done(&self) -> bool {
        self.terminal
    }

    /// Drops the connection; the next `next` connects again.
    pub fn drop_connection(&mut self) {
        self.open = None;
    }

    /// The next event; None after the terminal one, or where a reader that does not resume was cut.
    pub async fn next(&mut self) -> Option<Frame> {
        loop {
            if self.terminal {
                return None;
            }
            if self.open.is_none() && !self.connect().await {
                continue;
            }
            match self.read().await {
                Some(frame) => return Some(frame),
                None => match self.cut {
                    Cut::End => return None,
                    Cut::Resume(pause) => tokio::time::sleep(pause).await,
                },
            }
        }
    }

    /// All events up to the end.
    pub async fn rest(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            frames.push(frame);
        }
        frames
    }

    /// Opens the stream if it is not open. A reader that resumes returns false if that was
    /// impossible this time; any other fails the test.
    pub async fn connect(&mut self) -> bool {
        let request = self.client.request(reqwest::Method::GET, &self.path);
        let request = request.header("accept", "text/event-stream");
        let request = match &self.last_id {
            Some(id) => request.header("last-event-id", id),
            None => request,
        };
        let refused = match request.send().await {
            Ok(response) if response.status() == 200 => {
                let bytes = response.bytes_stream().map(|part| part.map(|bytes| bytes.to_vec()));
                let (parser, ready) = (Parser::default(), Default::default());
                self.open = Some(Open { bytes: bytes.boxed(), parser, ready });
                self.connections += 1;
                return true;
            }
            Ok(response) => {
                let status = response.status().as_u16();
                let passing = matches!(status, 429 | 503);
                (passing, format!("{status} {}", response.text().await.unwrap_or_default()))
            }
            Err(error) => (true, format!("{error:?}")),
        };
        match (self.cut, refused) {
            (Cut::Resume(pause), (true, _)) => tokio::time::sleep(pause).await,
            (_, (_, why)) => panic!("cannot read {} after {:?}: {why}", self.path, self.last_id),
        }
        false
    }

    /// The next event of this connection; None when it has ended.
    async fn read(&mut self) -> Option<Frame> {
        let open = self.open.as_mut()?;
        loop {
            if let Some(frame) = open.ready.pop_front() {
                if frame.id.is_some() {
                    self.last_id.clone_from(&frame.id);
                }
                self.terminal |= frame.is_terminal();
                return Some(frame);
            }
            match open.bytes.next().await {
                Some(Ok(bytes)) => open.ready.extend(open.parser.push(&bytes)),
                // A frame that was cut in the middle does not count as seen.
                Some(Err(_)) | None => {
                    self.open = None;
                    return None;
                }
            }
        }
    }
}

/// The events of a completely read stream.
pub fn read_frames(stream: &[u8]) -> Vec<Frame> {
    Parser::default().push(stream)
}

/// The wire format of the HTML standard.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    line: Vec<u8>,
    after_return: bool,
    id: Option<String>,
    event: String,
    data: Option<Vec<u8>>,
}

impl Parser {
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<Frame> {
        let mut frames = Vec::new();
        for byte in bytes {
            let after_return = std::mem::replace(&mut self.after_return, *byte == b'\r');
            match byte {
                b'\n' if after_return => {}
                b'\n' | b'\r' => frames.extend(self.end_line()),
                other => self.line.push(*other),
            }
        }
        frames
    }

    fn end_line(&mut self) -> Option<Frame> {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            let (id, event) = (self.id.take(), std::mem::take(&mut self.event));
            return self.data.take().map(|data| Frame { id, event, data });
        }
        let colon = line.iter().position(|b| *b == b':').unwrap_or(line.len());
        let value = line.get(colon + 1..).unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match &line[..colon] {
            b"id" => self.id = Some(String::from_utf8_lossy(value).into_owned()),
            b"event" => self.event = String::from_utf8_lossy(value).into_owned(),
            b"data" => match &mut self.data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend(value);
                }
                None => self.data = Some(value.to_vec()),
            },
            // `retry`, comments and unknown fields.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(id: Option<&str>, event: &str, data: &str) -> Frame {
        Frame { id: id.map(str::to_owned), event: event.to_owned(), data: data.into() }
    }

    #[test]
    fn frames_are_read_alike_wherever_the_network_cuts_them() {
        let wire = "retry: 1000\n\n: hello\n\nid: 1\nevent: log\ndata: {\"a\": 1}\n\n\
                    id:2\r\ndata:x\r\ndata: y\r\n\r\nevent: 終\rdata:  z\r\rid: 9\nevent: cut\n";
        let expected = [
            frame(Some("1"), "log", "{\"a\": 1}"),
            frame(Some("2"), "", "x\ny"),
            frame(None, "終", " z"),
        ];
        for at in 0..wire.len() {
            let mut parser = Parser::default();
            let mut frames = parser.push(&wire.as_bytes()[..at]);
            frames.extend(parser.push(&wire.as_bytes()[at..]));
            assert_eq!(frames, expected, "cut at {at}");
        }
    }
}
