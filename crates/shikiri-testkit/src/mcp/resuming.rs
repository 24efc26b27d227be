//! A client of the older era that never gives up: after every interruption it resumes its stream
//! with its last id. It logs everything that happened.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};

use super::{McpClient, PATIENCE};
use crate::reader::{Frame, Parser};

/// The pause between tries: a killed server is back soon.
const PAUSE: Duration = Duration::from_millis(15);

/// What the client does when it is asked something.
#[derive(Clone, Debug)]
pub enum Policy {
    /// Posts this result until it was accepted.
    Answer(Value),
    /// Leaves the question to the test.
    Leave,
}

/// One stream over any number of connections and servers: a call's, or the session's own.
pub struct Resuming {
    client: McpClient,
    /// The call to post; None for the session's own stream.
    call: Option<Value>,
    policy: Policy,
    log: StreamLog,
    last_id: Option<String>,
    open: Option<Open>,
    /// Drops the connection after this many bytes, even in the middle of an event.
    cut_after: Option<usize>,
}

/// Everything that happened to the client.
#[derive(Clone, Debug, Default)]
pub struct StreamLog {
    /// Every event with content, in the order of arrival.
    pub events: Vec<Frame>,
    /// The id before the first event.
    pub first_id: Option<String>,
    /// The number of opened streams.
    pub connections: u32,
    /// Posts that may have started a run which this client can never find again.
    pub unheard: u32,
    pub answers: Vec<Sent>,
    /// The response to the call.
    pub reply: Option<Value>,
}

/// An answer of the client, with the status of each try. None if no response came.
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
    /// The events that can be replayed. The others are keep-alives.
    pub fn numbered(&self) -> Vec<Frame> {
        self.events.iter().filter(|event| event.id.is_some()).cloned().collect()
    }

    /// The run of the call, from the link in the response.
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
    /// Calls a tool. Nothing is sent before the first `next`.
    pub fn call(client: &McpClient, tool: &str, arguments: Value, policy: Policy) -> Self {
        let params = json!({
            "name": tool, "arguments": arguments, "_meta": { "progressToken": "進み" },
        });
        let call = json!({ "jsonrpc": "2.0", "method": "tools/call", "params": params });
        Self::new(client, Some(call), policy)
    }

    /// The session's own stream, which never ends.
    pub fn listen(client: &McpClient) -> Self {
        Self::new(client, None, Policy::Leave)
    }

    fn new(client: &McpClient, call: Option<Value>, policy: Policy) -> Self {
        let (log, last_id, open, cut_after) = (StreamLog::default(), None, None, None);
        Self { client: client.clone(), call, policy, log, last_id, open, cut_after }
    }

    pub fn log(&self) -> &StreamLog {
        &self.log
    }

    pub fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }

    /// A second reader with the same history, at another server.
    #[must_use]
    pub fn twin(&self, client: &McpClient) -> Self {
        Self {
            log: self.log.clone(),
            last_id: self.last_id.clone(),
            ..Self::new(client, self.call.clone(), self.policy.clone())
        }
    }

    /// Drops the connection; the next `next` reconnects.
    pub fn cut(&mut self) {
        self.open = None;
        self.cut_after = None;
    }

    /// Drops the connection after this many more bytes. Bytes that have arrived unread count too.
    pub fn cut_after(&mut self, bytes: usize) {
        let ready = self.open.iter().flat_map(|open| &open.ready);
        match bytes.checked_sub(ready.map(|frame| frame.data.len()).sum()) {
            Some(left) if left > 0 => self.cut_after = Some(left),
            _ => self.cut(),
        }
    }

    /// Uses this server from the next connection on.
    pub fn go_through(&mut self, client: &McpClient) {
        self.client = client.clone();
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

    /// Reads up to the response and returns it.
    pub async fn finish(&mut self) -> Value {
        while self.next().await.is_some() {}
        self.log.reply.clone().expect("a response")
    }

    /// Replays from before the first event as many numbered events as the log has. A stream that
    /// ends early gives fewer.
    pub async fn replay(&self) -> Vec<Frame> {
        let first = self.log.first_id.as_deref().expect("a stream with an id");
        let response = in_time(after(&self.client, first)).await.expect("an answer");
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

    /// Posts an answer until its outcome is known. Returns the last status.
    pub async fn answer(&mut self, question: &Value, result: &Value) -> u16 {
        let body = json!({ "jsonrpc": "2.0", "id": question, "result": result });
        let mut sent = Sent { question: text(question), tries: Vec::new() };
        let status = loop {
            let posted = in_time(self.client.http(Method::POST).json(&body)).await;
            match posted.map(|response| response.status().as_u16()) {
                Ok(status) if !is_passing(status) => break status,
                Ok(status) => sent.tries.push(Some(status)),
                // No server received it.
                Err(error) if error.is_connect() => {}
                Err(_) => sent.tries.push(None),
            }
            tokio::time::sleep(PAUSE).await;
        };
        sent.tries.push(Some(status));
        self.log.answers.push(sent);
        status
    }

    /// Posts the call, or resumes its stream; false if that was impossible this time.
    async fn connect(&mut self) -> bool {
        let posting = self.last_id.is_none() && self.call.is_some();
        let request = match (&self.last_id, &mut self.call) {
            (Some(id), _) => after(&self.client, id),
            (None, Some(call)) => {
                call["id"] = json!(self.client.next_id());
                self.client.http(Method::POST).json(call)
            }
            (None, None) => self.client.http(Method::GET),
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

    /// The next event of this connection; None when it has ended.
    async fn read(&mut self) -> Option<Frame> {
        let next = self.open.as_mut()?.read(&mut self.cut_after).await;
        if next.is_none() {
            self.open = None;
            // Without an id the stream cannot be resumed: the call must be repeated.
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

    /// None at the end, which comes after the number of bytes in `cut`, if there is one.
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

/// Resumes the stream of this event, after it.
fn after(client: &McpClient, id: &str) -> RequestBuilder {
    client.http(Method::GET).header("last-event-id", id)
}

/// A paused server accepts connections and does not answer.
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
