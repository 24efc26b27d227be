//! Translates the CLI's lines into engine messages. Pure: lines in, messages out.
//!
//! One answer of the model arrives as several messages with one block each. Their usage shows only
//! the start of the request. The text of the main thread is also streamed in pieces before.

use std::collections::HashSet;

use serde_json::{Value, json};
use shikiri_model::execution::{EngineFinish, EngineMessage, TokenSpender, TokenUsage, ToolUse};
use shikiri_model::native::LimitKind;
use shikiri_model::run::WarningCode;

use super::SYNTHETIC;
use super::subagent_tracker::SubagentTracker;
use super::subagent_transcripts::TranscriptRow;
use super::usage_ledger::{self, CliUsageLedger, UsageQuality};

/// Frequent progress messages without further information.
const IGNORED: [&str; 4] =
    ["background_tasks_changed", "status", "task_progress", "thinking_tokens"];
/// The prefix of the CLI's own diagnosis, which an interrupt adds to the errors.
const DIAGNOSIS: &str = "[ede_diagnostic]";

#[derive(Debug, Default)]
pub(super) struct CliTranslator {
    session_id: Option<String>,
    agents: SubagentTracker,
    ledger: CliUsageLedger,
    /// The id of the main thread's request that is being answered.
    open: Option<String>,
    /// The streamed text of the current block.
    streamed_text: String,
    /// MCP servers that were reported as unavailable.
    unavailable: HashSet<String>,
    /// Whether the CLI is working; `None` if it has never said so.
    is_working: Option<bool>,
    results: u64,
    num_turns: u64,
}

/// The progress of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CliRunPhase {
    Working,
    /// There is a result, but the model may still be messages of a subagent that has ended.
    Settling,
    Done,
}

impl CliTranslator {
    pub(super) fn take(&mut self, line: &Value) -> Vec<EngineMessage> {
        match line["type"].as_str().unwrap_or_default() {
            "system" => self.system(line),
            "assistant" => self.assistant(line),
            "user" => self.user(line),
            "stream_event" => self.stream_event(line).into_iter().collect(),
            "result" => vec![self.result(line)],
            // The driver handles these. They may hold the headers of servers.
            "control_request" | "control_response" | "control_cancel_request" => Vec::new(),
            other => {
                tracing::debug!(kind = other, "claude wrote a message of an unknown type");
                vec![note(other, line)]
            }
        }
    }

    /// Takes a row of a subagent's transcript.
    pub(super) fn take_row(&mut self, row: &TranscriptRow) -> Option<EngineMessage> {
        let who = TokenSpender::Subagent(self.spawning_call(row)?.to_owned());
        if row.model == SYNTHETIC {
            return None;
        }
        self.ledger.spend(who, &row.message_id, &row.model, row.usage, UsageQuality::Whole)
    }

    /// The call that spawned the subagent of a row.
    pub(super) fn spawning_call<'a>(&'a self, row: &'a TranscriptRow) -> Option<&'a str> {
        row.tool_use_id.as_deref().or_else(|| self.agents.spawning_call(&row.agent_id))
    }

    /// The final messages about usage, after the last line.
    pub(super) fn close(&self) -> Vec<EngineMessage> {
        self.ledger
            .unexplained_usage()
            .into_iter()
            .chain(self.ledger.incomplete_usage_warning())
            .collect()
    }

    pub(super) fn session_id(&self) -> Option<&str> {
        self.session_id.as_deref()
    }

    pub(super) fn results(&self) -> u64 {
        self.results
    }

    pub(super) fn is_idle(&self) -> bool {
        self.is_working == Some(false)
    }

    pub(super) fn phase(&self) -> CliRunPhase {
        if self.results == 0 || self.is_working == Some(true) || !self.agents.all_ended() {
            CliRunPhase::Working
        } else if self.agents.all_reported() {
            CliRunPhase::Done
        } else {
            CliRunPhase::Settling
        }
    }

