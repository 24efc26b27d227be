//! Shows an execution at the terminal: the answer goes to stdout as it comes,
//! everything else to stderr, so that a pipe gets the answer alone.

use std::io::{self, IsTerminal as _};

use serde_json::Value;
use shikiri_model::time::Timestamp;

use super::Happening;
use crate::exit::Failure;
use crate::output::{Output, Style, note};
use crate::spinner::show_waiting;
use crate::text::{safe_text, short};

/// Longer inputs and texts are cut; `stream-json` has them whole.
const SHOWN: usize = 100;

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Text,
    /// One JSON object per event: the data of its SSE frame, and its name as `event`.
    StreamJson,
}

pub struct Teller {
    form: Form,
    is_terminal: bool,
    /// A line has been started and not ended.
    is_mid_line: bool,
    /// What is going on until the next event.
    waits_for: &'static str,
}

impl Teller {
    pub fn new(form: Form) -> Self {
        Self {
            form,
            is_terminal: io::stdout().is_terminal(),
            is_mid_line: false,
            waits_for: "starting",
        }
    }

    pub fn tell(&mut self, happening: &Happening) -> Result<(), Failure> {
        let Happening { kind, data } = happening;
        self.waits_for = match kind.as_str() {
            "queued" => "in the queue",
            "tool_use" => "a tool is at work",
            "waiting" => "waiting for an answer",
            _ => "waiting for the model",
        };
        if self.form == Form::StreamJson {
            return Output::stdout().json_line(data);
        }
        if kind == "text_delta" && data["parent_tool_use_id"].is_null() {
            return self.write(data["text"].as_str().unwrap_or_default());
        }
        match line(kind, data) {
            Some((style, line)) => self.aside(style, &line),
            None => Ok(()),
        }
    }

    /// The next event. A person sees what is waited for, unless a line is being written.
    pub async fn wait_for<T>(&self, next: impl Future<Output = T>) -> T {
        match self.is_mid_line || self.form == Form::StreamJson {
            true => next.await,
            false => show_waiting(self.waits_for, next).await,
        }
    }

    /// The summary for people: tokens, cost, time, and how to continue.
    pub fn end(&mut self, record: &Value) -> Result<(), Failure> {
        if self.form == Form::StreamJson {
            return Ok(());
        }
        if self.is_mid_line {
            Output::stdout().piece("\n")?;
            self.is_mid_line = false;
        }
        self.aside(Style::Dim, &bill(record))
    }

    fn write(&mut self, text: &str) -> Result<(), Failure> {
        if let Some(last) = text.chars().last() {
            self.is_mid_line = last != '\n';
        }
        // A pipe gets the model's exact text; a terminal must not obey its control characters.
        let safe = if self.is_terminal { safe_text(text) } else { text.to_owned() };
        Output::stdout().piece(&safe)
    }

    /// Prints a line beside the answer.
    fn aside(&mut self, style: Style, line: &str) -> Result<(), Failure> {
        if self.is_mid_line && self.is_terminal {
            Output::stdout().piece("\n")?;
            self.is_mid_line = false;
        }
        note(&Output::stderr().paint(style, line));
        Ok(())
    }
}

/// The line of an event that is not part of the answer; None if people need not see it.
fn line(kind: &str, data: &Value) -> Option<(Style, String)> {
    let text = |name: &str| data[name].as_str().unwrap_or_default();
    let indent = if data["parent_tool_use_id"].is_null() { "" } else { "  " };
    let dim = |line: String| Some((Style::Dim, format!("{indent}{}", short(&line, SHOWN))));
    match kind {
        "text_delta" => dim(format!("“{}”", text("text"))),
        "thinking" => dim(format!("thinking: {}", text("text"))),
        // The start of the subagent says more.
        "tool_use" if matches!(text("tool_name"), "Agent" | "Task") => None,
        "tool_use" => dim(format!("→ {} {}", text("tool_name"), data["tool_input"])),
        "tool_result" if data["is_error"] == true => {
            let content = match &data["content"] {
                Value::String(content) => content.clone(),
                other => other.to_string(),
            };
            Some((Style::Warning, short(&format!("{indent}✗ {content}"), SHOWN)))
        }
        "subagent_start" => dim(format!("⇢ {} ({})", text("subagent_type"), text("model"))),
        "subagent_end" => {
            let end = if data["is_error"] == true { "failed" } else { "done" };
            let spent = spent(&data["usage"], &data["cost_usd"]);
            dim(format!("⇠ {} {end}: {spent}", text("subagent_type")))
        }
        "title" => dim(format!("title: {}", text("title"))),
        "warning" if text("code") == "API_RETRY" => {
            Some((Style::Warning, short(text("message"), 4 * SHOWN)))
        }
        "warning" => {
            let warning = format!("warning: {}: {}", text("code"), text("message"));
            Some((Style::Warning, short(&warning, 4 * SHOWN)))
        }
        "resync" => Some((Style::Warning, "warning: earlier events are no longer kept".to_owned())),
        _ => None,
    }
}

