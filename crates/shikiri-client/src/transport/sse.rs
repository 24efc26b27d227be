//! The event stream of a response.

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;

use super::MAX_MESSAGE;
use crate::error::ClientError;
use crate::http_setup::describe_http_error;
use crate::sse_parser::{SseEvent, SseParser};

pub(crate) struct SseEventStream {
    bytes: BoxStream<'static, Result<bytes::Bytes, reqwest::Error>>,
    parser: SseParser,
}

impl SseEventStream {
    pub(crate) fn new(response: reqwest::Response) -> Self {
        Self { bytes: response.bytes_stream().boxed(), parser: SseParser::new(MAX_MESSAGE) }
    }

    /// The next event; None at the end. May be dropped while it waits: received data is kept.
    pub(crate) async fn next(&mut self) -> Result<Option<SseEvent>, ClientError> {
        loop {
            let event = self.parser.next_event();
            if let Some(event) = event.map_err(|error| ClientError::Garbled(error.to_string()))? {
                return Ok(Some(event));
            }
            match self.bytes.next().await {
                Some(Ok(bytes)) => self.parser.push(&bytes),
                Some(Err(error)) => return Err(ClientError::Cut(describe_http_error(&error))),
                None => return Ok(None),
            }
        }
    }
}
