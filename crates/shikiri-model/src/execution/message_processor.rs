//! Turns the messages of an engine into events for readers and messages to store.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::engine_message::{EngineFinish, EngineMessage, SubagentStart, TokenSpender, ToolUse};
use super::tool_tracker::{ToolCall, ToolTracker};
use super::usage_ledger::{PriceList, UsageLedger, UsageRow};
use crate::event::NewEvent;
use crate::run::{ExecutionEventName, WarningCode};
use crate::time::Timestamp;

/// A stored message of the conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct ConversationMessage {
    pub kind: MessageKind,
    pub subtype: Option<String>,
    pub content: Value,
    pub parent_tool_use_id: Option<String>,
    pub at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageKind {
    System,
    Assistant,
    User,
    Result,
}

/// The settings that are known before the engine starts.
#[derive(Clone, Debug, Default)]
pub struct ProcessorConfig {
    pub turn: u64,
    pub resumed: bool,
    pub prices: PriceList,
    /// The models that aliases stand for.
    pub aliases: BTreeMap<String, String>,
    /// The model of subagents that request none.
    pub subagent_model: String,
}

/// The note of an engine that asks its model's API again after a pause.
const API_RETRY: &str = "api_retry";

#[derive(Debug, Default)]
pub struct MessageProcessor {
    expected: ProcessorConfig,
    ledger: UsageLedger,
    tools: ToolTracker,
    messages: Vec<ConversationMessage>,
    /// Running subagents, by the call that spawned them.
    subagents: BTreeMap<String, SubagentStart>,
    session_id: Option<String>,
    /// The main thread's text so far.
    text: String,
    finish: Option<EngineFinish>,
    has_spent: bool,
}

impl MessageProcessor {
    pub fn new(expected: ProcessorConfig) -> Self {
        Self { expected, ..Self::default() }
    }

    pub fn process(&mut self, message: EngineMessage, now: Timestamp) -> Vec<NewEvent> {
        match message {
            EngineMessage::Started { session_id, model } => self.started(session_id, &model, now),
            EngineMessage::TextDelta { text } => {
                self.text.push_str(&text);
                vec![event(ExecutionEventName::TextDelta, &json!({ "text": text }))]
            }
            EngineMessage::Text { text, parent, streamed } => {
                self.wrote(text, parent, streamed, now)
            }
            EngineMessage::Thinking { text, parent } => {
                let content = json!({ "type": "thinking", "thinking": text });
                self.keep(MessageKind::Assistant, None, content, parent.clone(), now);
                let data = with_parent(json!({ "text": text }), parent.as_deref());
                vec![event(ExecutionEventName::Thinking, &data)]
            }
            EngineMessage::ToolUse(tool) => self.tool_called(tool, now),
            EngineMessage::ToolResult { tool_use_id, content, is_error, parent } => {
                self.tool_answered(&tool_use_id, &content, is_error, parent, now)
            }
            EngineMessage::SubagentStarted(start) => self.subagent_started(start),
            EngineMessage::SubagentEnded { tool_use_id, is_error } => {
                self.subagent_ended(&tool_use_id, is_error).into_iter().collect()
            }
            EngineMessage::Spent { who, request, model, usage } => {
                self.ledger.spend(who, request, model, usage);
                self.has_spent = true;
                Vec::new()
            }
            EngineMessage::Warning { code, message, server } => {
                let mut data = json!({ "code": code.as_str(), "message": message });
                if let Some(server) = server {
                    data["server"] = json!(server);
                }
                vec![event(ExecutionEventName::Warning, &data)]
            }
            EngineMessage::Note { subtype, content } => {
                let told = (subtype == API_RETRY).then(|| retry_warning(&content));
                self.keep(MessageKind::System, Some(subtype), content, None, now);
                told.into_iter().collect()
            }
            EngineMessage::Finished(finish) => {
                let content = json!({ "result": finish.result, "is_error": finish.is_error });
                self.keep(MessageKind::Result, None, content, None, now);
                if finish.session_id.is_some() {
                    self.session_id.clone_from(&finish.session_id);
                }
                self.finish = Some(finish);
                Vec::new()
            }
        }
    }

    /// Applies a message that another process sent to readers already. Its usage is carried over
    /// separately.
    pub fn replay(&mut self, message: EngineMessage, at: Timestamp) {
        if !matches!(message, EngineMessage::Spent { .. }) {
            self.process(message, at);
        }
    }

    /// Adds usage that another process recorded, even if the messages of that usage were not
    /// stored.
    pub fn carry_over(&mut self, rows: &[UsageRow]) {
        for (row, number) in rows.iter().zip(1..) {
            let who = row.tool_use_id.clone().map_or(TokenSpender::Main, TokenSpender::Subagent);
            self.ledger.spend(who, format!("before-{number}"), row.model.clone(), row.usage);
        }
    }

    fn started(&mut self, session_id: String, model: &str, now: Timestamp) -> Vec<NewEvent> {
        let is_first = self.session_id.is_none();
        let data = json!({
            "session_id": session_id,
            "model": model,
            "resumed": self.expected.resumed,
            "turn": self.expected.turn,
        });
        self.session_id = Some(session_id);
        if !is_first {
            return Vec::new();
        }
        self.keep(MessageKind::System, Some("init".to_owned()), data.clone(), None, now);
        vec![event(ExecutionEventName::SessionStart, &data)]
    }

