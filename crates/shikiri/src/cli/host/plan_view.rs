//! Shows a running plan. On a terminal its calls have bars, with changes above them, indented by
//! their dependencies. Elsewhere each change is a line.

use std::io::IsTerminal as _;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use serde_json::Value;
use shikiri_host::{CallUpdate, PlanObserver, SamplingConsent, UserInteraction};
use shikiri_model::host::plan::{HostPlan, PlanRun, PlanTaskRun, PlanTaskState};
use shikiri_model::host::{ElicitationForm, FormAnswer, HostCall, sanitize_line};
use shikiri_model::tool::ToolChange;
use tokio::sync::watch;

use super::plain::{Beforehand, CallOutput, Plain, line};
use super::run::Telling;
use crate::output::{Output, Style, note};
use crate::terminal::host::{Person, Screen, changes_line, difference, has_person};

/// Deeper tasks are not indented further.
const MAX_INDENT: usize = 8;

pub(super) struct PlanView {
    is_silent: bool,
    /// Shows the bars.
    person: Option<Person>,
    /// Answers that need no person.
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
                output: CallOutput::Silent,
            },
            accepts_changes: telling.accept_changes,
            asks: has_screen && has_person() && !telling.agree && !telling.no_input,
            run: Mutex::default(),
        }
    }

    pub(super) fn begin(&self, run: &PlanRun) {
        *self.run.lock().unwrap_or_else(PoisonError::into_inner) = Some(run.clone());
    }

    /// Counts Ctrl-C typed into a question.
    pub(super) fn interrupts(&self) -> Option<watch::Receiver<u64>> {
        self.person.as_ref().map(|person| person.screen().interrupts())
    }

    /// Removes everything from the screen.
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

    fn asked(&self) -> &dyn UserInteraction {
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
impl UserInteraction for PlanView {
    fn show(&self, call: &HostCall, shown: &CallUpdate) {
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

    async fn ask(&self, call: &HostCall, form: &ElicitationForm) -> FormAnswer {
        if !self.asks && !self.is_silent {
            let answer = if self.plain.beforehand == Beforehand::Yes { "yes" } else { "no" };
            let question = sanitize_line(&form.message);
            self.say(&format!(
                "{} asks: {question} — {answer}, as was said beforehand",
                sanitize_line(&call.server)
            ));
        }
        self.asked().ask(call, form).await
    }

    async fn visit(&self, call: &HostCall, message: &str, url: &str) -> FormAnswer {
        self.asked().visit(call, message, url).await
    }

    async fn may_ask_model(&self, call: &HostCall, model: &str, prompt: &str) -> SamplingConsent {
        self.asked().may_ask_model(call, model, prompt).await
    }

    async fn sample(&self, call: &HostCall, params: &Value) -> Result<Value, String> {
        self.asked().sample(call, params).await
    }
}

impl PlanObserver for PlanView {
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

/// The number of tasks before it, along the longest chain.
fn depth(plan: &HostPlan, id: &str) -> usize {
    let needs = plan.task(id).map(|task| task.needs()).unwrap_or_default();
    needs.into_iter().map(|need| depth(plan, need) + 1).max().unwrap_or(0)
}

fn mark(state: &PlanTaskState) -> (&'static str, Style) {
    match state {
        PlanTaskState::Waiting { .. } => ("·", Style::Dim),
        PlanTaskState::Running { .. } => ("▸", Style::Bold),
        PlanTaskState::Done { .. } => ("✓", Style::Good),
        PlanTaskState::Failed { .. } => ("✗", Style::Bad),
        PlanTaskState::Skipped { .. } => ("–", Style::Warning),
    }
}

/// A task in a few words.
fn described(task: &PlanTaskRun) -> String {
    let trouble = task.trouble.as_deref().map(sanitize_line).unwrap_or_default();
    let took = task.duration().unwrap_or_default().as_secs_f64();
    match &task.state {
        PlanTaskState::Waiting { .. } if trouble.is_empty() => "waiting".to_owned(),
        PlanTaskState::Waiting { until: None } => format!("goes to another server ({trouble})"),
        PlanTaskState::Waiting { until: Some(_) } => format!("is tried again soon ({trouble})"),
        PlanTaskState::Running { server, .. } if task.attempts > 1 => {
            format!("running at {server}, try {}", task.attempts)
        }
        PlanTaskState::Running { server, .. } => format!("running at {server}"),
        PlanTaskState::Done { server, .. } => format!("done at {server} in {took:.1} s"),
        PlanTaskState::Failed { reason, .. } => format!("failed: {}", sanitize_line(reason)),
        PlanTaskState::Skipped { because } => format!("skipped: {because}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_task_stands_deeper_than_what_it_needs() {
        let plan: HostPlan = serde_json::from_value(json!({ "task": [
            { "id": "c", "tool": "t", "after": ["a", "b"] },
            { "id": "a", "tool": "t" },
            { "id": "b", "tool": "t", "args": { "x": "${a}" } },
        ]}))
        .unwrap();
        assert_eq!(["a", "b", "c"].map(|id| depth(&plan, id)), [0, 1, 2]);
    }
}