fn bill(record: &Value) -> String {
    let spent = spent(&record["usage"], &record["total_cost_usd"]);
    let time = duration_ms(record).map(|ms| match ms {
        0..1_000 => format!(" · {ms} ms"),
        _ => format!(" · {:.1} s", ms as f64 / 1_000.0),
    });
    let conversation = record["conversation_id"].as_str().unwrap_or_default();
    format!("{spent}{} · go on with --conversation {conversation}", time.unwrap_or_default())
}

/// The engine's own time; for an execution without a result, the time from start to end.
fn duration_ms(record: &Value) -> Option<u64> {
    let time = |name: &str| record[name].as_str()?.parse::<Timestamp>().ok();
    let whole = || {
        let took = time("ended_at")?.since(time("created_at")?);
        u64::try_from(took.as_millis()).ok()
    };
    record["duration_ms"].as_u64().or_else(whole)
}

/// Tokens in and out, and dollars with all their digits.
fn spent(usage: &Value, cost: &Value) -> String {
    let tokens = |name: &str| usage[name].as_u64().unwrap_or(0);
    let cached = tokens("cache_read_tokens");
    let written = tokens("cache_write_5m_tokens").saturating_add(tokens("cache_write_1h_tokens"));
    let read = tokens("input_tokens").saturating_add(written).saturating_add(cached);
    let of_cache = if cached > 0 { format!(" ({cached} cached)") } else { String::new() };
    let cost = cost.as_f64().unwrap_or(0.0);
    format!("{read} tokens in{of_cache}, {} out · ${cost}", tokens("output_tokens"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn events_are_told_in_one_safe_line_each() {
        let told = |kind: &str, data: Value| line(kind, &data).map(|(_, line)| line);
        let tool = json!({ "tool_name": "Bash", "tool_input": { "command": "ls\u{1b}[2J" } });
        assert_eq!(told("tool_use", tool).unwrap(), "→ Bash {\"command\":\"ls\\u001b[2J\"}");
        let inner = json!({ "tool_name": "a\u{9b}", "tool_input": 1, "parent_tool_use_id": "t" });
        assert_eq!(told("tool_use", inner).unwrap(), "  → a\\u{9b} 1");
        let end = json!({
            "subagent_type": "調査", "is_error": false, "cost_usd": 0.000_046_05,
            "usage": { "input_tokens": 5, "cache_read_tokens": 7, "output_tokens": 2 },
        });
        let expected = "⇠ 調査 done: 12 tokens in (7 cached), 2 out · $0.00004605";
        assert_eq!(told("subagent_end", end).unwrap(), expected);
        let warning = json!({ "code": "MCP_SERVER_UNAVAILABLE", "message": "天気" });
        assert_eq!(told("warning", warning).unwrap(), "warning: MCP_SERVER_UNAVAILABLE: 天気");
        let retry = json!({ "code": "API_RETRY", "message": "retrying in 4 s (2 of 10): busy" });
        assert_eq!(told("warning", retry).unwrap(), "retrying in 4 s (2 of 10): busy");
        assert_eq!(told("tool_result", json!({ "is_error": false, "content": "x" })), None);
        assert_eq!(told("session_start", json!({})), None);
    }

    #[test]
    fn the_last_line_has_tokens_cost_time_and_the_conversation() {
        let mut record = json!({
            "usage": { "input_tokens": 10, "output_tokens": 20 }, "total_cost_usd": 0.5,
            "conversation_id": "cnv_1", "duration_ms": 1_250,
        });
        let expected = "10 tokens in, 20 out · $0.5 · 1.2 s · go on with --conversation cnv_1";
        assert_eq!(bill(&record), expected);
        record["duration_ms"] = json!(null);
        record["created_at"] = json!("2026-11-15T20:00:00.000Z");
        record["ended_at"] = json!("2026-11-15T20:00:02.000Z");
        assert!(bill(&record).contains(" · 2.0 s · "));
    }
}