    fn wrote(
        &mut self,
        text: String,
        parent: Option<String>,
        streamed: bool,
        now: Timestamp,
    ) -> Vec<NewEvent> {
        let content = json!({ "type": "text", "text": text });
        self.keep(MessageKind::Assistant, None, content, parent.clone(), now);
        if streamed {
            return Vec::new();
        }
        if parent.is_none() {
            self.text.push_str(&text);
        }
        let data = with_parent(json!({ "text": text }), parent.as_deref());
        vec![event(ExecutionEventName::TextDelta, &data)]
    }

    fn tool_called(&mut self, tool: ToolUse, now: Timestamp) -> Vec<NewEvent> {
        if !self.tools.begin(&tool, now) {
            return Vec::new();
        }
        let data = json!({
            "tool_use_id": tool.id, "tool_name": tool.name, "tool_input": tool.input,
        });
        let content = json!({
            "type": "tool_use", "id": tool.id, "name": tool.name, "input": tool.input,
        });
        let event = event(ExecutionEventName::ToolUse, &with_parent(data, tool.parent.as_deref()));
        self.keep(MessageKind::Assistant, None, content, tool.parent, now);
        vec![event]
    }

    fn tool_answered(
        &mut self,
        tool_use_id: &str,
        content: &Value,
        is_error: bool,
        parent: Option<String>,
        now: Timestamp,
    ) -> Vec<NewEvent> {
        self.tools.end(tool_use_id, is_error, now);
        let data = json!({ "tool_use_id": tool_use_id, "content": content, "is_error": is_error });
        let event =
            event(ExecutionEventName::ToolResult, &with_parent(data.clone(), parent.as_deref()));
        let mut kept = data;
        kept["type"] = json!("tool_result");
        self.keep(MessageKind::User, None, kept, parent, now);
        vec![event]
    }

    fn subagent_started(&mut self, start: SubagentStart) -> Vec<NewEvent> {
        self.ledger.meet(&start);
        let is_new = !self.subagents.contains_key(&start.tool_use_id);
        let data = self.about(&start);
        self.subagents.insert(start.tool_use_id.clone(), start);
        is_new.then(|| event(ExecutionEventName::SubagentStart, &data)).into_iter().collect()
    }

    fn subagent_ended(&mut self, tool_use_id: &str, is_error: bool) -> Option<NewEvent> {
        let start = self.subagents.remove(tool_use_id)?;
        let (usage, cost) = self.ledger.of_subagent(tool_use_id, &self.expected.prices);
        let mut data = self.about(&start);
        // By now the model has named itself; before, there is only what was asked for.
        if let Some(model) = self.ledger.model_of_subagent(tool_use_id) {
            data["model"] = json!(model);
        }
        data["is_error"] = json!(is_error);
        data["usage"] = json!(usage);
        data["cost_usd"] = json!(cost);
        Some(event(ExecutionEventName::SubagentEnd, &data))
    }

    fn about(&self, start: &SubagentStart) -> Value {
        let asked = start.model.as_ref().filter(|model| *model != "inherit");
        let asked = asked.unwrap_or(&self.expected.subagent_model);
        let model = self.expected.aliases.get(asked).unwrap_or(asked);
        let mut data = json!({
            "tool_use_id": start.tool_use_id,
            "subagent_type": start.subagent_type,
            "model": model,
        });
        if let Some(agent_id) = &start.agent_id {
            data["agent_id"] = json!(agent_id);
        }
        data
    }

    /// No more messages will come. Subagents that still run did not end well.
    pub fn close(&mut self) -> Vec<NewEvent> {
        let alive: Vec<_> = self.subagents.keys().cloned().collect();
        alive.iter().filter_map(|id| self.subagent_ended(id, true)).collect()
    }

    fn keep(
        &mut self,
        kind: MessageKind,
        subtype: Option<String>,
        content: Value,
        parent_tool_use_id: Option<String>,
        at: Timestamp,
    ) {
        self.messages.push(ConversationMessage { kind, subtype, content, parent_tool_use_id, at });
    }

    /// The usage rows so far.
    pub fn rows(&self) -> Vec<UsageRow> {
        self.ledger.rows(&self.expected.prices)
    }

    /// Whether the usage has changed since the last call.
    pub fn take_usage_changed(&mut self) -> bool {
        std::mem::take(&mut self.has_spent)
    }

    pub fn session_id(&self) -> Option<&str> {
        self.session_id.as_deref()
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn finish(&self) -> Option<&EngineFinish> {
        self.finish.as_ref()
    }

    pub fn messages(&self) -> &[ConversationMessage] {
        &self.messages
    }

    pub fn tools(&self) -> &[ToolCall] {
        self.tools.calls()
    }
}

fn event(name: ExecutionEventName, data: &Value) -> NewEvent {
    NewEvent::from_value(name.as_str(), data)
}

/// Tells readers why nothing comes for a while.
fn retry_warning(content: &Value) -> NewEvent {
    let number = |name: &str| content[name].as_u64().unwrap_or(0);
    let delay_ms = number("retry_delay_ms");
    let (attempt, max_retries) = (number("attempt"), number("max_retries"));
    let error = content["error"].as_str().unwrap_or("the model's API does not answer");
    let seconds = delay_ms.div_ceil(1_000);
    let message = format!("retrying in {seconds} s ({attempt} of {max_retries}): {error}");
    let data = json!({
        "code": WarningCode::ApiRetry.as_str(), "message": message,
        "attempt": attempt, "max_retries": max_retries, "retry_delay_ms": delay_ms,
    });
    event(ExecutionEventName::Warning, &data)
}

fn with_parent(mut data: Value, parent: Option<&str>) -> Value {
    if let Some(parent) = parent {
        data["parent_tool_use_id"] = json!(parent);
    }
    data
}

#[cfg(test)]
#[path = "message_processor_tests.rs"]
mod tests;
