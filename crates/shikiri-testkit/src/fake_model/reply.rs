//! The model's replies: blocks or an error, at once or delayed, directly or after failures.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;

use super::request::ModelRequest;

/// One reply. A reply of a script may be used many times, by several agents at once.
#[derive(Clone, Debug)]
pub struct Reply {
    content: Content,
    failures: Option<Failures>,
    hold: Option<Gate>,
    pub(super) delay: Duration,
    pub(super) pace: Duration,
    pub(super) usage: Usage,
    pub(super) breaks_off: bool,
    pub(super) stop_reason: Option<String>,
}

/// Tokens, as the API counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read_input_tokens: u64,
    /// All tokens written to caches.
    pub cache_creation_input_tokens: u64,
    /// The part of them that is cached for an hour.
    pub cache_creation_1h_input_tokens: u64,
}

/// Holds replies back until the test opens it.
#[derive(Clone, Debug)]
pub struct Gate(Arc<watch::Sender<bool>>);

/// A response of the API that is no message.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) status: u16,
    pub(super) kind: String,
    pub(super) message: String,
}

#[derive(Clone)]
enum Content {
    Blocks(Vec<Value>),
    Failure(Failure),
    With(Arc<dyn Fn(&ModelRequest) -> Reply + Send + Sync>),
}

/// All clones share the count, which the client's retries use up.
#[derive(Clone, Debug)]
struct Failures {
    left: Arc<AtomicUsize>,
    failure: Failure,
}

impl Reply {
    fn new(content: Content) -> Self {
        Self {
            content,
            failures: None,
            hold: None,
            delay: Duration::ZERO,
            pace: Duration::ZERO,
            usage: Usage::default(),
            breaks_off: false,
            stop_reason: None,
        }
    }

    pub fn text(text: &str) -> Self {
        Self::new(Content::Blocks(Vec::new())).and_text(text)
    }

    pub fn thinking(text: &str) -> Self {
        let block = json!({ "type": "thinking", "thinking": text, "signature": "ZmFrZQ==" });
        Self::new(Content::Blocks(vec![block]))
    }

    /// Calls a tool.
    pub fn call(tool: &str, input: Value) -> Self {
        Self::new(Content::Blocks(Vec::new())).and_call(tool, input)
    }

    /// An error in the API's form, such as `529, "overloaded_error"`.
    pub fn error(status: u16, kind: &str) -> Self {
        Self::new(Content::Failure(Failure::new(status, kind)))
    }

    /// Created from the request: for tools whose input depends on earlier results.
    pub fn with(make: impl Fn(&ModelRequest) -> Self + Send + Sync + 'static) -> Self {
        Self::new(Content::With(Arc::new(make)))
    }

    #[must_use]
    pub fn and_text(self, text: &str) -> Self {
        self.block(json!({ "type": "text", "text": text }))
    }

    /// Another call, in parallel with the ones before.
    #[must_use]
    pub fn and_call(self, tool: &str, input: Value) -> Self {
        self.block(json!({ "type": "tool_use", "name": tool, "input": input }))
    }

    fn block(mut self, block: Value) -> Self {
        match &mut self.content {
            Content::Blocks(blocks) => blocks.push(block),
            other => panic!("{other:?} has no blocks to add to"),
        }
        self
    }

    #[must_use]
    pub fn usage(mut self, usage: Usage) -> Self {
        self.usage = usage;
        self
    }

    /// Sets the stop reason. The default is `tool_use` or `end_turn`, by the blocks.
    #[must_use]
    pub fn stop_reason(mut self, reason: &str) -> Self {
        self.stop_reason = Some(reason.to_owned());
        self
    }

    /// Fails this many times first.
    #[must_use]
    pub fn after_failures(mut self, times: usize, status: u16, kind: &str) -> Self {
        let left = Arc::new(AtomicUsize::new(times));
        self.failures = Some(Failures { left, failure: Failure::new(status, kind) });
        self
    }

    /// Waits until the gate is open.
    #[must_use]
    pub fn held(mut self, gate: &Gate) -> Self {
        self.hold = Some(gate.clone());
        self
    }

    /// Waits this long.
    #[must_use]
    pub fn delayed(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Pauses before each event of a stream.
    #[must_use]
    pub fn paced(mut self, pause: Duration) -> Self {
        self.pace = pause;
        self
    }

    /// Ends the stream with an error after the first block.
    #[must_use]
    pub fn broken_off(mut self) -> Self {
        self.breaks_off = true;
        self
    }

    /// The reply for this request, created from it if necessary.
    pub(super) fn for_request(self, request: &ModelRequest) -> Self {
        match self.content {
            Content::With(make) => make(request).for_request(request),
            _ => self,
        }
    }

    /// The blocks, or the next failure.
    pub(super) fn outcome(&self) -> Result<&[Value], &Failure> {
        if let Some(Failures { left, failure }) = &self.failures
            && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok()
        {
            return Err(failure);
        }
        match &self.content {
            Content::Blocks(blocks) => Ok(blocks),
            Content::Failure(failure) => Err(failure),
            Content::With(_) => Ok(&[]),
        }
    }

    /// Waits until the model would start to answer.
    pub(super) async fn ready(&self) {
        tokio::time::sleep(self.delay).await;
        if let Some(Gate(open)) = &self.hold {
            let _ = open.subscribe().wait_for(|open| *open).await;
        }
    }
}

impl Default for Usage {
    fn default() -> Self {
        Self {
            input_tokens: 100,
            output_tokens: 10,
            cache_read_input_tokens: 0,
            cache_creation_input_tokens: 0,
            cache_creation_1h_input_tokens: 0,
        }
    }
}

impl Gate {
    /// A closed gate.
    #[expect(clippy::new_without_default, reason = "a gate is made on purpose")]
    pub fn new() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }

    pub fn open(&self) {
        self.0.send_replace(true);
    }
}

impl Failure {
    pub(super) fn new(status: u16, kind: &str) -> Self {
        Self { status, kind: kind.to_owned(), message: format!("scripted {kind}") }
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blocks(blocks) => f.debug_tuple("Blocks").field(blocks).finish(),
            Self::Failure(failure) => f.debug_tuple("Failure").field(failure).finish(),
            Self::With(_) => f.write_str("With(..)"),
        }
    }
}