    fn system(&mut self, line: &Value) -> Vec<EngineMessage> {
        let message = match line["subtype"].as_str().unwrap_or_default() {
            "init" => return self.init(line),
            "task_started" => self.agents.on_task_started(line),
            "task_updated" => self.agents.on_task_updated(line),
            "task_notification" => self.agents.on_task_notification(line),
            "session_state_changed" => {
                self.is_working = Some(line["state"] != "idle");
                None
            }
            ignored if IGNORED.contains(&ignored) => None,
            // Such as `finish`, `api_retry`, `compact_boundary` and unknown ones.
            other => Some(note(other, line)),
        };
        message.into_iter().collect()
    }

    /// The CLI repeats this message at each of its own turns.
    fn init(&mut self, line: &Value) -> Vec<EngineMessage> {
        let mut messages = Vec::new();
        let session_id = text(&line["session_id"]);
        if self.session_id.as_ref() != Some(&session_id) {
            let model = text(&line["model"]);
            messages.push(EngineMessage::Started { session_id: session_id.clone(), model });
            self.session_id = Some(session_id);
        }
        for server in items(&line["mcp_servers"]) {
            let (name, status) = (text(&server["name"]), text(&server["status"]));
            if matches!(status.as_str(), "connected" | "disabled") {
                continue;
            }
            if self.unavailable.insert(name.clone()) {
                messages.push(unavailable(&name, &format!("its status is {status}")));
            }
        }
        messages
    }

    fn assistant(&mut self, line: &Value) -> Vec<EngineMessage> {
        let message = &line["message"];
        if message["model"] == SYNTHETIC {
            // Text of the CLI itself, such as for an error of the API.
            return vec![note("synthetic", message)];
        }
        let parent = line["parent_tool_use_id"].as_str();
        let mut messages = Vec::new();
        for block in items(&message["content"]) {
            self.block(block, parent, &mut messages);
        }
        if let Some(id) = message["id"].as_str() {
            let who =
                parent.map_or(TokenSpender::Main, |call| TokenSpender::Subagent(call.to_owned()));
            let usage = usage_ledger::update(TokenUsage::default(), &message["usage"]);
            let model = text(&message["model"]);
            messages.extend(self.ledger.spend(who, id, &model, usage, UsageQuality::Opening));
        }
        messages
    }

    fn block(&mut self, block: &Value, parent: Option<&str>, messages: &mut Vec<EngineMessage>) {
        let owner = parent.map(str::to_owned);
        match block["type"].as_str().unwrap_or_default() {
            "text" => {
                let text = text(&block["text"]);
                let written = match parent {
                    None => std::mem::take(&mut self.streamed_text),
                    Some(_) => String::new(),
                };
                let streamed = !written.is_empty();
                // Sends the rest of the text now, because later pieces are dropped.
                if let Some(rest) = text.strip_prefix(&written).filter(|_| streamed)
                    && !rest.is_empty()
                {
                    messages.push(EngineMessage::TextDelta { text: rest.to_owned() });
                }
                messages.push(EngineMessage::Text { text, parent: owner, streamed });
            }
            "thinking" => {
                let text = text(&block["thinking"]);
                messages.push(EngineMessage::Thinking { text, parent: owner });
            }
            "tool_use" | "server_tool_use" => {
                let (id, name) = (text(&block["id"]), text(&block["name"]));
                let input = block["input"].clone();
                let started = self.agents.on_tool_call(&id, &name, &input);
                messages.push(EngineMessage::ToolUse(ToolUse { id, name, input, parent: owner }));
                messages.extend(started);
            }
            other => messages.push(note(other, block)),
        }
    }

    fn user(&mut self, line: &Value) -> Vec<EngineMessage> {
        let content = &line["message"]["content"];
        let parent = line["parent_tool_use_id"].as_str().map(str::to_owned);
        let mut messages = Vec::new();
        if content.is_string() {
            messages.push(note("user_text", content));
        }
        for block in items(content) {
            if block["type"] != "tool_result" {
                messages.push(note("user_text", block));
                continue;
            }
            let tool_use_id = text(&block["tool_use_id"]);
            let is_error = block["is_error"] == true;
            let ended =
                self.agents.on_tool_result(&tool_use_id, is_error, &line["tool_use_result"]);
            messages.extend(ended);
            let (content, parent) = (block["content"].clone(), parent.clone());
            messages.push(EngineMessage::ToolResult { tool_use_id, content, is_error, parent });
        }
        messages
    }

