//! Reads a streamed message within limits of time and size.

use std::time::Duration;

use shikiri_client::SseParser;
use shikiri_model::execution::TokenUsage;
use tokio::time::{Instant, timeout_at};

use super::aws_event_stream::AwsFrameDecoder;
use super::message_assembler::{MessageAssembler, ModelStreamUpdate};
use super::messages_client::MessagesClient;
use super::model_api_error::ModelApiError;

/// The largest event.
pub(super) const MAX_EVENT: usize = 4 * 1024 * 1024;
/// The largest stream: a message has far less.
const MAX_STREAM: usize = 64 * 1024 * 1024;
/// The longest time without an event other than a ping.
const IDLE: Duration = Duration::from_secs(120);

pub struct ModelMessageStream {
    client: MessagesClient,
    answer: reqwest::Response,
    decoder: ModelStreamDecoder,
    message: MessageAssembler,
    bytes: usize,
    idle_limit: Duration,
    deadline: Instant,
}

enum ModelStreamDecoder {
    Events(SseParser),
    Frames(AwsFrameDecoder),
}

impl ModelMessageStream {
    pub(super) fn new(client: MessagesClient, answer: reqwest::Response, is_framed: bool) -> Self {
        let decoder = match is_framed {
            true => ModelStreamDecoder::Frames(AwsFrameDecoder::default()),
            false => ModelStreamDecoder::Events(SseParser::new(MAX_EVENT)),
        };
        Self {
            client,
            answer,
            decoder,
            message: MessageAssembler::default(),
            bytes: 0,
            idle_limit: IDLE,
            deadline: Instant::now() + IDLE,
        }
    }

    /// With another limit on the time without events.
    #[must_use]
    pub fn with_idle_timeout(mut self, idle_limit: Duration) -> Self {
        (self.idle_limit, self.deadline) = (idle_limit, Instant::now() + idle_limit);
        self
    }

    /// The next update. The last one is the whole message.
    pub async fn next(&mut self) -> Result<ModelStreamUpdate, ModelApiError> {
        loop {
            let Some(data) =
                self.decoder.next().map_err(|failure| self.client.sanitize_error(failure))?
            else {
                self.read().await?;
                continue;
            };
            let event_count = self.message.event_count;
            let update = self.message.take(&data);
            if self.message.event_count > event_count {
                self.deadline = Instant::now() + self.idle_limit;
            }
            if let Some(update) = update.map_err(|failure| self.client.sanitize_error(failure))? {
                return Ok(update);
            }
        }
    }

    /// The usage so far.
    pub fn usage(&self) -> TokenUsage {
        self.message.usage()
    }

    async fn read(&mut self) -> Result<(), ModelApiError> {
        let chunk = timeout_at(self.deadline, self.answer.chunk()).await;
        let chunk = chunk.map_err(|_| ModelApiError::TimedOut)?;
        let Some(chunk) = chunk.map_err(|error| self.client.unreachable(error))? else {
            let (kind, message) = ("cut_off".to_owned(), "the stream ended early".to_owned());
            return Err(ModelApiError::BrokenOff { kind, message });
        };
        self.bytes += chunk.len();
        if self.bytes > MAX_STREAM {
            return Err(ModelApiError::TooLarge(MAX_STREAM));
        }
        match &mut self.decoder {
            ModelStreamDecoder::Events(events) => events.push(&chunk),
            ModelStreamDecoder::Frames(frames) => frames.push(&chunk),
        }
        Ok(())
    }
}

impl ModelStreamDecoder {
    /// The data of the next event; None until more has come.
    fn next(&mut self) -> Result<Option<Vec<u8>>, ModelApiError> {
        match self {
            Self::Frames(frames) => frames.next(),
            Self::Events(events) => loop {
                let event = events.next_event();
                let event = event.map_err(|error| ModelApiError::TooLarge(error.max_bytes))?;
                match event {
                    // The event's name says nothing that the data does not.
                    Some(event) if !event.data.is_empty() => return Ok(Some(event.data.into())),
                    Some(_) => {}
                    None => return Ok(None),
                }
            },
        }
    }
}
