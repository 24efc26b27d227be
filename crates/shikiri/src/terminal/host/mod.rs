//! Calls at a terminal: a person watches them and answers the servers' questions.

mod ask;
mod changes;
mod editor;
mod offline;
mod results;
mod row;
mod screen;
mod sheet;

use std::collections::{HashMap, HashSet};
use std::io::IsTerminal as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use screen::RowKey;
use serde_json::{Map, Value};
use shikiri_host::{CallUpdate, SamplingConsent, UserInteraction};
use shikiri_model::host::{ElicitationForm, FormAnswer, HostCall, sanitize_line, sanitize_text};
use shikiri_model::ids::HostCallId;
use shikiri_model::tool::ToolChange;

use crate::output::{Output, Style};

pub(crate) use changes::{changes_line, difference};
pub(crate) use editor::{CommandLine, Typed};
pub(crate) use offline::offline_sample;
pub(crate) use results::result_lines;
pub(crate) use row::columns;
pub(crate) use screen::{Screen, width};

/// Whether a person is at the terminal, who can be asked.
pub(crate) fn has_person() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Asks the person at the terminal to fill in one form.
pub(crate) async fn ask_person(who: &str, form: &ElicitationForm) -> FormAnswer {
    let screen = Screen::new();
    let keyboard = screen.keyboard().await;
    let answer = ask::fill_in(&screen, &keyboard, who, form).await;
    drop(keyboard);
    screen.close().await;
    answer
}

/// Lines of a prompt that are shown before a model is called.
const PROMPT_LINES: usize = 6;

/// A person who watches calls, any number at once.
pub(crate) struct Person {
    screen: Arc<Screen>,
    seen: Mutex<Seen>,
    /// Allows tools whose definitions have changed.
    accepts_changes: bool,
}

#[derive(Default)]
struct Seen {
    rows: HashMap<HostCallId, RowKey>,
    /// The person's answers about models, by call.
    consents: HashMap<HostCallId, SamplingConsent>,
    ended: HashSet<HostCallId>,
}

impl Person {
    pub(crate) fn new(screen: &Arc<Screen>) -> Self {
        Self { screen: Arc::clone(screen), seen: Mutex::default(), accepts_changes: false }
    }

    /// Sets in advance whether changed tools may be called.
    pub(crate) fn accepting_changes(self, accepts_changes: bool) -> Self {
        Self { accepts_changes, ..self }
    }

    pub(crate) fn screen(&self) -> &Arc<Screen> {
        &self.screen
    }

    /// Removes everything from the screen, which is no longer needed.
    pub(crate) fn leave(&self) {
        self.lock().rows.drain().for_each(|(_, key)| self.screen.end(key));
    }

    /// Whether this call is on the screen.
    pub(crate) fn watches(&self, id: &HostCallId) -> bool {
        self.lock().rows.contains_key(id)
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn row(&self, call: &HostCall) -> Option<RowKey> {
        let mut seen = self.lock();
        if seen.ended.contains(&call.id) {
            return None;
        }
        if let Some(key) = seen.rows.get(&call.id) {
            return Some(*key);
        }
        let key = self.screen.begin(&name(&call.server, &call.tool));
        seen.rows.insert(call.id.clone(), key);
        // A resumed call shows its former progress.
        if let Some(known) = &call.progress {
            let message = known.message.as_deref().map(sanitize_line);
            self.screen.change(key, |row| {
                (row.progress, row.total) = (Some(known.progress), known.total);
                row.message = message.unwrap_or_default();
            });
        }
        Some(key)
    }

    fn progressed(&self, call: &HostCall, data: &Value) {
        let Some(key) = self.row(call) else { return };
        let message = data["message"].as_str().map(sanitize_line);
        self.screen.change(key, |row| {
            (row.progress, row.total) = (data["progress"].as_f64(), data["total"].as_f64());
            if let Some(message) = message {
                row.message = message;
            }
        });
    }

    fn end(&self, call: &HostCall) {
        let key = self.row(call);
        let mut seen = self.lock();
        seen.rows.remove(&call.id);
        seen.ended.insert(call.id.clone());
        if let Some(key) = key {
            self.screen.end(key);
        }
    }

    fn say(&self, call: &HostCall, text: &str) {
        self.screen.say(&format!("{}: {text}", name(&call.server, &call.tool)));
    }
}

fn name(server: &str, tool: &str) -> String {
    sanitize_line(&format!("{server} {tool}"))
}

#[async_trait]
impl UserInteraction for Person {
    fn show(&self, call: &HostCall, shown: &CallUpdate) {
        let text = |key: &str| shown.data[key].as_str().map(sanitize_line).unwrap_or_default();
        match shown.kind {
            "progress" => {
                self.progressed(call, &shown.data);
                if self.screen.is_dumb() {
                    let (done, message) = (&shown.data["progress"], text("message"));
                    self.say(call, &format!("{done} {message}"));
                }
            }
            "log" => {
                let said = shown.data["text"].as_str().unwrap_or_default();
                self.say(call, &logged(&text("level"), said));
            }
            "task" => self.say(call, &format!("goes on as the task {}", text("id"))),
            "run" => self.say(call, &format!("goes on as the run {}", text("run_id"))),
            "ended" => self.end(call),
            // The bar appears with the first event.
            _ => drop(self.row(call)),
        }
    }