    /// An event of the API's stream. Only the main thread has these.
    fn stream_event(&mut self, line: &Value) -> Option<EngineMessage> {
        if !line["parent_tool_use_id"].is_null() {
            return None;
        }
        let event = &line["event"];
        match event["type"].as_str().unwrap_or_default() {
            "message_start" => {
                let message = &event["message"];
                let (id, model) = (text(&message["id"]), text(&message["model"]));
                let usage = usage_ledger::update(TokenUsage::default(), &message["usage"]);
                self.open = Some(id.clone());
                self.ledger.spend(TokenSpender::Main, &id, &model, usage, UsageQuality::Open)
            }
            "content_block_start" => {
                self.streamed_text.clear();
                None
            }
            "content_block_delta" => {
                let text = event["delta"]["text"].as_str().filter(|text| !text.is_empty())?;
                self.streamed_text.push_str(text);
                Some(EngineMessage::TextDelta { text: text.to_owned() })
            }
            "message_delta" => {
                let named = line["api_message_id"].as_str();
                let id = named.or(self.open.as_deref())?;
                // An interrupted request ends without a reason.
                let has_ended = !event["delta"]["stop_reason"].is_null();
                let source = if has_ended { UsageQuality::Whole } else { UsageQuality::Open };
                self.ledger.add(id, &event["usage"], source)
            }
            _ => None,
        }
    }

    fn result(&mut self, line: &Value) -> EngineMessage {
        self.ledger.count(line);
        self.results += 1;
        let turns = line["num_turns"].as_u64().unwrap_or(0);
        self.num_turns += turns;
        if turns == 0 && line["origin"]["kind"] == "task-notification" {
            // The model was not asked: the next result covers several subagents at once.
            return note("result", line);
        }
        let is_error = line["is_error"] == true;
        let result = text(&line["result"]);
        EngineMessage::Finished(EngineFinish {
            errors: if is_error { errors(line, &result) } else { Vec::new() },
            result,
            is_error,
            num_turns: self.num_turns,
            session_id: line["session_id"].as_str().map(str::to_owned),
            limit: limit(line),
        })
    }
}

/// The limit of the request that ended the turn.
fn limit(line: &Value) -> Option<&'static str> {
    let limit = match line["subtype"].as_str()? {
        "error_max_turns" => LimitKind::MaxTurns,
        "error_max_budget_usd" => LimitKind::MaxCostUsd,
        _ => return None,
    };
    Some(limit.as_str())
}

/// The errors of a result, in the most specific text that it has.
fn errors(line: &Value, result: &str) -> Vec<String> {
    let errors = items(&line["errors"]).iter().filter_map(Value::as_str);
    let errors: Vec<_> = errors.filter(|e| !e.starts_with(DIAGNOSIS)).map(str::to_owned).collect();
    if !errors.is_empty() {
        return errors;
    }
    let reasons = [Some(result), line["terminal_reason"].as_str(), line["subtype"].as_str()];
    let reason = reasons.into_iter().flatten().find(|reason| !reason.is_empty());
    reason.map(str::to_owned).into_iter().collect()
}

pub(super) fn unavailable(server: &str, why: &str) -> EngineMessage {
    EngineMessage::Warning {
        code: WarningCode::McpServerUnavailable,
        message: format!("the MCP server {server:?} cannot be used: {why}"),
        server: Some(server.to_owned()),
    }
}

fn note(subtype: &str, content: &Value) -> EngineMessage {
    let mut content = content.clone();
    if let Some(fields) = content.as_object_mut() {
        for name in ["type", "subtype", "uuid", "session_id"] {
            fields.remove(name);
        }
    }
    EngineMessage::Note { subtype: subtype.to_owned(), content: json!(content) }
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
#[path = "cli_translator_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "cli_translator_replay_tests.rs"]
mod replay;
