//! A request and all messages that belong to it, up to its answer.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::Value;

use crate::error::ClientError;
use crate::message_router::{RoutedMessage, RouterSubscription};
use crate::rpc_messages::ServerMessage;
use crate::sse_parser::SseEvent;
use crate::transport::sse::SseEventStream;

/// One received item.
#[derive(Debug)]
pub(crate) struct ExchangeItem {
    /// The position in the stream, if it can be resumed from there.
    pub(crate) cursor: Option<String>,
    /// The delay that the server requests before the stream is resumed.
    pub(crate) retry_ms: Option<u64>,
    pub(crate) message: Option<ServerMessage>,
}

pub(crate) struct RequestExchange {
    subscription: RouterSubscription,
    events: Option<SseEventStream>,
    ready: VecDeque<ServerMessage>,
    /// Whether `ready` holds all messages.
    is_whole: bool,
    /// A longer silence ends the exchange.
    silence_timeout: Option<Duration>,
}

impl RequestExchange {
    /// On a connection that several requests share.
    pub(crate) fn shared(subscription: RouterSubscription) -> Self {
        Self {
            subscription,
            events: None,
            ready: VecDeque::new(),
            is_whole: false,
            silence_timeout: None,
        }
    }

    /// With its own stream.
    pub(crate) fn streamed(subscription: RouterSubscription, events: SseEventStream) -> Self {
        Self {
            subscription,
            events: Some(events),
            ready: VecDeque::new(),
            is_whole: false,
            silence_timeout: None,
        }
    }

    /// Already answered by a document.
    pub(crate) fn from_document(subscription: RouterSubscription, document: Value) -> Self {
        let all = match document {
            Value::Array(all) => all,
            one => vec![one],
        };
        let ready = all.into_iter().filter_map(ServerMessage::parse).collect();
        Self { subscription, events: None, ready, is_whole: true, silence_timeout: None }
    }

    pub(crate) fn with_silence_timeout(self, silence_timeout: Duration) -> Self {
        Self { silence_timeout: Some(silence_timeout), ..self }
    }

    /// The next item, or why there are no more. May be dropped while it waits.
    pub(crate) async fn next(&mut self) -> Result<ExchangeItem, ClientError> {
        let Some(silence_timeout) = self.silence_timeout else { return self.receive().await };
        let received = tokio::time::timeout(silence_timeout, self.receive()).await;
        received.unwrap_or(Err(ClientError::Slow(silence_timeout.as_secs())))
    }

    async fn receive(&mut self) -> Result<ExchangeItem, ClientError> {
        if let Some(message) = self.ready.pop_front() {
            return Ok(message_item(message));
        }
        if self.is_whole {
            let said = "what it answered is no answer to what it was asked";
            return Err(ClientError::Garbled(said.to_owned()));
        }
        let Some(events) = self.events.as_mut() else {
            return from(self.subscription.next().await);
        };
        tokio::select! {
            event = events.next() => match event? {
                Some(event) => read(event),
                None => {
                    self.events = None;
                    Err(ClientError::Cut("the stream ended".to_owned()))
                }
            },
            inbound = self.subscription.next() => from(inbound),
        }
    }
}

fn message_item(message: ServerMessage) -> ExchangeItem {
    ExchangeItem { cursor: None, retry_ms: None, message: Some(message) }
}

fn from(inbound: RoutedMessage) -> Result<ExchangeItem, ClientError> {
    match inbound {
        RoutedMessage::Message(message) => Ok(message_item(message)),
        RoutedMessage::Gone(why) => Err(why),
    }
}

fn read(event: SseEvent) -> Result<ExchangeItem, ClientError> {
    let message = match event.data.is_empty() {
        true => None,
        false => {
            let parsed = serde_json::from_str(&event.data).ok().and_then(ServerMessage::parse);
            if parsed.is_none() {
                tracing::debug!(event.name, "an event that is no message");
            }
            parsed
        }
    };
    Ok(ExchangeItem { cursor: event.id, retry_ms: event.retry_ms, message })
}
