//! Follows a run's events in the terminal: past events first, then new ones.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use shikiri_app::App;
use shikiri_model::event::{EventRef, Seq};
use shikiri_model::host::{ElicitationForm, FormAnswer};
use shikiri_model::ids::{QuestionId, RunId, TenantId};
use shikiri_model::run::{
    AnswerAction, QuestionAnswer, QuestionKind, RunQuestion, RunStatus, run_stream,
};
use shikiri_runtime::{AppError, EventBatch};

use crate::exit::Failure;
use crate::output::{Output, Style, note};
use crate::signals::Signals;
use crate::spinner::show_waiting;
use crate::terminal::host::{ask_person, has_person};
use crate::text::{one_line, short};

/// Longer texts are cut; `--json` shows them whole.
const SHOWN: usize = 200;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Ended(RunStatus),
    /// Ctrl-C: the run continues.
    Detached {
        last_seq: Seq,
    },
}

/// Follows a run to its end. Where a person is at the terminal, its questions are asked there.
pub async fn follow(
    app: &App,
    tenant: &TenantId,
    run: &RunId,
    after: Seq,
    as_json: bool,
) -> Result<Ending, Failure> {
    let mut signals = Signals::catch()?;
    app.runtime.run(tenant, run).await?;
    let mut watch = app.runtime.watch(tenant, run_stream(run), after).await?;
    let output = Output::stdout();
    let mut waits_for = "waiting for the run";
    let mut asker = (!as_json && has_person()).then(QuestionAsker::default);
    loop {
        let next = async {
            match as_json {
                true => watch.next().await,
                false => show_waiting(waits_for, watch.next()).await,
            }
        };
        let delivery = tokio::select! {
            delivery = next => delivery?,
            _ = signals.next() => return Ok(Ending::Detached { last_seq: watch.cursor() }),
        };
        match delivery {
            Some(delivery) => {
                print(output, run, &delivery, as_json)?;
                waits_for =
                    delivery.events().last().map_or(waits_for, |event| wait_after(event.kind));
                if let Some(asker) = &mut asker
                    && delivery.events().any(|event| event.kind == "question")
                {
                    asker.ask_open_questions(app, tenant, run).await?;
                }
            }
            None => return Ok(Ending::Ended(app.runtime.run(tenant, run).await?.run.status)),
        }
    }
}

/// Asks the person at the terminal what a run asks, each question once.
#[derive(Default)]
struct QuestionAsker {
    asked: BTreeSet<QuestionId>,
}

impl QuestionAsker {
    async fn ask_open_questions(
        &mut self,
        app: &App,
        tenant: &TenantId,
        run: &RunId,
    ) -> Result<(), Failure> {
        let open = app.runtime.run(tenant, run).await?.run.questions;
        for question in open.iter().filter(|question| question.kind == QuestionKind::Human) {
            if self.asked.insert(question.id.clone()) {
                ask(app, tenant, run, question).await?;
            }
        }
        Ok(())
    }
}

