//! What the CLI prints, in the model's vocabulary. Pure: lines in, messages out.
//!
//! Of the several messages that one answer of the model makes, each holds one block; their usage is
//! only how the request began. The text of the main thread also comes in pieces before.

use std::collections::HashSet;

use serde_json::{Value, json};
use shikiri_model::execution::{EngineMessage, Finish, Spender, ToolUse, Usage};

use super::SYNTHETIC;
use super::agents::Agents;
use super::ledger::{self, Ledger, Source};
use super::transcripts::Row;

/// Messages about progress, which come in numbers and say nothing that another does not.
const PASSED_OVER: [&str; 4] =
    ["background_tasks_changed", "status", "task_progress", "thinking_tokens"];
/// Of its own diagnosis the CLI makes an error when it is interrupted.
const DIAGNOSIS: &str = "[ede_diagnostic]";

#[derive(Debug, Default)]
pub(super) struct Translator {
    session_id: Option<String>,
    agents: Agents,
    ledger: Ledger,
    /// The main thread's request that is being answered.
    open: Option<String>,
    /// Of the block that is being written, what was told.
    written: String,
    /// Servers of which it was said that they are not there.
    unavailable: HashSet<String>,
    /// Whether the CLI is at work; None if it has never said.
    is_working: Option<bool>,
    results: u64,
    num_turns: u64,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Working,
    /// All is done, as it seems; but the model may still hear of an agent that has ended.
    Settling,
    Done,
}

impl Translator {
    pub(super) fn take(&mut self, line: &Value) -> Vec<EngineMessage> {
        match line["type"].as_str().unwrap_or_default() {
            "system" => self.system(line),
            "assistant" => self.assistant(line),
            "user" => self.user(line),
            "stream_event" => self.stream_event(line).into_iter().collect(),
            "result" => vec![self.result(line)],
            // The driver's business, and they hold the headers of servers.
            "control_request" | "control_response" | "control_cancel_request" => Vec::new(),
            other => {
                tracing::debug!(kind = other, "claude wrote a message of an unknown type");
                vec![note(other, line)]
            }
        }
    }

    /// What a transcript shows of a subagent.
    pub(super) fn take_row(&mut self, row: &Row) -> Option<EngineMessage> {
        let who = Spender::Subagent(self.call_of(row)?.to_owned());
        if row.model == SYNTHETIC {
            return None;
        }
        self.ledger.spend(who, &row.message_id, &row.model, row.usage, Source::Whole)
    }

    /// The call that spawned the subagent of a row.
    pub(super) fn call_of<'a>(&'a self, row: &'a Row) -> Option<&'a str> {
        row.tool_use_id.as_deref().or_else(|| self.agents.call_of(&row.agent_id))
    }

