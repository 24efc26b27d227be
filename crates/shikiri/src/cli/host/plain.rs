//! Who watches a call where nobody is at a terminal, or where a program reads: lines, and answers
//! that were settled beforehand.

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use shikiri_app::host::{Audience, Consent, Shown};
use shikiri_model::host::{Answer, Form, HostCall, clean, clean_line};
use shikiri_model::tool::ToolChange;

use crate::output::{Output, note};
use crate::terminal::host::{changes_line, difference, offline_sample};

/// What is answered when nobody can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beforehand {
    Yes,
    No,
}

/// How a call is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// Lines for people, on stderr.
    Lines,
    /// One JSON object for each event, on stdout.
    Events,
    Silent,
}

pub(super) struct Plain {
    pub(super) beforehand: Beforehand,
    /// Tools may be called though their definitions changed.
    pub(super) accepts_changes: bool,
    pub(super) told: Told,
}

#[async_trait]
impl Audience for Plain {
    fn show(&self, call: &HostCall, shown: &Shown) {
        match self.told {
            Told::Silent => {}
            Told::Events => {
                // Whoever read it has gone: the call goes on.
                let _ = Output::stdout().json_line(&event(call, shown));
            }
            Told::Lines => {
                if let Some(line) = line(shown) {
                    note(&format!("{} {}: {line}", call.server, call.tool));
                }
            }
        }
    }

    fn tell_changes(&self, server: &str, changes: &[ToolChange]) {
        note(&changes_line(server, changes));
    }

    /// The difference is shown in any case. `--yes` is for what a server asks while it is called, so
    /// it does not agree to a change of the server itself.
    async fn accepts_change(&self, server: &str, change: &ToolChange) -> bool {
        note(&difference(server, change));
        self.accepts_changes
    }

    async fn ask(&self, call: &HostCall, form: &Form) -> Answer {
        if self.told != Told::Silent {
            let answer = if self.beforehand == Beforehand::Yes { "yes" } else { "no" };
            let question = clean_line(&form.message);
            note(&format!("{} asks: {question} — {answer}, as was said beforehand", call.server));
        }
        match self.beforehand {
            Beforehand::Yes => form.agreed(),
            Beforehand::No if form.is_confirmation() => form.confirmed(false),
            Beforehand::No => Answer::Decline(Map::new()),
        }
    }

    async fn visit(&self, call: &HostCall, message: &str, url: &str) -> Answer {
        note(&format!(
            "{} wants you to visit {} ({}); nobody is asked here, so it is declined",
            call.server,
            clean_line(url),
            clean_line(message)
        ));
        Answer::Decline(Map::new())
    }

    async fn may_ask_model(&self, _: &HostCall, _: &str, _: &str) -> Consent {
        match self.beforehand {
            Beforehand::Yes => Consent::Given,
            Beforehand::No => Consent::Nobody,
        }
    }

    async fn sample(&self, _: &HostCall, params: &Value) -> Result<Value, String> {
        Ok(offline_sample(params))
    }
}

/// An event as programs read it.
pub(super) fn event(call: &HostCall, shown: &Shown) -> Value {
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

/// What people want to see of an event.
pub(super) fn line(shown: &Shown) -> Option<String> {
    let text = |key: &str| shown.data[key].as_str().map(clean_line).unwrap_or_default();
    match shown.kind {
        "progress" => {
            let done = shown.data["progress"].as_f64()?;
            let of = shown.data["total"].as_f64().map(|total| format!("/{total}"));
            Some(format!("{done}{} {}", of.unwrap_or_default(), text("message")).trim().to_owned())
        }
        "log" => Some(format!("[{}] {}", text("level"), clean(&text("text")))),
        "task" => Some(format!("goes on as the task {}", text("id"))),
        "run" => Some(format!("goes on as the run {}", text("run_id"))),
        _ => None,
    }
}