async fn ask(
    app: &App,
    tenant: &TenantId,
    run: &RunId,
    question: &RunQuestion,
) -> Result<(), Failure> {
    // What cannot be shown as a form is answered with `runs answer`.
    let form = ElicitationForm::parse(&question.message, &question.schema);
    let answer = match form {
        Ok(form) => ask_person(run.as_str(), &form).await,
        Err(_) => FormAnswer::Cancel,
    };
    let answer = match answer {
        FormAnswer::Accept(content) => QuestionAnswer::accept(Value::Object(content)),
        FormAnswer::Decline(content) => {
            QuestionAnswer::new(AnswerAction::Decline, Value::Object(content))
        }
        FormAnswer::Cancel => {
            note(&format!("left open: answer with `shikiri runs answer {run}`"));
            return Ok(());
        }
    };
    match app.runtime.answer_run(tenant, run, &question.id, answer).await {
        Ok(_) => Ok(()),
        Err(AppError::NotFound { .. } | AppError::NotNow(_)) => {
            note("it was answered elsewhere, or is over");
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// What goes on after an event.
fn wait_after(kind: &str) -> &'static str {
    match kind {
        "queued" => "in the queue until a server takes it",
        "question" | "waiting" => "waiting for an answer",
        _ => "at work",
    }
}

fn print(output: Output, run: &RunId, delivery: &EventBatch, as_json: bool) -> Result<(), Failure> {
    for event in delivery.events() {
        if as_json {
            output.json_line(&json_of(run, event))?;
        } else {
            let time = event.at.to_string();
            let data = serde_json::from_str(event.data).unwrap_or(Value::Null);
            output.line(&event_line(output, event.seq, &time, event.kind, &data))?;
        }
    }
    Ok(())
}

/// The data of the event's SSE frame, and its name.
pub(crate) fn json_of(run: &RunId, event: EventRef<'_>) -> Value {
    let id = if run.is_execution() { "execution_id" } else { "run_id" };
    let mut all = json!({ "seq": event.seq, "at": event.at, id: run, "event": event.kind });
    if let (Some(all), Ok(Value::Object(data))) =
        (all.as_object_mut(), serde_json::from_str(event.data))
    {
        for (key, value) in data {
            all.entry(key).or_insert(value);
        }
    }
    all
}

/// One event for people: number, time of day, name, and content.
pub fn event_line(output: Output, seq: Seq, at: &str, kind: &str, data: &Value) -> String {
    let time = output.time_of_day(at);
    let style = match kind {
        "result" => Style::Good,
        "error" | "step_failed" => Style::Bad,
        "question" | "node_lost" | "cancel_requested" | "warning" => Style::Warning,
        "started" | "queued" | "waiting" => Style::Bold,
        _ => Style::Plain,
    };
    let head = output.paint(Style::Dim, &format!("{seq:>5}  {}", one_line(&time)));
    let name = output.paint(style, &format!("{:14}", one_line(kind)));
    format!("{head}  {name} {}", short(&summary(kind, data), SHOWN)).trim_end().to_owned()
}

fn summary(kind: &str, data: &Value) -> String {
    let text = |key: &str| match &data[key] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    // 3 rather than 3.0
    let number = |key: &str| data[key].as_f64().map(|n| n.to_string()).unwrap_or_default();
    match kind {
        "queued" => format!("for {}", text("agent")),
        "started" => format!("attempt {}", text("attempt")),
        "log" | "warning" => text("message"),
        "progress" => format!("{}/{} {}", number("progress"), number("total"), text("message")),
        "step_started" => match data["attempt"].as_u64() {
            Some(attempt) if attempt > 1 => format!("{} (attempt {attempt})", text("name")),
            _ => text("name"),
        },
        "step_completed" => text("name"),
        "step_failed" => format!("{}: {}", text("name"), text("error")),
        "question" => format!("{} {}", text("question_id"), text("message")),
        "answer" => format!("{} {}", text("question_id"), text("action")),
        "waiting" | "timer_set" if data["until"].is_string() => format!("until {}", text("until")),
        "inputs_taken" => match data["inputs"].as_array() {
            Some(inputs) if inputs.is_empty() => "none".to_owned(),
            _ => text("inputs"),
        },
        "result" => text("result"),
        "error" => format!("{}: {}", text("code"), text("message")),
        "text_delta" | "thinking" => text("text"),
        "node_lost" => "its server is gone; it is up for another attempt".to_owned(),
        _ => plain(data),
    }
}

/// The data of an unknown event, without the common fields.
fn plain(data: &Value) -> String {
    let Some(fields) = data.as_object() else { return data.to_string() };
    let own = |key: &str| !matches!(key, "seq" | "at" | "run_id" | "execution_id" | "index");
    let shown = fields.iter().filter(|(key, value)| own(key) && !value.is_null());
    shown.map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_agent_says_cannot_command_the_terminal() {
        let data = json!({ "message": "\u{1b}]0;owned\u{7} hi\nthere" });
        let line = event_line(Output::plain(), 7, "2026-11-15T20:00:01.250Z", "log", &data);
        assert_eq!(line, r"    7  20:00:01.250  log            \u{1b}]0;owned\u{7} hi there");
    }

    #[test]
    fn kinds_that_are_not_known_are_shown_as_they_are() {
        let data =
            json!({ "seq": 1, "at": "x", "index": 3, "child_run_id": "run_1", "error": null });
        assert_eq!(summary("child_started", &data), "child_run_id=\"run_1\"");
    }
}
