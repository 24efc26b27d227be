//! Assembles a message from the events of a stream.

use serde::Deserialize;
use serde_json::{Value, json};
use shikiri_model::execution::TokenUsage;

use super::model_api_error::ModelApiError;
use super::wire_types::ApiTokenUsage;

/// Progress of a streamed message.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelStreamUpdate {
    /// The message has begun, and its input is counted.
    Started { id: String, model: String, usage: TokenUsage },
    /// A piece of a text.
    Text(String),
    /// A whole thought.
    Thought(String),
    /// The message is complete.
    Done(AssembledMessage),
}

/// A complete message.
#[derive(Clone, Debug, PartialEq)]
pub struct AssembledMessage {
    pub id: String,
    pub model: String,
    pub content: Vec<Value>,
    pub stop_reason: Option<String>,
    pub usage: TokenUsage,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ModelStreamEvent {
    MessageStart {
        message: MessageStart,
    },
    ContentBlockStart {
        index: usize,
        content_block: Value,
    },
    ContentBlockDelta {
        index: usize,
        delta: ContentDelta,
    },
    ContentBlockStop {
        index: usize,
    },
    MessageDelta {
        #[serde(default)]
        delta: MessageDelta,
        #[serde(default)]
        usage: ApiTokenUsage,
    },
    MessageStop,
    Error {
        error: StreamErrorBody,
    },
    /// Pings, and what will be added to the API.
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct MessageStart {
    id: String,
    #[serde(default)]
    model: String,
    #[serde(default)]
    usage: ApiTokenUsage,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[expect(clippy::enum_variant_names, reason = "the API's names")]
enum ContentDelta {
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
struct MessageDelta {
    stop_reason: Option<String>,
}

#[derive(Deserialize)]
struct StreamErrorBody {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    message: String,
}

/// Blocks that one message may have.
const MAX_BLOCKS: usize = 1_000;

#[derive(Debug, Default)]
pub(super) struct MessageAssembler {
    id: Option<String>,
    model: String,
    counted: ApiTokenUsage,
    blocks: Vec<Value>,
    /// The input of a call, while it arrives.
    json: String,
    is_open: bool,
    /// A call's input cannot be read.
    is_garbled: bool,
    stop_reason: Option<String>,
    /// The number of events other than pings.
    pub(super) event_count: u64,
}

impl MessageAssembler {
    /// Takes one event. Returns an update if the event allows one.
    pub(super) fn take(&mut self, data: &[u8]) -> Result<Option<ModelStreamUpdate>, ModelApiError> {
        let event = serde_json::from_slice(data).map_err(|error| {
            ModelApiError::Unreadable(format!("an event, at column {}", error.column()))
        })?;
        self.event_count += u64::from(!matches!(event, ModelStreamEvent::Other));
        match event {
            ModelStreamEvent::MessageStart { message } => self.on_message_start(message).map(Some),
            ModelStreamEvent::Error { error } => {
                Err(ModelApiError::BrokenOff { kind: error.kind, message: error.message })
            }
            ModelStreamEvent::Other => Ok(None),
            _ if self.id.is_none() => Err(unreadable("it does not begin with its start")),
            ModelStreamEvent::ContentBlockStart { index, content_block } => {
                self.on_block_start(index, content_block)
            }
            ModelStreamEvent::ContentBlockDelta { index, delta } => {
                self.on_block_delta(index, delta)
            }
            ModelStreamEvent::ContentBlockStop { index } => self.on_block_stop(index),
            ModelStreamEvent::MessageDelta { delta, usage } => {
                self.counted.update(usage);
                self.stop_reason = delta.stop_reason.or(self.stop_reason.take());
                Ok(None)
            }
            ModelStreamEvent::MessageStop => self.finish_message().map(Some),
        }
    }

    /// The usage so far.
    pub(super) fn usage(&self) -> TokenUsage {
        self.counted.usage()
    }

    fn on_message_start(
        &mut self,
        message: MessageStart,
    ) -> Result<ModelStreamUpdate, ModelApiError> {
        if self.id.is_some() {
            return Err(unreadable("it begins twice"));
        }
        (self.model, self.counted) = (message.model, message.usage);
        self.id = Some(message.id.clone());
        let (id, model, usage) = (message.id, self.model.clone(), self.usage());
        Ok(ModelStreamUpdate::Started { id, model, usage })
    }

    fn on_block_start(
        &mut self,
        index: usize,
        block: Value,
    ) -> Result<Option<ModelStreamUpdate>, ModelApiError> {
        if self.is_open || index != self.blocks.len() || index >= MAX_BLOCKS {
            return Err(unreadable("its blocks are out of order"));
        }
        self.is_open = true;
        self.json.clear();
        let text = block["text"].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        self.blocks.push(block);
        Ok(text.map(ModelStreamUpdate::Text))
    }

    fn on_block_delta(
        &mut self,
        index: usize,
        delta: ContentDelta,
    ) -> Result<Option<ModelStreamUpdate>, ModelApiError> {
        let last = self.blocks.len().checked_sub(1);
        let Some(block) = self.blocks.last_mut().filter(|_| self.is_open && last == Some(index))
        else {
            return Err(unreadable("a piece belongs to no block"));
        };
        match delta {
            ContentDelta::TextDelta { text } => {
                append(block, "text", &text);
                return Ok((!text.is_empty()).then_some(ModelStreamUpdate::Text(text)));
            }
            ContentDelta::ThinkingDelta { thinking } => append(block, "thinking", &thinking),
            ContentDelta::SignatureDelta { signature } => append(block, "signature", &signature),
            ContentDelta::InputJsonDelta { partial_json } => self.json.push_str(&partial_json),
            ContentDelta::OtherDelta => {}
        }
        Ok(None)
    }

    fn on_block_stop(&mut self, index: usize) -> Result<Option<ModelStreamUpdate>, ModelApiError> {
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
        Ok(thought
            .filter(|thought| !thought.is_empty())
            .map(|t| ModelStreamUpdate::Thought(t.to_owned())))
    }

    fn finish_message(&mut self) -> Result<ModelStreamUpdate, ModelApiError> {
        if self.is_open {
            return Err(unreadable("it ends within a block"));
        }
        // A call that was cut off at the token limit is not made.
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
        Ok(ModelStreamUpdate::Done(AssembledMessage {
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

fn unreadable(what: &str) -> ModelApiError {
    ModelApiError::Unreadable(format!("a stream in which {what}"))
}

#[cfg(test)]
#[path = "message_assembler_tests.rs"]
mod tests;
