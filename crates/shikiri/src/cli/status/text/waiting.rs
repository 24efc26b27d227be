//! What waits for a person: questions, failures, dialogues that were cancelled.

use shikiri_app::{StatusReport, WaitingQuestion};
use shikiri_model::run::Run;
use shikiri_model::team::Dialogue;
use shikiri_model::time::Timestamp;

use super::line::StatusLine;
use super::{MOST_SHOWN, Page, ago};
use crate::cli::status::json::{answer_command, show_command};
use crate::output::Style;

impl Page<'_> {
    pub(super) fn waiting(&mut self, report: &StatusReport) {
        let questions = &report.questions;
        let (failed, cancelled) = (&report.failed, &report.cancelled_dialogues);
        if questions.is_empty() && failed.is_empty() && cancelled.is_empty() {
            self.gap();
            return self.push(StatusLine::new(Style::Good, "Nothing waits for you."));
        }
        self.heading("Waits for you");
        for open in questions.iter().take(MOST_SHOWN) {
            self.question(open, report.at);
        }
        self.more(report.question_count, "shikiri runs list --status waiting");
        for run in failed.iter().take(MOST_SHOWN) {
            self.failure(&run.value, report.at);
        }
        self.more(failed.len(), "shikiri runs list --status failed");
        for dialogue in cancelled.iter().take(MOST_SHOWN) {
            self.cancelled(&dialogue.value, report.at);
        }
        self.more(cancelled.len(), "shikiri dialogues list --state ended");
    }

    fn question(&mut self, waiting: &WaitingQuestion, now: Timestamp) {
        let WaitingQuestion { open, since } = waiting;
        let line = StatusLine::new(Style::Warning, "  ? ").add(Style::Bold, &open.agent);
        let line = line.plain(" asks: ").plain(&open.question.message);
        self.push(line.at_right(ago(now, *since)));
        self.command(&answer_command(open));
    }

    fn failure(&mut self, run: &Run, now: Timestamp) {
        let what = match &run.execution {
            Some(execution) => format!("turn on {}", execution.model_id),
            None => run.agent.clone(),
        };
        let line = StatusLine::new(Style::Bad, "  ✗ ").add(Style::Bold, &what).plain(" failed");
        let line = match &run.error {
            Some(error) => line.plain(&format!(": {}: {}", error.code, error.message)),
            None => line,
        };
        self.push(line.at_right(run.ended_at.map(|at| ago(now, at)).unwrap_or_default()));
        self.command(&show_command(run));
    }

    fn cancelled(&mut self, dialogue: &Dialogue, now: Timestamp) {
        let between = format!("{} and {}", dialogue.initiator, dialogue.participant);
        let line = StatusLine::new(Style::Warning, "  – ").plain("dialogue of ");
        let mut line = line.add(Style::Bold, &between).plain(" was cancelled");
        if let Some(remark) = dialogue.failure() {
            line = line.plain(&format!(": {remark}"));
        }
        self.push(
            line.at_right(dialogue.end.as_ref().map(|end| ago(now, end.at)).unwrap_or_default()),
        );
        let project = &dialogue.project;
        self.command(&format!("shikiri dialogues show {} --project {project}", dialogue.id));
    }

    fn command(&mut self, command: &str) {
        let command = self.of_tenant(command);
        self.push(StatusLine::new(Style::Dim, &format!("    {command}")));
    }
}
