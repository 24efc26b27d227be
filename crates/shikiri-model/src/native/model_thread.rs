//! One thread of a turn: messages with the model, and the next step.

use serde_json::{Value, json};

use super::execution_limits::{ExecutionLimits, LimitKind};
use super::turn_entry::{ModelReply, ModelToolCall, text};

/// Bytes of a request per token, as a lower bound. Text other than English has more of both.
const BYTES_PER_TOKEN: u64 = 3;
/// How often in a row the model is asked to continue after a reply that broke off.
const MOST_REPAIRS: u32 = 3;

const GO_ON: &str = "Your reply was cut off here, before its end. Go on from exactly where it \
stopped, without repeating what you have said.";

#[derive(Clone, Debug)]
pub struct ModelThread {
    /// The nesting depth; 0 for the main thread.
    pub(super) depth: u32,
    pub(super) parent: super::ThreadId,
    max_turns: Option<u64>,
    messages: Vec<Value>,
    turns: u64,
    last: Option<ModelReply>,
    calls: Vec<(ModelToolCall, Option<Value>)>,
    /// Consecutive replies that broke off.
    repairs: u32,
    /// The answer was delivered to the spawner.
    pub(super) is_over: bool,
    /// The tokens that the model counted, and the bytes that were added since.
    counted: u64,
    uncounted_bytes: u64,
}

/// The next step of a thread.
#[derive(Clone, Debug, PartialEq)]
pub enum ThreadAction {
    Ask,
    /// Calls to make in parallel.
    Call(Vec<ModelToolCall>),
    End(ThreadEnding),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ThreadEnding {
    /// The model finished its answer.
    Done,
    /// The thread cannot continue, for this reason.
    Stopped(String),
    Limit(LimitKind),
}

impl ModelThread {
    pub(super) fn new(past: Vec<Value>, prompt: &str, limits: &ExecutionLimits) -> Self {
        let mut thread = Self {
            depth: 0,
            parent: None,
            max_turns: limits.max_turns,
            messages: Vec::new(),
            turns: 0,
            last: None,
            calls: Vec::new(),
            repairs: 0,
            is_over: false,
            counted: 0,
            uncounted_bytes: 0,
        };
        for message in past {
            thread.push(message);
        }
        thread.push(user(vec![json!({ "type": "text", "text": prompt })]));
        thread
    }

    /// The messages in the API's format.
    pub fn messages(&self) -> &[Value] {
        &self.messages
    }

    /// The number of replies so far.
    pub fn turns(&self) -> u64 {
        self.turns
    }

    /// The text of the last reply.
    pub fn answer(&self) -> String {
        self.last.as_ref().map(ModelReply::text).unwrap_or_default()
    }

    /// An upper bound for the input tokens of the next request. `base`: the bytes around the
    /// messages.
    pub(super) fn input_tokens(&self, base: u64) -> u64 {
        let base = if self.counted == 0 { base } else { 0 };
        let bytes = self.uncounted_bytes.saturating_add(base);
        self.counted.saturating_add(bytes.div_ceil(BYTES_PER_TOKEN))
    }

    pub fn next(&self) -> ThreadAction {
        if self.is_over {
            return ThreadAction::End(ThreadEnding::Done);
        }
        let open = self.calls.iter().filter(|(_, answer)| answer.is_none());
        let open: Vec<ModelToolCall> = open.map(|(call, _)| call.clone()).collect();
        let Some(reply) = &self.last else { return self.ask() };
        let stopped = |why: &str| ThreadAction::End(ThreadEnding::Stopped(why.to_owned()));
        match reply.stop_reason.as_deref() {
            Some("max_tokens") => match reply.capped {
                Some(limit) => ThreadAction::End(ThreadEnding::Limit(limit)),
                None => stopped("the model's reply reached the most tokens that one may have"),
            },
            Some("refusal") => stopped("the model refuses to answer"),
            Some("model_context_window_exceeded") => stopped(CONTEXT_FULL),
            Some("pause_turn") if open.is_empty() => self.ask(),
            _ if !open.is_empty() => ThreadAction::Call(open),
            // All calls have answers.
            _ if !self.calls.is_empty() => self.ask(),
            _ => ThreadAction::End(ThreadEnding::Done),
        }
    }

    fn ask(&self) -> ThreadAction {
        if self.max_turns.is_some_and(|max| self.turns >= max) {
            return ThreadAction::End(ThreadEnding::Limit(LimitKind::MaxTurns));
        }
        if self.repairs > MOST_REPAIRS {
            let why = "the model API broke off its replies again and again";
            return ThreadAction::End(ThreadEnding::Stopped(why.to_owned()));
        }
        ThreadAction::Ask
    }

    pub(super) fn replied(&mut self, reply: &ModelReply) {
        self.turns += 1;
        self.repairs = 0;
        self.calls = reply.calls().into_iter().map(|call| (call, None)).collect();
        self.last = Some(reply.clone());
        // The API refuses empty texts and messages without blocks.
        let is_empty = |block: &Value| block["type"] == "text" && text(block).is_none();
        let content: Vec<_> =
            reply.content.iter().filter(|block| !is_empty(block)).cloned().collect();
        if !content.is_empty() {
            self.messages.push(json!({ "role": "assistant", "content": content }));
        }
        let usage = &reply.usage;
        let told = usage.input_tokens
            + usage.output_tokens
            + usage.cache_write_5m_tokens
            + usage.cache_write_1h_tokens
            + usage.cache_read_tokens;
        (self.counted, self.uncounted_bytes) = (told, 0);
    }

    pub(super) fn cut(&mut self, text: &str) {
        self.repairs += 1;
        if !text.trim().is_empty() {
            let said = json!({ "type": "text", "text": text });
            self.push(json!({ "role": "assistant", "content": [said] }));
            self.push(user(vec![json!({ "type": "text", "text": GO_ON })]));
        }
        // Earlier calls have been answered. This is a new question.
        (self.last, self.calls) = (None, Vec::new());
    }

    /// Records the first answer to a call. After the last one, the answers are sent to the model.
    pub(super) fn answered(&mut self, id: &str, content: &Value, is_error: bool) {
        let Some((_, answer)) = self.calls.iter_mut().find(|(call, _)| call.id == id) else {
            return;
        };
        if answer.is_some() {
            return;
        }
        let mut block = json!({ "type": "tool_result", "tool_use_id": id, "content": content });
        if is_error {
            block["is_error"] = json!(true);
        }
        *answer = Some(block);
        if self.calls.iter().all(|(_, answer)| answer.is_some()) {
            let blocks = self.calls.iter().filter_map(|(_, answer)| answer.clone()).collect();
            self.push(user(blocks));
        }
    }

    fn push(&mut self, message: Value) {
        self.uncounted_bytes += message.to_string().len() as u64;
        self.messages.push(message);
    }
}

/// The caller decides what to do about it.
pub const CONTEXT_FULL: &str = "the conversation does not fit the model's context any more: \
start another, or begin a new session (set its session_id to null)";

fn user(content: Vec<Value>) -> Value {
    json!({ "role": "user", "content": content })
}

#[cfg(test)]
#[path = "model_thread_tests.rs"]
mod tests;