    fn tell_changes(&self, server: &str, changes: &[ToolChange]) {
        self.screen.say(&changes_line(server, changes));
    }

    async fn accepts_change(&self, server: &str, change: &ToolChange) -> bool {
        let keyboard = self.screen.keyboard().await;
        self.screen.say(&difference(server, change));
        if self.accepts_changes {
            return true;
        }
        let label = "Call it, and know it as it is now? (y/n) ";
        matches!(ask::yes_or_no(&self.screen, &keyboard, label).await, ask::Said::Yes)
    }

    async fn ask(&self, call: &HostCall, form: &ElicitationForm) -> FormAnswer {
        let keyboard = self.screen.keyboard().await;
        ask::fill_in(&self.screen, &keyboard, &name(&call.server, &call.tool), form).await
    }

    async fn visit(&self, call: &HostCall, message: &str, url: &str) -> FormAnswer {
        let keyboard = self.screen.keyboard().await;
        let who = name(&call.server, &call.tool);
        self.screen.say(&format!("{who} wants you to visit a page: {}", sanitize_line(message)));
        self.screen.say(&format!("  {}", sanitize_line(url)));
        self.screen.say("Nothing is opened for you. Look whether you trust the address.");
        match ask::yes_or_no(&self.screen, &keyboard, "Will you go there? (y/n) ").await {
            ask::Said::Yes => FormAnswer::Accept(Map::new()),
            ask::Said::No => FormAnswer::Decline(Map::new()),
            ask::Said::Nothing => FormAnswer::Cancel,
        }
    }

    async fn may_ask_model(&self, call: &HostCall, model: &str, prompt: &str) -> SamplingConsent {
        let keyboard = self.screen.keyboard().await;
        if let Some(consent) = self.lock().consents.get(&call.id) {
            return *consent;
        }
        let who = name(&call.server, &call.tool);
        self.screen.say(&format!("{who} wants the model {} to be asked:", sanitize_line(model)));
        for line in sanitize_text(prompt).lines().take(PROMPT_LINES) {
            self.screen.say(&format!("  | {}", sanitize_line(line)));
        }
        let label = "May it ask, for all of this call? (y/n) ";
        let consent = match ask::yes_or_no(&self.screen, &keyboard, label).await {
            ask::Said::Yes => SamplingConsent::Given,
            ask::Said::No | ask::Said::Nothing => SamplingConsent::Refused,
        };
        self.lock().consents.insert(call.id.clone(), consent);
        consent
    }

    async fn sample(&self, _: &HostCall, params: &Value) -> Result<Value, String> {
        Ok(offline_sample(params))
    }
}

/// A line of a server's log, or part of its result.
fn logged(level: &str, text: &str) -> String {
    let read: Option<Value> = serde_json::from_str(text).ok();
    let output = Output::stderr();
    if let Some(partial) = read.as_ref().and_then(|read| read.get("partial")) {
        let partial = partial.as_str().map_or_else(|| partial.to_string(), str::to_owned);
        return format!(
            "{} {}",
            output.paint(Style::Good, "partial result:"),
            sanitize_line(&partial)
        );
    }
    let style = match level {
        "warning" => Style::Warning,
        "error" | "critical" | "alert" | "emergency" => Style::Bad,
        _ => Style::Dim,
    };
    let text = sanitize_text(text);
    format!("{} {}", output.paint(style, &format!("[{level}]")), text.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partial_result_is_told_from_a_log_line() {
        assert_eq!(logged("info", "Processing"), "[info] Processing");
        assert_eq!(logged("info", r#"{"run_id":"r","partial":[1,2]}"#), "partial result: [1,2]");
        assert_eq!(logged("info", r#"{"partial":"\u001b[2Jhalf"}"#), "partial result: half");
        assert_eq!(logged("info", r#"{"other":1}"#), r#"[info] {"other":1}"#);
    }
}
