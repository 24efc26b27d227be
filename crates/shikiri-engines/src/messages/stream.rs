//! A message as it arrives, within bounds of time and size.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::assemble::{Assembler, News};
use super::client::Client;
use super::failure::Failure;
use super::frames::Frames;
use super::sse::Events;
use shikiri_model::execution::Usage;

/// The largest event.
pub(super) const MAX_EVENT: usize = 4 * 1024 * 1024;
/// The largest stream: a message has far less.
const MAX_STREAM: usize = 64 * 1024 * 1024;
/// Between two events that say something: an API that only says that it is alive is not.
const IDLE: Duration = Duration::from_secs(120);

pub struct Streaming {
    client: Client,
    answer: reqwest::Response,
    decoder: Decoder,
    message: Assembler,
    bytes: usize,
    /// When something must have been said.
    patience: Duration,
    deadline: Instant,
}

enum Decoder {
    Events(Events),
    Frames(Frames),
}

impl Streaming {
    pub(super) fn new(client: Client, answer: reqwest::Response, is_framed: bool) -> Self {
        let decoder = match is_framed {
            true => Decoder::Frames(Frames::default()),
            false => Decoder::Events(Events::default()),
        };
        Self {
            client,
            answer,
            decoder,
            message: Assembler::default(),
            bytes: 0,
            patience: IDLE,
            deadline: Instant::now() + IDLE,
        }
    }

    /// With another bound on how long nothing may be said.
    #[must_use]
    pub fn patient_for(mut self, patience: Duration) -> Self {
        (self.patience, self.deadline) = (patience, Instant::now() + patience);
        self
    }

    /// The next news; the last is the whole message.
    pub async fn next(&mut self) -> Result<News, Failure> {
        loop {
            let event = match &mut self.decoder {
                Decoder::Events(events) => events.next(),
                Decoder::Frames(frames) => frames.next(),
            };
            let Some(data) = event.map_err(|failure| self.client.cleaned(failure))? else {
                self.read().await?;
                continue;
            };
            let said = self.message.said;
            let news = self.message.take(&data);
            if self.message.said > said {
                self.deadline = Instant::now() + self.patience;
            }
            if let Some(news) = news.map_err(|failure| self.client.cleaned(failure))? {
                return Ok(news);
            }
        }
    }

    /// What was told of tokens so far.
    pub fn usage(&self) -> Usage {
        self.message.usage()
    }

    async fn read(&mut self) -> Result<(), Failure> {
        let chunk = timeout_at(self.deadline, self.answer.chunk()).await;
        let chunk = chunk.map_err(|_| Failure::TimedOut)?;
        let Some(chunk) = chunk.map_err(|error| self.client.unreachable(error))? else {
            let (kind, message) = ("cut_off".to_owned(), "the stream ended early".to_owned());
            return Err(Failure::BrokenOff { kind, message });
        };
        self.bytes += chunk.len();
        if self.bytes > MAX_STREAM {
            return Err(Failure::TooLarge(MAX_STREAM));
        }
        match &mut self.decoder {
            Decoder::Events(events) => events.push(&chunk),
            Decoder::Frames(frames) => frames.push(&chunk),
        }
        Ok(())
    }
}