    /// Nothing more will come: what is left to be told of what was spent.
    pub(super) fn close(&self) -> Vec<EngineMessage> {
        self.ledger.rest().into_iter().chain(self.ledger.cut()).collect()
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

    pub(super) fn phase(&self) -> Phase {
        if self.results == 0 || self.is_working == Some(true) || !self.agents.have_ended() {
            Phase::Working
        } else if self.agents.are_gone() {
            Phase::Done
        } else {
            Phase::Settling
        }
    }

    fn system(&mut self, line: &Value) -> Vec<EngineMessage> {
        let told = match line["subtype"].as_str().unwrap_or_default() {
            "init" => return self.init(line),
            "task_started" => self.agents.started(line),
            "task_updated" => self.agents.updated(line),
            "task_notification" => self.agents.notified(line),
            "session_state_changed" => {
                self.is_working = Some(line["state"] != "idle");
                None
            }
            passed_over if PASSED_OVER.contains(&passed_over) => None,
            // Among them `finish`, `api_retry`, `compact_boundary` and what is still unheard of.
            other => Some(note(other, line)),
        };
        told.into_iter().collect()
    }

    /// The CLI says this again at every turn of its own.
    fn init(&mut self, line: &Value) -> Vec<EngineMessage> {
        let mut told = Vec::new();
        let session_id = text(&line["session_id"]);
        if self.session_id.as_ref() != Some(&session_id) {
            let model = text(&line["model"]);
            told.push(EngineMessage::Started { session_id: session_id.clone(), model });
            self.session_id = Some(session_id);
        }
        for server in items(&line["mcp_servers"]) {
            let (name, status) = (text(&server["name"]), text(&server["status"]));
            if matches!(status.as_str(), "connected" | "disabled") {
                continue;
            }
            if self.unavailable.insert(name.clone()) {
                told.push(unavailable(&name, &format!("its status is {status}")));
            }
        }
        told
    }

    fn assistant(&mut self, line: &Value) -> Vec<EngineMessage> {
        let message = &line["message"];
        if message["model"] == SYNTHETIC {
            // The CLI's own words, for an error of the API or where the model has none.
            return vec![note("synthetic", message)];
        }
        let parent = line["parent_tool_use_id"].as_str();
        let mut told = Vec::new();
        for block in items(&message["content"]) {
            self.block(block, parent, &mut told);
        }
        if let Some(id) = message["id"].as_str() {
            let who = parent.map_or(Spender::Main, |call| Spender::Subagent(call.to_owned()));
            let usage = ledger::update(Usage::default(), &message["usage"]);
            let model = text(&message["model"]);
            told.extend(self.ledger.spend(who, id, &model, usage, Source::Opening));
        }
        told
    }

    fn block(&mut self, block: &Value, parent: Option<&str>, told: &mut Vec<EngineMessage>) {
        let owner = parent.map(str::to_owned);
        match block["type"].as_str().unwrap_or_default() {
            "text" => {
                let text = text(&block["text"]);
                let written = match parent {
                    None => std::mem::take(&mut self.written),
                    Some(_) => String::new(),
                };
                let streamed = !written.is_empty();
                // Pieces that are still to come would come too late: the whole is told now.
                if let Some(rest) = text.strip_prefix(&written).filter(|_| streamed)
                    && !rest.is_empty()
                {
                    told.push(EngineMessage::TextDelta { text: rest.to_owned() });
                }
                told.push(EngineMessage::Text { text, parent: owner, streamed });
            }
            "thinking" => {
                let text = text(&block["thinking"]);
                told.push(EngineMessage::Thinking { text, parent: owner });
            }
            "tool_use" | "server_tool_use" => {
                let (id, name) = (text(&block["id"]), text(&block["name"]));
                let input = block["input"].clone();
                let started = self.agents.called(&id, &name, &input);
                told.push(EngineMessage::ToolUse(ToolUse { id, name, input, parent: owner }));
                told.extend(started);
            }
            other => told.push(note(other, block)),
        }
    }

    fn user(&mut self, line: &Value) -> Vec<EngineMessage> {
        let content = &line["message"]["content"];
        let parent = line["parent_tool_use_id"].as_str().map(str::to_owned);
        let mut told = Vec::new();
        if content.is_string() {
            told.push(note("user_text", content));
        }
        for block in items(content) {
            if block["type"] != "tool_result" {
                told.push(note("user_text", block));
                continue;
            }
            let tool_use_id = text(&block["tool_use_id"]);
            let is_error = block["is_error"] == true;
            let ended = self.agents.returned(&tool_use_id, is_error, &line["tool_use_result"]);
            told.extend(ended);
            let (content, parent) = (block["content"].clone(), parent.clone());
            told.push(EngineMessage::ToolResult { tool_use_id, content, is_error, parent });
        }
        told
    }

    /// An event of the API's stream. They come for the main thread only.
    fn stream_event(&mut self, line: &Value) -> Option<EngineMessage> {
        if !line["parent_tool_use_id"].is_null() {
            return None;
        }
        let event = &line["event"];
        match event["type"].as_str().unwrap_or_default() {
            "message_start" => {
                let message = &event["message"];
                let (id, model) = (text(&message["id"]), text(&message["model"]));
                let usage = ledger::update(Usage::default(), &message["usage"]);
                self.open = Some(id.clone());
                self.ledger.spend(Spender::Main, &id, &model, usage, Source::Open)
            }
            "content_block_start" => {
                self.written.clear();
                None
            }
            "content_block_delta" => {
                let text = event["delta"]["text"].as_str().filter(|text| !text.is_empty())?;
                self.written.push_str(text);
                Some(EngineMessage::TextDelta { text: text.to_owned() })
            }
            "message_delta" => {
                let named = line["api_message_id"].as_str();
                let id = named.or(self.open.as_deref())?;
                // One that was interrupted ends without a reason.
                let has_ended = !event["delta"]["stop_reason"].is_null();
                let source = if has_ended { Source::Whole } else { Source::Open };
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
            // The model was not asked: the next result tells of several ends at once.
            return note("result", line);
        }
        let is_error = line["is_error"] == true;
        let result = text(&line["result"]);
        EngineMessage::Finished(Finish {
            errors: if is_error { errors(line, &result) } else { Vec::new() },
            result,
            is_error,
            num_turns: self.num_turns,
            session_id: line["session_id"].as_str().map(str::to_owned),
            limit: None,
        })
    }
}

/// What went wrong, in the words that are nearest to the cause.
fn errors(line: &Value, result: &str) -> Vec<String> {
    let told = items(&line["errors"]).iter().filter_map(Value::as_str);
    let told: Vec<_> = told.filter(|e| !e.starts_with(DIAGNOSIS)).map(str::to_owned).collect();
    if !told.is_empty() {
        return told;
    }
    let reasons = [Some(result), line["terminal_reason"].as_str(), line["subtype"].as_str()];
    let reason = reasons.into_iter().flatten().find(|reason| !reason.is_empty());
    reason.map(str::to_owned).into_iter().collect()
}

pub(super) fn unavailable(server: &str, why: &str) -> EngineMessage {
    EngineMessage::Warning {
        code: "MCP_SERVER_UNAVAILABLE",
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
#[path = "translate_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "replay_tests.rs"]
mod replay;
