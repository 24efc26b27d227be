//! Shows calls without a person at a terminal: as lines, with answers that were given in advance.

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use shikiri_host::{CallUpdate, SamplingConsent, UserInteraction};
use shikiri_model::host::{ElicitationForm, FormAnswer, HostCall, sanitize_line, sanitize_text};
use shikiri_model::tool::ToolChange;

use crate::output::{Output, note};
use crate::terminal::host::{changes_line, difference, offline_sample};

/// The answer to questions that no person can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beforehand {
    Yes,
    No,
}

/// How a call is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallOutput {
    /// Lines for people, on stderr.
    Lines,
    /// One JSON object for each event, on stdout.
    Events,
    Silent,
}

pub(super) struct Plain {
    pub(super) beforehand: Beforehand,
    /// Allows tools whose definitions have changed.
    pub(super) accepts_changes: bool,
    pub(super) output: CallOutput,
}

#[async_trait]
impl UserInteraction for Plain {
    fn show(&self, call: &HostCall, shown: &CallUpdate) {
        match self.output {
            CallOutput::Silent => {}
            CallOutput::Events => {
                // The output has no reader any more. The call continues.
                let _ = Output::stdout().json_line(&event(call, shown));
            }
            CallOutput::Lines => {
                if let Some(line) = line(shown) {
                    note(&format!("{} {}: {line}", call.server, call.tool));
                }
            }
        }
    }

    fn tell_changes(&self, server: &str, changes: &[ToolChange]) {
        note(&changes_line(server, changes));
    }

    /// The difference is always shown. `--yes` answers questions during a call, so it does not
    /// accept a change of the server itself.
    async fn accepts_change(&self, server: &str, change: &ToolChange) -> bool {
        note(&difference(server, change));
        self.accepts_changes
    }

    async fn ask(&self, call: &HostCall, form: &ElicitationForm) -> FormAnswer {
        if self.output != CallOutput::Silent {
            let answer = if self.beforehand == Beforehand::Yes { "yes" } else { "no" };
            let question = sanitize_line(&form.message);
            note(&format!("{} asks: {question} — {answer}, as was said beforehand", call.server));
        }
        match self.beforehand {
            Beforehand::Yes => form.default_answer(),
            Beforehand::No if form.is_confirmation() => form.confirmation_answer(false),
            Beforehand::No => FormAnswer::Decline(Map::new()),
        }
    }

    async fn visit(&self, call: &HostCall, message: &str, url: &str) -> FormAnswer {
        note(&format!(
            "{} wants you to visit {} ({}); questions are declined here",
            call.server,
            sanitize_line(url),
            sanitize_line(message)
        ));
        FormAnswer::Decline(Map::new())
    }

    async fn may_ask_model(&self, _: &HostCall, _: &str, _: &str) -> SamplingConsent {
        match self.beforehand {
            Beforehand::Yes => SamplingConsent::Given,
            Beforehand::No => SamplingConsent::NoUser,
        }
    }

    async fn sample(&self, _: &HostCall, params: &Value) -> Result<Value, String> {
        Ok(offline_sample(params))
    }
}

/// An event in JSON.
pub(super) fn event(call: &HostCall, shown: &CallUpdate) -> Value {
    let mut event = json!({
        "event": shown.kind,
        "call_id": call.id,
        "server": call.server,
        "tool": call.tool,
    });
    if let (Some(fields), Some(more)) = (event.as_object_mut(), shown.data.as_object()) {
        fields.extend(more.clone());
    }
    if shown.kind == "ended" {
        event["result"] = json!(call.result);
    }
    event
}

/// An event as a line for people; None if it is not interesting.
pub(super) fn line(shown: &CallUpdate) -> Option<String> {
    let text = |key: &str| shown.data[key].as_str().map(sanitize_line).unwrap_or_default();
    match shown.kind {
        "progress" => {
            let done = shown.data["progress"].as_f64()?;
            let of = shown.data["total"].as_f64().map(|total| format!("/{total}"));
            Some(format!("{done}{} {}", of.unwrap_or_default(), text("message")).trim().to_owned())
        }
        "log" => Some(format!("[{}] {}", text("level"), sanitize_text(&text("text")))),
        "task" => Some(format!("goes on as the task {}", text("id"))),
        "run" => Some(format!("goes on as the run {}", text("run_id"))),
        _ => None,
    }
}
