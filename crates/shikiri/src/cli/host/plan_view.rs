//! How a plan is told while it is carried out: on a terminal its calls have bars, and every change
//! stands above them, indented by what it needs; elsewhere a line for each change.

use std::io::IsTerminal as _;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use serde_json::Value;
use shikiri_app::host::{Audience, Consent, PlanAudience, Shown};
use shikiri_model::host::plan::{Plan, PlanRun, TaskRun, TaskState};
use shikiri_model::host::{Answer, Form, HostCall, clean_line};
use shikiri_model::tool::ToolChange;
use tokio::sync::watch;

use super::is_attended;
use super::plain::{Beforehand, Plain, Told, line};
use super::run::Telling;
use crate::output::{Output, Style, note};
use crate::terminal::host::{Person, Screen, changes_line, difference};

/// Deeper ones are not indented further.
const MAX_INDENT: usize = 8;

pub(super) struct PlanView {
    is_silent: bool,
    /// Has the bars.
    person: Option<Person>,
    /// Answers, where nobody is asked.
    plain: Plain,
    accepts_changes: bool,
    asks: bool,
    run: Mutex<Option<PlanRun>>,
}

impl PlanView {
    pub(super) fn new(telling: Telling) -> Self {
        let is_silent = telling.json;
        let has_screen = !is_silent && std::io::stderr().is_terminal();
        let beforehand = if telling.agree { Beforehand::Yes } else { Beforehand::No };
        Self {
            is_silent,
            person: has_screen.then(|| Person::new(&Screen::new())),
            plain: Plain {
                beforehand,
                accepts_changes: telling.accept_changes,
                told: Told::Silent,
            },
            accepts_changes: telling.accept_changes,
            asks: has_screen && is_attended() && !telling.agree && !telling.no_input,
            run: Mutex::default(),
        }
    }

    pub(super) fn begin(&self, run: &PlanRun) {
        *self.run.lock().unwrap_or_else(PoisonError::into_inner) = Some(run.clone());
    }

    /// Ctrl-C that was typed into a question.
    pub(super) fn interrupts(&self) -> Option<watch::Receiver<u64>> {
        self.person.as_ref().map(|person| person.screen().interrupts())
    }

    /// Nothing more is shown.
    pub(super) fn end(&self) {
        if let Some(person) = &self.person {
            person.leave();
        }
    }

    pub(super) fn say(&self, text: &str) {
        match &self.person {
            Some(person) => person.screen().say(text),
            None => note(text),
        }
    }

    fn asked(&self) -> &dyn Audience {
        match &self.person {
            Some(person) if self.asks => person,
            _ => &self.plain,
        }
    }

    fn task_of(&self, call: &HostCall) -> Option<String> {
        let run = self.run.lock().unwrap_or_else(PoisonError::into_inner);
        let flying = run.as_ref()?.in_flight();
        flying.into_iter().find(|(_, _, id)| **id == call.id).map(|(task, ..)| task.to_owned())
    }
}

#[async_trait]
impl Audience for PlanView {
    fn show(&self, call: &HostCall, shown: &Shown) {
        if let Some(person) = &self.person {
            return person.show(call, shown);
        }
        if let (false, Some(said), Some(task)) = (self.is_silent, line(shown), self.task_of(call)) {
            note(&format!("{task}: {said}"));
        }
    }

    fn tell_changes(&self, server: &str, changes: &[ToolChange]) {
        self.say(&changes_line(server, changes));
    }

    async fn accepts_change(&self, server: &str, change: &ToolChange) -> bool {
        match &self.person {
            Some(person) if self.asks && !self.accepts_changes => {
                person.accepts_change(server, change).await
            }
            _ => {
                self.say(&difference(server, change));
                self.accepts_changes
            }
        }
    }

    async fn ask(&self, call: &HostCall, form: &Form) -> Answer {
        if !self.asks && !self.is_silent {
            let answer = if self.plain.beforehand == Beforehand::Yes { "yes" } else { "no" };
            let question = clean_line(&form.message);
            self.say(&format!(
                "{} asks: {question} — {answer}, as was said beforehand",
                clean_line(&call.server)
            ));
        }
        self.asked().ask(call, form).await
    }

    async fn visit(&self, call: &HostCall, message: &str, url: &str) -> Answer {
        self.asked().visit(call, message, url).await
    }

    async fn may_ask_model(&self, call: &HostCall, model: &str, prompt: &str) -> Consent {
        self.asked().may_ask_model(call, model, prompt).await
    }

    async fn sample(&self, call: &HostCall, params: &Value) -> Result<Value, String> {
        self.asked().sample(call, params).await
    }
}

impl PlanAudience for PlanView {
    fn changed(&self, run: &PlanRun, task: &str) {
        *self.run.lock().unwrap_or_else(PoisonError::into_inner) = Some(run.clone());
        let Some(task) = run.task(task) else { return };
        let said = described(task);
        match &self.person {
            _ if self.is_silent => {}
            None => note(&format!("{}: {said}", task.id)),
            Some(person) => {
                let (mark, style) = mark(&task.state);
                let indent = "  ".repeat(depth(&run.plan, &task.id).min(MAX_INDENT));
                let mark = Output::stderr().paint(style, mark);
                person.screen().say(&format!("{indent}{mark} {}: {said}", task.id));
            }
        }
    }
}

/// How many tasks come before it, one after the other.
fn depth(plan: &Plan, id: &str) -> usize {
    let needs = plan.task(id).map(|task| task.needs()).unwrap_or_default();
    needs.into_iter().map(|need| depth(plan, need) + 1).max().unwrap_or(0)
}

fn mark(state: &TaskState) -> (&'static str, Style) {
    match state {
        TaskState::Waiting { .. } => ("·", Style::Dim),
        TaskState::Running { .. } => ("▸", Style::Bold),
        TaskState::Done { .. } => ("✓", Style::Good),
        TaskState::Failed { .. } => ("✗", Style::Bad),
        TaskState::Skipped { .. } => ("–", Style::Warning),
    }
}

/// A task in a few words.
fn described(task: &TaskRun) -> String {
    let trouble = task.trouble.as_deref().map(clean_line).unwrap_or_default();
    let took = task.duration().unwrap_or_default().as_secs_f64();
    match &task.state {
        TaskState::Waiting { .. } if trouble.is_empty() => "waiting".to_owned(),
        TaskState::Waiting { until: None } => format!("goes to another server ({trouble})"),
        TaskState::Waiting { until: Some(_) } => format!("is tried again soon ({trouble})"),
        TaskState::Running { server, .. } if task.attempts > 1 => {
            format!("running at {server}, try {}", task.attempts)
        }
        TaskState::Running { server, .. } => format!("running at {server}"),
        TaskState::Done { server, .. } => format!("done at {server} in {took:.1} s"),
        TaskState::Failed { reason, .. } => format!("failed: {}", clean_line(reason)),
        TaskState::Skipped { because } => format!("skipped: {because}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_task_stands_deeper_than_what_it_needs() {
        let plan: Plan = serde_json::from_value(json!({ "task": [
            { "id": "c", "tool": "t", "after": ["a", "b"] },
            { "id": "a", "tool": "t" },
            { "id": "b", "tool": "t", "args": { "x": "${a}" } },
        ]}))
        .unwrap();
        assert_eq!(["a", "b", "c"].map(|id| depth(&plan, id)), [0, 1, 2]);
    }
}
