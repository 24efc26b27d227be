//! Runs, executions, dialogues, lanes, and what today cost.

use serde_json::Value;
use shikiri_app::StatusReport;
use shikiri_model::lane::Lane;
use shikiri_model::run::{RunStatus, StatusCounts};
use shikiri_model::team::Dialogue;
use shikiri_model::time::Timestamp;
use shikiri_runtime::run::RunView;

use super::agents::tokens_and_cost;
use super::line::{StatusLine, count, grouped};
use super::{MOST_SHOWN, Page, ago};
use crate::output::Style;

impl Page<'_> {
    pub(super) fn runs(&mut self, report: &StatusReport) {
        let (executions, runs): (Vec<_>, Vec<_>) =
            report.active.iter().partition(|view| view.run.execution.is_some());
        let counts = &report.counts;
        self.states("runs", "Runs", &counts.agents, &runs, report.at);
        self.states("executions", "Executions", &counts.executions, &executions, report.at);
    }

    fn states(
        &mut self,
        things: &'static str,
        title: &str,
        counts: &StatusCounts,
        active: &[&RunView],
        now: Timestamp,
    ) {
        if RunStatus::ALL.iter().all(|status| counts.of(*status) == 0) {
            return self.empty.push(things);
        }
        self.gap();
        let mut line = StatusLine::new(Style::Bold, &format!("{title:12}"));
        let counted = RunStatus::ALL.iter().map(|status| (status, counts.of(*status)));
        let present = counted.filter(|(_, count)| *count > 0);
        for (at, (status, count)) in present.enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            let text = format!("{} {}", grouped(count), status.as_str());
            line = line.plain(comma).add(style_of(*status), &text);
        }
        self.push(line);
        for view in active.iter().take(MOST_SHOWN) {
            self.push(active_line(view, now));
        }
        self.more(active.len(), "shikiri runs list --status running");
    }

    pub(super) fn dialogues(&mut self, report: &StatusReport) {
        if report.dialogues.is_empty() {
            return self.empty.push("dialogues");
        }
        self.heading("Dialogues");
        for stored in report.dialogues.iter().take(MOST_SHOWN) {
            self.push(dialogue_line(&stored.value).at_right(ago(report.at, stored.updated_at)));
        }
        self.more(report.dialogues.len(), "shikiri dialogues list --project ID");
    }

    pub(super) fn lanes(&mut self, report: &StatusReport) {
        if report.lanes.is_empty() {
            return self.empty.push("lanes");
        }
        self.heading("Lanes");
        for stored in report.lanes.iter().take(MOST_SHOWN) {
            let lane = &stored.value;
            self.push(lane_line(lane).at_right(ago(report.at, lane.last_access)));
        }
        self.more(report.lanes.len(), "shikiri lanes list");
    }

    pub(super) fn spend(&mut self, report: &StatusReport) {
        let Some(spend) = report.spend.as_ref().filter(|spend| !spend.groups.is_empty()) else {
            return self.empty.push("spending today");
        };
        self.heading("Spent today");
        for group in spend.groups.iter().take(MOST_SHOWN) {
            let spent = &group.spending;
            let line = StatusLine::default().plain("  ").plain(&group.key);
            let line = line.dim(&format!("  {}", count(spent.executions, "execution")));
            self.push(line.at_right(tokens_and_cost(&spent.usage, Some(spent.cost))));
        }
        self.more(spend.groups.len(), "shikiri usage");
        if spend.groups.len() > 1 {
            let total = &spend.total;
            let line = StatusLine::default().plain("  total");
            self.push(line.at_right(tokens_and_cost(&total.usage, Some(total.cost))));
        }
    }
}

fn style_of(status: RunStatus) -> Style {
    match status {
        RunStatus::Running => Style::Good,
        RunStatus::Waiting | RunStatus::Queued => Style::Warning,
        RunStatus::Failed => Style::Bad,
        RunStatus::Completed | RunStatus::Cancelled => Style::Plain,
    }
}

fn active_line(view: &RunView, now: Timestamp) -> StatusLine {
    let run = &view.run;
    let line = StatusLine::default().plain(&format!("  {} ", run.id));
    let line = match &run.execution {
        Some(execution) => {
            let input = run.input["user_input"].as_str().unwrap_or_default();
            line.dim(&format!("{} ", execution.engine.as_str())).plain(input)
        }
        None => {
            let line = line.plain(&run.agent);
            match progress(view) {
                Some(progress) => line.dim(&format!("  {progress}")),
                None if run.status == RunStatus::Queued => line.dim("  queued"),
                None => line,
            }
        }
    };
    line.at_right(ago(now, view.created_at))
}

/// `step 3 of 50`, in the agent's words.
fn progress(view: &RunView) -> Option<String> {
    let note = view.progress.as_ref()?;
    let message = note["message"].as_str().unwrap_or_default();
    let share = match (&note["progress"], &note["total"]) {
        (Value::Number(done), Value::Number(total)) => {
            let (done, total) = (done.as_f64()?, total.as_f64()?);
            (total > 0.0).then(|| format!("{:.0} % ", (100.0 * done / total).clamp(0.0, 100.0)))
        }
        _ => None,
    };
    Some(format!("{}{message}", share.unwrap_or_default()))
}

fn dialogue_line(dialogue: &Dialogue) -> StatusLine {
    let line = StatusLine::default().plain("  ").add(Style::Bold, dialogue.initiator.as_str());
    let line = line.plain(" and ").add(Style::Bold, dialogue.participant.as_str());
    let turns =
        format!("  {}, {} of {}", dialogue.state.as_str(), dialogue.messages, dialogue.max_turns);
    let line = line.plain(&turns).dim(&format!(", {} is next", dialogue.agent(dialogue.turn)));
    match &dialogue.purpose {
        Some(purpose) => line.plain(": ").plain(purpose),
        None => line,
    }
}

fn lane_line(lane: &Lane) -> StatusLine {
    let line = StatusLine::default().plain("  ").add(Style::Bold, &lane.name);
    let chats = lane.threads.iter().filter(|(_, chat)| chat.url.is_some());
    let chats: Vec<&str> = chats.map(|(provider, _)| provider.as_str()).collect();
    let line = match chats.is_empty() {
        true => line.dim("  no chat yet"),
        false => line.dim(&format!("  {}", chats.join(", "))),
    };
    match lane.in_flight.keys().next() {
        Some(provider) => line.add(Style::Good, &format!("  asks {provider}")),
        None => line,
    }
}
