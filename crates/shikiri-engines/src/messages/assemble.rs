//! A message, put together from the events of a stream.

use serde::Deserialize;
use serde_json::{Value, json};
use shikiri_model::execution::Usage;

use super::failure::Failure;
use super::wire::Counted;

/// What one should know while a message arrives.
#[derive(Clone, Debug, PartialEq)]
pub enum News {
    /// The model begins: the input is counted.
    Started { id: String, model: String, usage: Usage },
    /// A piece of a text.
    Text(String),
    /// A whole thought.
    Thought(String),
    /// All has come.
    Done(Whole),
}

/// A message that has arrived.
#[derive(Clone, Debug, PartialEq)]
pub struct Whole {
    pub id: String,
    pub model: String,
    pub content: Vec<Value>,
    pub stop_reason: Option<String>,
    pub usage: Usage,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Event {
    MessageStart {
        message: Opening,
    },
    ContentBlockStart {
        index: usize,
        content_block: Value,
    },
    ContentBlockDelta {
        index: usize,
        delta: Delta,
    },
    ContentBlockStop {
        index: usize,
    },
    MessageDelta {
        #[serde(default)]
        delta: Closing,
        #[serde(default)]
        usage: Counted,
    },
    MessageStop,
    Error {
        error: Complaint,
    },
    /// Pings, and what will be added to the API.
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Opening {
    id: String,
    #[serde(default)]
    model: String,
    #[serde(default)]
    usage: Counted,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[expect(clippy::enum_variant_names, reason = "the API's names")]
enum Delta {
    TextDelta {
        text: String,
    },
    ThinkingDelta {
        thinking: String,
    },
    SignatureDelta {
        signature: String,
    },
    InputJsonDelta {
        partial_json: String,
    },
    #[serde(other)]
    OtherDelta,
}

#[derive(Default, Deserialize)]
struct Closing {
    stop_reason: Option<String>,
}

#[derive(Deserialize)]
struct Complaint {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    message: String,
}

/// Blocks that one message may have.
const MAX_BLOCKS: usize = 1_000;

#[derive(Debug, Default)]
pub(super) struct Assembler {
    id: Option<String>,
    model: String,
    counted: Counted,
    blocks: Vec<Value>,
    /// The input of a call, while it arrives.
    json: String,
    is_open: bool,
    /// A call's input cannot be read.
    is_garbled: bool,
    stop_reason: Option<String>,
    /// Events that were more than a sign of life.
    pub(super) said: u64,
}

impl Assembler {
    /// Takes one event. It is news if anything can be told because of it.
    pub(super) fn take(&mut self, data: &[u8]) -> Result<Option<News>, Failure> {
        let event = serde_json::from_slice(data).map_err(|error| {
            Failure::Unreadable(format!("an event, at column {}", error.column()))
        })?;
        self.said += u64::from(!matches!(event, Event::Other));
        match event {
            Event::MessageStart { message } => self.started(message).map(Some),
            Event::Error { error } => {
                Err(Failure::BrokenOff { kind: error.kind, message: error.message })
            }
            Event::Other => Ok(None),
            _ if self.id.is_none() => Err(unreadable("it does not begin with its start")),
            Event::ContentBlockStart { index, content_block } => self.opened(index, content_block),
            Event::ContentBlockDelta { index, delta } => self.grown(index, delta),
            Event::ContentBlockStop { index } => self.closed(index),
            Event::MessageDelta { delta, usage } => {
                self.counted.update(usage);
                self.stop_reason = delta.stop_reason.or(self.stop_reason.take());
                Ok(None)
            }
            Event::MessageStop => self.ended().map(Some),
        }
    }

    /// What was told of tokens so far, if anything was.
    pub(super) fn usage(&self) -> Usage {
        self.counted.usage()
    }

    fn started(&mut self, message: Opening) -> Result<News, Failure> {
        if self.id.is_some() {
            return Err(unreadable("it begins twice"));
        }
        (self.model, self.counted) = (message.model, message.usage);
        self.id = Some(message.id.clone());
        let (id, model, usage) = (message.id, self.model.clone(), self.usage());
        Ok(News::Started { id, model, usage })
    }

    fn opened(&mut self, index: usize, block: Value) -> Result<Option<News>, Failure> {
        if self.is_open || index != self.blocks.len() || index >= MAX_BLOCKS {
            return Err(unreadable("its blocks are out of order"));
        }
        self.is_open = true;
        self.json.clear();
        let text = block["text"].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        self.blocks.push(block);
        Ok(text.map(News::Text))
    }

    fn grown(&mut self, index: usize, delta: Delta) -> Result<Option<News>, Failure> {
        let last = self.blocks.len().checked_sub(1);
        let Some(block) = self.blocks.last_mut().filter(|_| self.is_open && last == Some(index))
        else {
            return Err(unreadable("a piece belongs to no block"));
        };
        match delta {
            Delta::TextDelta { text } => {
                append(block, "text", &text);
                return Ok((!text.is_empty()).then_some(News::Text(text)));
            }
            Delta::ThinkingDelta { thinking } => append(block, "thinking", &thinking),
            Delta::SignatureDelta { signature } => append(block, "signature", &signature),
            Delta::InputJsonDelta { partial_json } => self.json.push_str(&partial_json),
            Delta::OtherDelta => {}
        }
        Ok(None)
    }

    fn closed(&mut self, index: usize) -> Result<Option<News>, Failure> {
        let is_last = self.is_open && index + 1 == self.blocks.len();
        let Some(block) = self.blocks.last_mut().filter(|_| is_last) else {
            return Err(unreadable("a block ends that is not open"));
        };
        self.is_open = false;
        if block["type"] == "tool_use" && !self.json.is_empty() {
            let input = serde_json::from_str(&self.json).ok().filter(Value::is_object);
            self.is_garbled |= input.is_none();
            block["input"] = input.unwrap_or_else(|| json!({}));
        }
        let thought = (block["type"] == "thinking").then(|| block["thinking"].as_str()).flatten();
        Ok(thought.filter(|thought| !thought.is_empty()).map(|t| News::Thought(t.to_owned())))
    }

    fn ended(&mut self) -> Result<News, Failure> {
        if self.is_open {
            return Err(unreadable("it ends within a block"));
        }
        // A call that was cut off at the most tokens is not made.
        if self.is_garbled && self.stop_reason.as_deref() != Some("max_tokens") {
            return Err(unreadable("a call's input is not JSON"));
        }
        let (id, content) = (self.id.clone().unwrap_or_default(), std::mem::take(&mut self.blocks));
        let mut ids: Vec<_> = content.iter().filter(|b| b["type"] == "tool_use").collect();
        let named = |block: &&Value| block["id"].as_str().is_some_and(|id| !id.is_empty());
        if !ids.iter().all(|block| named(block) && block["name"].is_string()) {
            return Err(unreadable("a call has no id or no name"));
        }
        let count = ids.len();
        ids.sort_by_key(|block| block["id"].as_str());
        ids.dedup_by_key(|block| block["id"].as_str());
        if ids.len() < count {
            return Err(unreadable("two calls have the same id"));
        }
        Ok(News::Done(Whole {
            id,
            model: self.model.clone(),
            content,
            stop_reason: self.stop_reason.take(),
            usage: self.usage(),
        }))
    }
}

fn append(block: &mut Value, field: &str, piece: &str) {
    match &mut block[field] {
        Value::String(text) => text.push_str(piece),
        other => *other = json!(piece),
    }
}

fn unreadable(what: &str) -> Failure {
    Failure::Unreadable(format!("a stream in which {what}"))
}

#[cfg(test)]
#[path = "assemble_tests.rs"]
mod tests;
