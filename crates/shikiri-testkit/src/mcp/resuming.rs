//! A client of the older era that does not give up: whatever cuts its stream, it comes back with the
//! last id that it has, and keeps a log of everything that it lived through.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};

use super::{McpClient, PATIENCE};
use crate::reader::{Frame, Parser};

/// Between two tries: a server that was killed is back soon.
const PAUSE: Duration = Duration::from_millis(15);

/// What the client does when it is asked something.
#[derive(Clone, Debug)]
pub enum Policy {
    /// It posts this result, until somebody says that it was taken.
    Answer(Value),
    /// It leaves the question to the test.
    Leave,
}

/// One stream, over however many connections and servers: a call's, or the session's own.
pub struct Resuming {
    door: McpClient,
    /// What is posted; nothing for the session's own stream.
    call: Option<Value>,
    policy: Policy,
    log: StreamLog,
    last_id: Option<String>,
    open: Option<Open>,
    /// Bytes after which the connection is dropped, in the middle of an event if it so falls.
    cut_after: Option<usize>,
}

/// What the client lived through.
#[derive(Clone, Debug, Default)]
pub struct StreamLog {
    /// Every event with content, in the order of arrival.
    pub events: Vec<Frame>,
    /// The id that stood before the first event.
    pub first_id: Option<String>,
    /// How often a stream was opened.
    pub connections: u32,
    /// Posts that may have started a run which this client can never find again.
    pub unheard: u32,
    pub answers: Vec<Sent>,
    /// The response to the call.
    pub reply: Option<Value>,
}

/// An answer of the client's: what each try came to, None where nobody told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    pub question: String,
    pub tries: Vec<Option<u16>>,
}

struct Open {
    bytes: BoxStream<'static, reqwest::Result<Vec<u8>>>,
    parser: Parser,
    ready: VecDeque<Frame>,
}

impl Policy {
    pub fn accept() -> Self {
        Self::Answer(json!({ "action": "accept", "content": { "confirm": true, "notes": "窓側" } }))
    }

    pub fn decline() -> Self {
        Self::Answer(json!({ "action": "decline" }))
    }
}

impl StreamLog {
    /// The events that can be read again; the others are signs of life.
    pub fn numbered(&self) -> Vec<Frame> {
        self.events.iter().filter(|event| event.id.is_some()).cloned().collect()
    }

    /// The run that was called, from the link in the response.
    #[track_caller]
    pub fn run_id(&self) -> String {
        let reply = self.reply.as_ref().expect("an answered call");
        let content = reply["result"]["content"].as_array();
        let uri = content.and_then(|parts| parts.iter().find_map(|part| part["uri"].as_str()));
        let id = uri.and_then(|uri| uri.strip_prefix("shikiri://runs/"));
        id.unwrap_or_else(|| panic!("no link to a run: {reply}")).to_owned()
    }
}

/// For the report of a failed test: one line per event.
impl fmt::Display for StreamLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { connections, unheard, answers, .. } = self;
        writeln!(f, "{connections} connections, {unheard} unheard, answers {answers:?}")?;
        writeln!(f, "after {:?}", self.first_id)?;
        for event in &self.events {
            let id = event.id.as_deref().unwrap_or("-");
            writeln!(f, "{id} {}", String::from_utf8_lossy(&event.data))?;
        }
        Ok(())
    }
}

impl Resuming {
    /// A call of a tool. Nothing is sent before the first `next`.
    pub fn call(door: &McpClient, tool: &str, arguments: Value, policy: Policy) -> Self {
        let params = json!({
            "name": tool, "arguments": arguments, "_meta": { "progressToken": "進み" },
        });
        let call = json!({ "jsonrpc": "2.0", "method": "tools/call", "params": params });
        Self::new(door, Some(call), policy)
    }

    /// The session's own stream, which has no end.
    pub fn listen(door: &McpClient) -> Self {
        Self::new(door, None, Policy::Leave)
    }

    fn new(door: &McpClient, call: Option<Value>, policy: Policy) -> Self {
        let (log, last_id, open, cut_after) = (StreamLog::default(), None, None, None);
        Self { door: door.clone(), call, policy, log, last_id, open, cut_after }
    }

    pub fn log(&self) -> &StreamLog {
        &self.log
    }

