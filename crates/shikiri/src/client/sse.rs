//! The event streams of our own server.

use std::io;
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use shikiri_client::{SseEvent, SseParser};

/// The server sends a comment every 10 seconds, so a longer silence means that it is gone.
const SILENCE: Duration = Duration::from_secs(30);
const MAX_FRAME: usize = 16 * 1024 * 1024;

/// One event as received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// The event's number, if its id is a number.
    pub id: u64,
    /// The id as received.
    pub id_text: String,
    pub event: String,
    pub data: String,
}

pub struct EventStream {
    body: Incoming,
    parser: SseParser,
}

impl EventStream {
    pub fn new(body: Incoming) -> Self {
        Self { body, parser: SseParser::new(MAX_FRAME) }
    }

    /// The next event that has data; None once the server has ended the stream.
    pub async fn next(&mut self) -> io::Result<Option<Frame>> {
        loop {
            if let Some(event) = self.parser.next_event().map_err(io::Error::other)? {
                if !event.data.is_empty() {
                    return Ok(Some(Frame::from(event)));
                }
                continue;
            }
            let part = tokio::time::timeout(SILENCE, self.body.frame()).await?;
            let Some(part) = part else { return Ok(None) };
            if let Ok(data) = part.map_err(io::Error::other)?.into_data() {
                self.parser.push(&data);
            }
        }
    }
}

impl From<SseEvent> for Frame {
    fn from(event: SseEvent) -> Self {
        let id_text = event.id.unwrap_or_default();
        Self { id: id_text.parse().unwrap_or(0), id_text, event: event.name, data: event.data }
    }
}
