//! The one text that a plan is for. What is missing is said in its place, and again at the end,
//! whoever wrote the text.

use std::convert::Infallible;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::reference::{Piece, Reference, fill_text, pieces};
use super::run::{PlanRun, PlanState, TaskState};
use crate::time::Timestamp;

/// Characters of one result that a model is shown.
const MAX_SHOWN: usize = 20_000;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    pub text: String,
    pub by: WrittenBy,
    /// Why no model wrote it, where one should have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remark: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WrittenBy {
    Template,
    /// The results one after the other.
    List,
    Engine,
}

/// What should be in the text and is not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    pub task: String,
    pub reason: String,
}

impl PlanRun {
    /// Every gap: tasks without a result, and parts of results that the synthesis wants in vain.
    pub fn missing(&self) -> Vec<Missing> {
        let gap =
            |task: &str, reason: &str| Missing { task: task.to_owned(), reason: reason.to_owned() };
        let mut missing: Vec<_> = self
            .tasks
            .iter()
            .filter_map(|task| Some(gap(&task.id, &self.no_result(&task.id)?)))
            .collect();
        let synthesis = &self.plan.synthesis;
        for text in [&synthesis.template, &synthesis.prompt].into_iter().flatten() {
            for piece in pieces(text).unwrap_or_default() {
                let Piece::Reference(reference) = piece else { continue };
                let known = missing.iter().any(|gap| gap.task == reference.task);
                if let (false, Err(reason)) = (known, self.find(&reference)) {
                    missing.push(gap(reference.task, &reason));
                }
            }
        }
        missing
    }

    /// The text as the plan's template or a list makes it.
    pub fn compose(&self) -> Written {
        let template = self.plan.synthesis.template.as_deref();
        let (body, by) = match template {
            Some(template) => (self.fill_in(template), WrittenBy::Template),
            None => (self.list(), WrittenBy::List),
        };
        Written { text: self.with_gaps(body), by, remark: None }
    }

    /// The text as a model wrote it.
    pub fn written_by_model(&self, text: &str) -> Written {
        let text = self.with_gaps(text.trim().to_owned());
        Written { text, by: WrittenBy::Engine, remark: None }
    }

    /// What a model is told, if one is to write.
    pub fn prompt(&self) -> Option<String> {
        let synthesis = &self.plan.synthesis;
        if !synthesis.engine {
            return None;
        }
        let wanted = match (&synthesis.prompt, &self.plan.goal) {
            (Some(prompt), _) => self.fill_in(prompt),
            (None, Some(goal)) => format!("Answer this from the results: {goal}"),
            (None, None) => "Sum the results up.".to_owned(),
        };
        let mut prompt = format!("{wanted}\n");
        for task in &self.tasks {
            let said = match &task.state {
                TaskState::Done { result, .. } => result.text.chars().take(MAX_SHOWN).collect(),
                _ => self.gap(&task.id, &self.no_result(&task.id).unwrap_or_default()),
            };
            prompt.push_str(&format!("\n<result task=\"{}\">\n{said}\n</result>\n", task.id));
        }
        Some(prompt)
    }

    /// Ends the run.
    pub fn finish(&mut self, written: Written, now: Timestamp) {
        if self.state == PlanState::Running {
            let is_done = |state: &TaskState| matches!(state, TaskState::Done { .. });
            self.state = match self.tasks.iter().all(|task| is_done(&task.state)) {
                true => PlanState::Completed,
                false => PlanState::Failed,
            };
        }
        self.written = Some(written);
        self.ended_at = Some(now);
    }

    fn fill_in(&self, text: &str) -> String {
        let pieces = pieces(text).unwrap_or_default();
        let filled = fill_text(&pieces, &|reference: &Reference<'_>| {
            let found = self.find(reference);
            Ok::<_, Infallible>(
                found.unwrap_or_else(|why| Value::String(self.gap(reference.task, &why))),
            )
        });
        match filled {
            Ok(filled) => filled,
            Err(never) => match never {},
        }
    }

    fn list(&self) -> String {
        let parts = self.tasks.iter().map(|task| match &task.state {
            TaskState::Done { result, .. } => format!("{}: {}", task.id, result.text),
            _ => self.gap(&task.id, &self.no_result(&task.id).unwrap_or_default()),
        });
        parts.collect::<Vec<_>>().join("\n")
    }

    fn gap(&self, task: &str, reason: &str) -> String {
        format!("(missing: {task}: {reason})")
    }

    fn with_gaps(&self, mut text: String) -> String {
        for (number, Missing { task, reason }) in self.missing().iter().enumerate() {
            let space = if number == 0 && !text.is_empty() { "\n\n" } else { "\n" };
            text.push_str(&format!("{space}Missing: {task}: {reason}"));
        }
        text
    }

    fn find(&self, reference: &Reference<'_>) -> Result<Value, String> {
        match self.task(reference.task).map(|task| &task.state) {
            Some(TaskState::Done { result, .. }) => result.look(&reference.path),
            _ => Err(self.no_result(reference.task).unwrap_or_else(|| "no result".to_owned())),
        }
    }

    /// Why a task has none; None if it has.
    fn no_result(&self, id: &str) -> Option<String> {
        match &self.task(id)?.state {
            TaskState::Done { .. } => None,
            TaskState::Failed { reason, .. } => Some(reason.clone()),
            TaskState::Skipped { because } => Some(format!("skipped, since {because}")),
            TaskState::Waiting { .. } | TaskState::Running { .. } => {
                Some("not done yet".to_owned())
            }
        }
    }
}