    pub fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }

    /// Somebody else with the same past, who goes on through another door.
    #[must_use]
    pub fn twin(&self, door: &McpClient) -> Self {
        Self {
            log: self.log.clone(),
            last_id: self.last_id.clone(),
            ..Self::new(door, self.call.clone(), self.policy.clone())
        }
    }

    /// Lets go of the connection; the next `next` comes back.
    pub fn cut(&mut self) {
        self.open = None;
        self.cut_after = None;
    }

    /// Lets go of the connection once so many more bytes have come, those among them that nobody
    /// has asked for yet: much may have come at once.
    pub fn cut_after(&mut self, bytes: usize) {
        let ready = self.open.iter().flat_map(|open| &open.ready);
        match bytes.checked_sub(ready.map(|frame| frame.data.len()).sum()) {
            Some(left) if left > 0 => self.cut_after = Some(left),
            _ => self.cut(),
        }
    }

    /// From the next connection on, through this door.
    pub fn go_through(&mut self, door: &McpClient) {
        self.door = door.clone();
    }

    /// The next event with content; None after the response.
    pub async fn next(&mut self) -> Option<Frame> {
        while self.log.reply.is_none() {
            if self.open.is_none() && !self.connect().await {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            let Some(frame) = self.read().await else { continue };
            if let Some(id) = &frame.id {
                self.last_id = Some(id.clone());
                self.log.first_id.get_or_insert_with(|| id.clone());
            }
            if frame.data.is_empty() {
                continue;
            }
            self.log.events.push(frame.clone());
            self.take(&frame.json()).await;
            return Some(frame);
        }
        None
    }

    /// Up to the response; gives that.
    pub async fn finish(&mut self) -> Value {
        while self.next().await.is_some() {}
        self.log.reply.clone().expect("a response")
    }

    /// Reads once more, from before the first event, as many numbered events as the log has; a
    /// stream that ends before, or tells no more, gives fewer.
    pub async fn replay(&self) -> Vec<Frame> {
        let first = self.log.first_id.as_deref().expect("a stream with an id");
        let response = in_time(after(&self.door, first)).await.expect("an answer");
        assert_eq!(response.status(), 200, "a stream to be read again");
        let mut open = Open::new(response);
        let wanted = self.log.numbered().len();
        let mut frames = Vec::new();
        let reading = async {
            while frames.len() < wanted {
                let Some(frame) = open.read(&mut None).await else { break };
                frames.extend(Some(frame).filter(|frame| frame.id.is_some()));
            }
        };
        let _ = tokio::time::timeout(PATIENCE, reading).await;
        frames
    }

    async fn take(&mut self, message: &Value) {
        match (message.get("method"), message.get("id")) {
            (None, Some(_)) => self.log.reply = Some(message.clone()),
            (Some(_), Some(id)) => {
                if let Policy::Answer(result) = self.policy.clone() {
                    self.answer(id, &result).await;
                }
            }
            _ => {}
        }
    }

    /// Posts an answer until it is known what became of it; gives the last status.
    pub async fn answer(&mut self, question: &Value, result: &Value) -> u16 {
        let body = json!({ "jsonrpc": "2.0", "id": question, "result": result });
        let mut sent = Sent { question: text(question), tries: Vec::new() };
        let status = loop {
            let posted = in_time(self.door.http(Method::POST).json(&body)).await;
            match posted.map(|response| response.status().as_u16()) {
                Ok(status) if !is_passing(status) => break status,
                Ok(status) => sent.tries.push(Some(status)),
                // Nobody was there to be told.
                Err(error) if error.is_connect() => {}
                Err(_) => sent.tries.push(None),
            }
            tokio::time::sleep(PAUSE).await;
        };
        sent.tries.push(Some(status));
        self.log.answers.push(sent);
        status
    }

    /// Posts the call, or comes back to its stream; false if that was not possible this time.
    async fn connect(&mut self) -> bool {
        let posting = self.last_id.is_none() && self.call.is_some();
        let request = match (&self.last_id, &mut self.call) {
            (Some(id), _) => after(&self.door, id),
            (None, Some(call)) => {
                call["id"] = json!(self.door.next_id());
                self.door.http(Method::POST).json(call)
            }
            (None, None) => self.door.http(Method::GET),
        };
        match in_time(request).await {
            Ok(response) if response.status() == 200 => {
                self.open = Some(Open::new(response));
                self.log.connections += 1;
                return true;
            }
            Ok(response) => {
                let status = response.status().as_u16();
                let said = response.text().await.unwrap_or_default();
                assert!(is_passing(status), "after {:?}: {status} {said}", self.last_id);
                self.log.unheard += u32::from(posting);
            }
            Err(error) => self.log.unheard += u32::from(posting && !error.is_connect()),
        }
        false
    }

    /// The next event of this connection; None when it is over.
    async fn read(&mut self) -> Option<Frame> {
        let next = self.open.as_mut()?.read(&mut self.cut_after).await;
        if next.is_none() {
            self.open = None;
            // Without an id there is no way back: the call must be made again.
            self.log.unheard += u32::from(self.last_id.is_none());
        }
        next
    }
}

impl Open {
    fn new(response: Response) -> Self {
        let bytes = response.bytes_stream().map(|part| part.map(|bytes| bytes.to_vec()));
        Self { bytes: bytes.boxed(), parser: Parser::default(), ready: VecDeque::new() }
    }

    /// None at the end, which comes after so many bytes if `cut` says so.
    async fn read(&mut self, cut: &mut Option<usize>) -> Option<Frame> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Some(frame);
            }
            let mut bytes = self.bytes.next().await?.ok()?;
            match cut {
                Some(left) if *left <= bytes.len() => {
                    bytes.truncate(*left);
                    *cut = None;
                    self.bytes = futures_util::stream::empty().boxed();
                }
                Some(left) => *left -= bytes.len(),
                None => {}
            }
            self.ready.extend(self.parser.push(&bytes));
        }
    }
}

/// The stream that this event was of, after it.
fn after(door: &McpClient, id: &str) -> RequestBuilder {
    door.http(Method::GET).header("last-event-id", id)
}

/// A server that is paused takes a connection and says nothing.
async fn in_time(request: RequestBuilder) -> reqwest::Result<Response> {
    let sending = tokio::time::timeout(PATIENCE, request.send());
    sending.await.expect("an answer's head in time")
}

fn is_passing(status: u16) -> bool {
    matches!(status, 429 | 503)
}

fn text(id: &Value) -> String {
    id.as_str().map_or_else(|| id.to_string(), str::to_owned)
}
