//! Reads an event stream (`text/event-stream`) frame by frame.

use std::io;
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;

/// The server sends a comment every 10 seconds: longer silence means that it is gone.
const SILENCE: Duration = Duration::from_secs(30);
const MAX_FRAME: usize = 16 * 1024 * 1024;

/// One event, as it came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// The number of the event, where ids are numbers of events.
    pub id: u64,
    /// The id as it came.
    pub id_text: String,
    pub event: String,
    pub data: String,
}

pub struct EventStream {
    body: Incoming,
    buffer: Buffer,
}

impl EventStream {
    pub fn new(body: Incoming) -> Self {
        Self { body, buffer: Buffer::default() }
    }

    /// The next event; None once the server has ended the stream.
    pub async fn next(&mut self) -> io::Result<Option<Frame>> {
        loop {
            if let Some(frame) = self.buffer.take_frame()? {
                return Ok(Some(frame));
            }
            let part = tokio::time::timeout(SILENCE, self.body.frame()).await?;
            let Some(part) = part else { return Ok(None) };
            if let Ok(data) = part.map_err(io::Error::other)?.into_data() {
                self.buffer.push(&data)?;
            }
        }
    }
}

/// Bytes that are not a whole frame yet.
#[derive(Default)]
struct Buffer(Vec<u8>);

impl Buffer {
    fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.0.len() + bytes.len() > MAX_FRAME {
            return Err(io::Error::other("the server sent an event that is too large"));
        }
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    /// The next frame that carries an event; comments and settings are passed over.
    fn take_frame(&mut self) -> io::Result<Option<Frame>> {
        while let Some(end) = self.0.windows(2).position(|pair| pair == b"\n\n") {
            let block: Vec<u8> = self.0.drain(..end + 2).collect();
            let text = String::from_utf8(block).map_err(io::Error::other)?;
            if let Some(frame) = parse(&text) {
                return Ok(Some(frame));
            }
        }
        Ok(None)
    }
}

fn parse(block: &str) -> Option<Frame> {
    let mut frame = Frame::default();
    let mut data: Option<String> = None;
    for line in block.lines() {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => {
                frame.id = value.parse().unwrap_or(0);
                value.clone_into(&mut frame.id_text);
            }
            "event" => value.clone_into(&mut frame.event),
            "data" => match &mut data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => data = Some(value.to_owned()),
            },
            _ => {}
        }
    }
    frame.data = data?;
    Some(frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(id: u64, event: &str, data: &str) -> Frame {
        Frame { id, id_text: id.to_string(), event: event.to_owned(), data: data.to_owned() }
    }

    #[test]
    fn frames_are_found_however_the_bytes_are_cut() {
        let stream = "retry: 1000\n\nid: 1\nevent: log\ndata: {\"a\":\"é\"}\n\n: still here\n\n\
                      id: 2\nevent: result\ndata: 1\ndata: 2\n\n";
        let expected = [frame(1, "log", "{\"a\":\"é\"}"), frame(2, "result", "1\n2")];
        for size in 1..stream.len() {
            let (mut buffer, mut frames) = (Buffer::default(), Vec::new());
            for part in stream.as_bytes().chunks(size) {
                buffer.push(part).unwrap();
                while let Some(frame) = buffer.take_frame().unwrap() {
                    frames.push(frame);
                }
            }
            assert_eq!(frames, expected, "in parts of {size}");
        }
    }
}
