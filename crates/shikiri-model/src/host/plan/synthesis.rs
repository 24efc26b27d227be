//! The text that a plan produces. Missing results are marked in their place and listed at the end,
//! for every author of the text.

use std::convert::Infallible;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::plan_run::{PlanRun, PlanState, PlanTaskState};
use super::result_reference::{ResultReference, TemplatePiece, fill_text, pieces};
use crate::time::Timestamp;

/// The most characters of one result in a model's prompt.
const MAX_SHOWN: usize = 20_000;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SynthesisText {
    pub text: String,
    pub by: SynthesisAuthor,
    /// Why no model wrote the text, where one should have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remark: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SynthesisAuthor {
    Template,
    /// The results one after the other.
    List,
    Engine,
}

/// A result that should be in the text and is missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingResult {
    pub task: String,
    pub reason: String,
}

impl PlanRun {
    /// All missing results: tasks without a result, and paths that do not exist.
    pub fn missing(&self) -> Vec<MissingResult> {
        let gap = |task: &str, reason: &str| MissingResult {
            task: task.to_owned(),
            reason: reason.to_owned(),
        };
        let mut missing: Vec<_> = self
            .tasks
            .iter()
            .filter_map(|task| Some(gap(&task.id, &self.no_result(&task.id)?)))
            .collect();
        let synthesis = &self.plan.synthesis;
        for text in [&synthesis.template, &synthesis.prompt].into_iter().flatten() {
            for piece in pieces(text).unwrap_or_default() {
                let TemplatePiece::Reference(reference) = piece else { continue };
                let known = missing.iter().any(|gap| gap.task == reference.task);
                if let (false, Err(reason)) = (known, self.find(&reference)) {
                    missing.push(gap(reference.task, &reason));
                }
            }
        }
        missing
    }

    /// The text from the plan's template, or a list of the results.
    pub fn compose(&self) -> SynthesisText {
        let template = self.plan.synthesis.template.as_deref();
        let (body, by) = match template {
            Some(template) => (self.fill_in(template), SynthesisAuthor::Template),
            None => (self.list(), SynthesisAuthor::List),
        };
        SynthesisText { text: self.with_gaps(body), by, remark: None }
    }

    /// The text from a model.
    pub fn written_by_model(&self, text: &str) -> SynthesisText {
        let text = self.with_gaps(text.trim().to_owned());
        SynthesisText { text, by: SynthesisAuthor::Engine, remark: None }
    }

    /// The prompt for a model, if a model should write.
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
                PlanTaskState::Done { result, .. } => result.text.chars().take(MAX_SHOWN).collect(),
                _ => self.gap(&task.id, &self.no_result(&task.id).unwrap_or_default()),
            };
            prompt.push_str(&format!("\n<result task=\"{}\">\n{said}\n</result>\n", task.id));
        }
        Some(prompt)
    }

    /// Ends the run.
    pub fn finish(&mut self, written: SynthesisText, now: Timestamp) {
        if self.state == PlanState::Running {
            let is_done = |state: &PlanTaskState| matches!(state, PlanTaskState::Done { .. });
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
        let filled = fill_text(&pieces, &|reference: &ResultReference<'_>| {
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
            PlanTaskState::Done { result, .. } => format!("{}: {}", task.id, result.text),
            _ => self.gap(&task.id, &self.no_result(&task.id).unwrap_or_default()),
        });
        parts.collect::<Vec<_>>().join("\n")
    }

    fn gap(&self, task: &str, reason: &str) -> String {
        format!("(missing: {task}: {reason})")
    }

    fn with_gaps(&self, mut text: String) -> String {
        for (number, MissingResult { task, reason }) in self.missing().iter().enumerate() {
            let space = if number == 0 && !text.is_empty() { "\n\n" } else { "\n" };
            text.push_str(&format!("{space}Missing: {task}: {reason}"));
        }
        text
    }

    fn find(&self, reference: &ResultReference<'_>) -> Result<Value, String> {
        match self.task(reference.task).map(|task| &task.state) {
            Some(PlanTaskState::Done { result, .. }) => result.value_at_path(&reference.path),
            _ => Err(self.no_result(reference.task).unwrap_or_else(|| "no result".to_owned())),
        }
    }

    /// Why a task has no result; None if it has one.
    fn no_result(&self, id: &str) -> Option<String> {
        match &self.task(id)?.state {
            PlanTaskState::Done { .. } => None,
            PlanTaskState::Failed { reason, .. } => Some(reason.clone()),
            PlanTaskState::Skipped { because } => Some(format!("skipped, since {because}")),
            PlanTaskState::Waiting { .. } | PlanTaskState::Running { .. } => {
                Some("not done yet".to_owned())
            }
        }
    }
}
