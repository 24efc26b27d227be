//! A request and everything that comes back because of it, up to its answer.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::Value;

use crate::error::ClientError;
use crate::link::sse::{Event, Events};
use crate::router::{Inbound, Place};
use crate::wire::Message;

/// One thing that came.
#[derive(Debug)]
pub(crate) struct Heard {
    /// Where the stream now is, if it can be read on from there.
    pub(crate) cursor: Option<String>,
    /// How long the server wants us to wait before we do.
    pub(crate) retry_ms: Option<u64>,
    pub(crate) message: Option<Message>,
}

pub(crate) struct Exchange {
    place: Place,
    events: Option<Events>,
    ready: VecDeque<Message>,
    /// Whether nothing comes but what is ready.
    is_whole: bool,
    /// Silence that is longer counts as its end.
    patience: Option<Duration>,
}

impl Exchange {
    /// On a line that others share.
    pub(crate) fn shared(place: Place) -> Self {
        Self { place, events: None, ready: VecDeque::new(), is_whole: false, patience: None }
    }

    /// With a stream of its own.
    pub(crate) fn streamed(place: Place, events: Events) -> Self {
        Self {
            place,
            events: Some(events),
            ready: VecDeque::new(),
            is_whole: false,
            patience: None,
        }
    }

    /// Answered already.
    pub(crate) fn answered(place: Place, document: Value) -> Self {
        let all = match document {
            Value::Array(all) => all,
            one => vec![one],
        };
        let ready = all.into_iter().filter_map(Message::parse).collect();
        Self { place, events: None, ready, is_whole: true, patience: None }
    }

    pub(crate) fn with_patience(self, patience: Duration) -> Self {
        Self { patience: Some(patience), ..self }
    }

    /// The next thing, or why nothing comes any more. May be dropped while it waits.
    pub(crate) async fn next(&mut self) -> Result<Heard, ClientError> {
        let Some(patience) = self.patience else { return self.hear().await };
        let heard = tokio::time::timeout(patience, self.hear()).await;
        heard.unwrap_or(Err(ClientError::Slow(patience.as_secs())))
    }

    async fn hear(&mut self) -> Result<Heard, ClientError> {
        if let Some(message) = self.ready.pop_front() {
            return Ok(heard(message));
        }
        if self.is_whole {
            let said = "what it answered is no answer to what it was asked";
            return Err(ClientError::Garbled(said.to_owned()));
        }
        let Some(events) = self.events.as_mut() else { return from(self.place.next().await) };
        tokio::select! {
            event = events.next() => match event? {
                Some(event) => read(event),
                None => {
                    self.events = None;
                    Err(ClientError::Cut("the stream ended".to_owned()))
                }
            },
            inbound = self.place.next() => from(inbound),
        }
    }
}

fn heard(message: Message) -> Heard {
    Heard { cursor: None, retry_ms: None, message: Some(message) }
}

fn from(inbound: Inbound) -> Result<Heard, ClientError> {
    match inbound {
        Inbound::Message(message) => Ok(heard(message)),
        Inbound::Gone(why) => Err(why),
    }
}

fn read(event: Event) -> Result<Heard, ClientError> {
    let message = match event.data.is_empty() {
        true => None,
        false => {
            let parsed = serde_json::from_str(&event.data).ok().and_then(Message::parse);
            if parsed.is_none() {
                tracing::debug!(event.name, "an event that is no message");
            }
            parsed
        }
    };
    Ok(Heard { cursor: event.id, retry_ms: event.retry_ms, message })
}
