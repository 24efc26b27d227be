//! How a plan is told while it is carried out: on a terminal one line per task, drawn again when
//! something changes; elsewhere a line for each change.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use serde_json::Value;
use shikiri_app::host::{Audience, PlanAudience, Shown};
use shikiri_model::host::plan::{Plan, PlanRun, TaskRun, TaskState};
use shikiri_model::host::{Answer, Form, HostCall, clean_line};

use super::plain::{Beforehand, Plain, Told, line};
use crate::output::{Output, Style, note};
use crate::text::short;

/// A line that the terminal breaks would spoil the drawing.
const WIDTH: usize = 79;

pub(super) struct PlanView {
    plain: Plain,
    manner: Manner,
    drawing: Mutex<Drawing>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    Tree,
    Lines,
    Silent,
}

#[derive(Default)]
struct Drawing {
    run: Option<PlanRun>,
    /// What each task's call said last.
    said: BTreeMap<String, String>,
    /// Lines on the screen that are drawn over.
    height: usize,
}

impl PlanView {
    pub(super) fn new(beforehand: Beforehand, is_silent: bool) -> Self {
        let manner = match (is_silent, std::io::stderr().is_terminal()) {
            (true, _) => Manner::Silent,
            (false, true) => Manner::Tree,
            (false, false) => Manner::Lines,
        };
        let plain = Plain { beforehand, told: Told::Silent };
        Self { plain, manner, drawing: Mutex::default() }
    }

    /// Shows a run as it is taken up.
    pub(super) fn begin(&self, run: &PlanRun) {
        let mut drawing = self.drawing.lock().unwrap_or_else(PoisonError::into_inner);
        drawing.run = Some(run.clone());
        if self.manner == Manner::Tree {
            drawing.draw();
        }
    }
}

#[async_trait]
impl Audience for PlanView {
    fn show(&self, call: &HostCall, shown: &Shown) {
        let Some(said) = line(shown) else { return };
        let mut drawing = self.drawing.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(task) = drawing.task_of(call) else { return };
        match self.manner {
            Manner::Silent => {}
            Manner::Lines => note(&format!("{task}: {said}")),
            Manner::Tree => {
                drawing.said.insert(task, said);
                drawing.draw();
            }
        }
    }

    async fn ask(&self, call: &HostCall, form: &Form) -> Answer {
        if self.manner == Manner::Lines {
            note(&format!("{} asks: {}", call.server, clean_line(&form.message)));
        }
        self.plain.ask(call, form).await
    }

    async fn visit(&self, call: &HostCall, message: &str, url: &str) -> Answer {
        self.plain.visit(call, message, url).await
    }

    async fn sample(&self, call: &HostCall, params: &Value) -> Result<Value, String> {
        self.plain.sample(call, params).await
    }
}

impl PlanAudience for PlanView {
    fn changed(&self, run: &PlanRun, task: &str) {
        let mut drawing = self.drawing.lock().unwrap_or_else(PoisonError::into_inner);
        drawing.run = Some(run.clone());
        drawing.said.remove(task);
        match self.manner {
            Manner::Silent => {}
            Manner::Tree => drawing.draw(),
            Manner::Lines => {
                if let Some(task) = run.task(task) {
                    note(&format!("{}: {}", task.id, described(task)));
                }
            }
        }
    }
}

impl Drawing {
    fn task_of(&self, call: &HostCall) -> Option<String> {
        let running = self.run.as_ref()?.in_flight();
        running.into_iter().find(|(_, _, id)| **id == call.id).map(|(task, ..)| task.to_owned())
    }

    fn draw(&mut self) {
        let Some(run) = &self.run else { return };
        let paint = Output::stderr();
        let mut screen = String::new();
        if self.height > 0 {
            screen.push_str(&format!("\u{1b}[{}A", self.height));
        }
        for task in &run.tasks {
            let (mark, style) = mark(&task.state);
            let said = self.said.get(&task.id).cloned().unwrap_or_else(|| described(task));
            let indent = "  ".repeat(depth(&run.plan, &task.id).min(8));
            let text = short(&format!("{indent}{mark} {}: {said}", task.id), WIDTH);
            screen.push_str(&format!("\r\u{1b}[2K{}\n", paint.paint(style, &text)));
        }
        self.height = run.tasks.len();
        // If the terminal is gone, nobody looks.
        let _ = std::io::stderr().lock().write_all(screen.as_bytes());
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
pub(super) fn described(task: &TaskRun) -> String {
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
