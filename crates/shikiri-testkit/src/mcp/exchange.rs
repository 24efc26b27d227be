//! One HTTP response, read event by event.

use std::collections::VecDeque;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use reqwest::RequestBuilder;
use serde_json::Value;

use super::PATIENCE;
use crate::reader::Parser;

/// A message of the protocol, with the id of its event.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    pub event_id: Option<String>,
    /// Null for an event without content, which only has an id.
    pub json: Value,
}

impl Message {
    pub fn method(&self) -> Option<&str> {
        self.json["method"].as_str()
    }

    /// Whether it is a response to any request.
    pub fn is_reply(&self) -> bool {
        self.json.get("result").is_some() || self.json.get("error").is_some()
    }

    /// Whether it is a request of the server: it has a method and an id.
    pub fn is_question(&self) -> bool {
        self.method().is_some() && self.json.get("id").is_some()
    }
}

/// The server's response to one HTTP request, while it arrives.
pub struct Exchange {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    /// All messages read so far.
    pub seen: Vec<Message>,
    /// Why the response broke off, if it is incomplete.
    pub broken: Option<String>,
    is_stream: bool,
    bytes: BoxStream<'static, reqwest::Result<Vec<u8>>>,
    parser: Parser,
    ready: VecDeque<Message>,
}

impl Exchange {
    /// Fails the test if there is no response at all.
    pub async fn open(request: RequestBuilder) -> Self {
        match Self::try_open(request).await {
            Ok(exchange) => exchange,
            Err(error) => panic!("no answer: {error:?}"),
        }
    }

    /// For servers that may be down.
    pub async fn try_open(request: RequestBuilder) -> reqwest::Result<Self> {
        let sending = tokio::time::timeout(PATIENCE, request.send());
        let response = sending.await.expect("an answer's head in time")?;
        let status = response.status().as_u16();
        let text = |value: &reqwest::header::HeaderValue| {
            String::from_utf8_lossy(value.as_bytes()).into_owned()
        };
        let headers = response.headers().iter();
        let headers: Vec<_> =
            headers.map(|(name, value)| (name.to_string(), text(value))).collect();
        let is_stream = headers
            .iter()
            .any(|(name, value)| name == "content-type" && value.starts_with("text/event-stream"));
        let bytes = response.bytes_stream().map(|part| part.map(|bytes| bytes.to_vec())).boxed();
        let (parser, ready, seen) = (Parser::default(), VecDeque::new(), Vec::new());
        Ok(Self { status, headers, seen, broken: None, is_stream, bytes, parser, ready })
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub fn is_stream(&self) -> bool {
        self.is_stream
    }

    /// The next message; None at the end. A body that is no stream is one message.
    pub async fn next(&mut self) -> Option<Message> {
        match self.next_within(PATIENCE).await {
            Ok(next) => next,
            Err(seen) => panic!("nothing came for {PATIENCE:?} after {seen}"),
        }
    }

    /// As `next`, with a time limit: an error if nothing came, not even the end.
    pub async fn next_within(&mut self, patience: Duration) -> Result<Option<Message>, String> {
        match tokio::time::timeout(patience, self.read()).await {
            Ok(next) => {
                self.seen.extend(next.clone());
                Ok(next)
            }
            Err(_) => Err(format!("{:?}", self.seen)),
        }
    }

    /// All messages up to the end.
    pub async fn rest(&mut self) -> Vec<Message> {
        let mut messages = Vec::new();
        while let Some(message) = self.next().await {
            messages.push(message);
        }
        messages
    }

    /// Reads up to the first matching message.
    pub async fn until(&mut self, what: &str, wanted: impl Fn(&Message) -> bool) -> Message {
        while let Some(message) = self.next().await {
            if wanted(&message) {
                return message;
            }
        }
        let Self { status, broken, seen, .. } = self;
        panic!("{status} ended without {what} ({broken:?}): {seen:?}");
    }

    /// Reads up to the response and returns it whole.
    pub async fn reply(&mut self) -> Value {
        self.until("an answer", Message::is_reply).await.json
    }

    /// Reads up to the response and returns its result.
    pub async fn result(&mut self) -> Value {
        let reply = self.reply().await;
        assert!(reply.get("error").is_none(), "{} {reply}", self.status);
        reply["result"].clone()
    }

    /// Reads up to the response, which must be an error with this code, and returns the error.
    pub async fn error(&mut self, code: i64) -> Value {
        let reply = self.reply().await;
        assert_eq!(reply["error"]["code"], code, "{} {reply}", self.status);
        reply["error"].clone()
    }

    /// Reads up to the next request of the server and returns it whole.
    pub async fn question(&mut self) -> Value {
        self.until("a question", Message::is_question).await.json
    }

    /// The last event id, by which the stream can be resumed.
    pub fn last_event_id(&self) -> Option<&str> {
        self.seen.iter().rev().find_map(|message| message.event_id.as_deref())
    }

    async fn read(&mut self) -> Option<Message> {
        loop {
            if let Some(message) = self.ready.pop_front() {
                return Some(message);
            }
            if !self.is_stream {
                return self.whole().await;
            }
            let part = self.part().await?;
            for frame in self.parser.push(&part) {
                let json = if frame.data.is_empty() { Value::Null } else { frame.json() };
                self.ready.push_back(Message { event_id: frame.id, json });
            }
        }
    }

    async fn part(&mut self) -> Option<Vec<u8>> {
        let part = self.bytes.next().await?;
        part.map_err(|error| self.broken = Some(format!("{error:?}"))).ok()
    }

    async fn whole(&mut self) -> Option<Message> {
        let mut body = Vec::new();
        while let Some(part) = self.part().await {
            body.extend(part);
        }
        if body.is_empty() {
            return None;
        }
        let json = serde_json::from_slice(&body)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&body).into_owned()));
        Some(Message { event_id: None, json })
    }
}
