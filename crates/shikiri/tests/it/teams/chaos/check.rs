//! What must be true of every run, whatever its players did and whenever the server died.

use std::collections::{BTreeMap, BTreeSet};

use super::journal::{Notes, Told};
use super::state::{Dialogue, State};

const REASONS: [&str; 5] =
    ["initiator_ended", "participant_ended", "max_turns", "timeout", "session_expired"];
const MOST_ATTEMPTS: u64 = 3;

/// A run that is over: what its players know, and what the server has.
pub(crate) struct History {
    pub(crate) notes: Notes,
    pub(crate) state: State,
    /// When the server was killed.
    pub(crate) kills: Vec<i64>,
}

/// A server that is killed so soon after an answer was read has not written down that it came, so it
/// tells the same again. In milliseconds, on a busy machine.
const UNWRITTEN: i64 = 3_000;

impl History {
    pub(crate) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for dialogue in &self.state.dialogues {
            self.ended_in_order(dialogue, &mut faults);
            self.both_sides_told_once(dialogue, &mut faults);
        }
        self.one_at_a_time(&mut faults);
        self.delegations_over(&mut faults);
        self.nothing_acknowledged_is_lost(&mut faults);
        self.outcomes_unmixed(&mut faults);
        self.single_messages(&mut faults);
        self.tasks_over(&mut faults);
        faults
    }

    fn dialogue(&self, id: &str) -> Option<&Dialogue> {
        self.state.dialogues.iter().find(|dialogue| dialogue.id == id)
    }

    fn ended_in_order(&self, dialogue: &Dialogue, faults: &mut Vec<String>) {
        let Dialogue { id, lines, max_turns, .. } = dialogue;
        let reason = dialogue.end_reason.as_deref().unwrap_or("none");
        if dialogue.state != "ended" || dialogue.ended_ms.is_none() || !REASONS.contains(&reason) {
            faults.push(format!("{id} is {} for {reason}", dialogue.state));
        }
        let sides = [&dialogue.initiator, &dialogue.participant];
        let in_turn =
            lines.iter().zip(sides.iter().cycle()).all(|(line, side)| line.from == **side);
        let count = lines.len() as u64;
        if !in_turn || count == 0 || count > *max_turns || count != dialogue.messages {
            let from: Vec<_> = lines.iter().map(|line| line.from.as_str()).collect();
            faults.push(format!("{id} has {} of {max_turns}: {from:?}", dialogue.messages));
        }
        if (reason == "max_turns") != (count == *max_turns) {
            faults.push(format!("{id} ended for {reason} after {count} of {max_turns}"));
        }
        let contents: BTreeSet<_> = lines.iter().map(|line| &line.content).collect();
        let ids: BTreeSet<_> = lines.iter().map(|line| &line.message_id).collect();
        if contents.len() != lines.len() || ids.len() != lines.len() {
            faults.push(format!("{id} holds something twice: {lines:?}"));
        }
    }

    /// Each side is told, however its sessions died. Once as news; again only if it is unknown that
    /// it was heard, and with the word that it may have been.
    fn both_sides_told_once(&self, dialogue: &Dialogue, faults: &mut Vec<String>) {
        for side in [&dialogue.initiator, &dialogue.participant] {
            let is_its = |told: &&Told| told.by.agent == side && told.conversation == dialogue.id;
            let mut told: Vec<_> = self.notes.told.iter().filter(is_its).collect();
            told.sort_by_key(|told| told.at_ms);
            if told.is_empty() {
                faults.push(format!("{side} was not told of the end of {}", dialogue.id));
            }
            let is_news_twice = told.iter().filter(|told| !told.told_before).count() > 1;
            // A session that died after the answer may have read it or not: its successor is told.
            let is_needed = |first: &Told, again: &Told| {
                let has_died = !first.is_acknowledged && first.by != again.by;
                has_died || self.is_unwritten(first.at_ms)
            };
            if is_news_twice || told.windows(2).any(|pair| !is_needed(pair[0], pair[1])) {
                faults.push(format!("{side} was told twice of an end: {told:?}"));
            }
            if told.iter().any(|told| dialogue.end_reason.as_ref() != Some(&told.reason)) {
                faults.push(format!("{} ended for another reason than {told:?}", dialogue.id));
            }
        }
    }

    /// Whether a session got the same again without need.
    fn is_repeated(&self, times: impl Iterator<Item = i64>) -> bool {
        let mut times: Vec<_> = times.collect();
        times.sort_unstable();
        times.windows(2).any(|pair| !self.is_unwritten(pair[0]))
    }

    /// Whether the server may have died before it had written down that an answer came.
    fn is_unwritten(&self, at_ms: i64) -> bool {
        self.kills.iter().any(|kill| (at_ms - UNWRITTEN..=at_ms + UNWRITTEN).contains(kill))
    }

    /// The two agents of a run have one living dialogue at most.
    fn one_at_a_time(&self, faults: &mut Vec<String>) {
        let mut spans: Vec<_> =
            self.state.dialogues.iter().map(|one| (one.began_ms, one.ended_ms, &one.id)).collect();
        spans.sort();
        for pair in spans.windows(2) {
            if pair[0].1.is_none_or(|ended| ended > pair[1].0) {
                faults.push(format!("two at once: {:?} and {:?}", pair[0], pair[1]));
            }
        }
    }

    fn delegations_over(&self, faults: &mut Vec<String>) {
        for one in &self.state.delegations {
            let is_over = one.status == "completed" || one.status == "failed";
            if !is_over || !one.result.is_object() || one.attempts > MOST_ATTEMPTS {
                faults.push(format!("a delegation that is not over: {one:?}"));
            }
            let Some(dialogue) = one.dialogue.as_ref() else { continue };
            let Some(dialogue) = self.dialogue(dialogue) else {
                faults.push(format!("{} has no dialogue {dialogue}", one.id));
                continue;
            };
            let first = dialogue.lines.first().map_or("", |line| &line.content);
            if dialogue.delegation.as_ref() != Some(&one.id) || !first.starts_with(&one.id) {
                faults.push(format!("{} has another's dialogue: {first}", one.id));
            }
            let told = one.result["messages"].as_array().cloned().unwrap_or_default();
            let told: Vec<_> = told.iter().filter_map(|said| said["content"].as_str()).collect();
            let said: Vec<_> = dialogue.lines.iter().map(|line| line.content.as_str()).collect();
            if one.result["conversation_id"] != *dialogue.id || told != said {
                faults.push(format!("{}'s result is not its dialogue: {told:?}", one.id));
            }
        }
    }

    fn nothing_acknowledged_is_lost(&self, faults: &mut Vec<String>) {
        for known in self.notes.said.iter().chain(&self.notes.heard) {
            let lines = self.dialogue(&known.conversation).map_or(&[][..], |one| &one.lines);
            let matching = |line: &&super::state::Line| {
                line.message_id == known.message_id && line.content == known.content
            };
            if lines.iter().filter(matching).count() != 1 {
                faults.push(format!("not once in the transcript: {known:?}"));
            }
        }
        for (who, conversation, content) in &self.notes.started {
            let first = self.dialogue(conversation).and_then(|one| one.lines.first());
            if first.is_none_or(|line| line.content != *content || line.from != who.agent) {
                faults.push(format!("{conversation} does not begin with {content}"));
            }
        }
        for (who, id, task) in &self.notes.delegated {
            let found = self.state.delegations.iter().find(|one| one.id == *id);
            if found.is_none_or(|one| one.task.as_ref() != Some(task) || one.agent != who.agent) {
                faults.push(format!("{who:?} delegated {id} for {task}: {found:?}"));
            }
        }
    }

    /// A session hears what became of a delegation, even if others died: with the task that it was
    /// made for, once, and the truth.
    fn outcomes_unmixed(&self, faults: &mut Vec<String>) {
        let mut heard: BTreeMap<_, Vec<i64>> = BTreeMap::new();
        for delegation in &self.state.delegations {
            if !self.notes.outcomes.iter().any(|outcome| outcome.delegation == delegation.id) {
                faults.push(format!("no session heard what became of it: {delegation:?}"));
            }
        }
        for outcome in &self.notes.outcomes {
            let times = heard.entry((outcome.by.session, &outcome.delegation)).or_default();
            times.push(outcome.at_ms);
            if self.is_repeated(times.iter().copied()) {
                faults.push(format!("heard twice: {outcome:?}"));
            }
            let found = self.state.delegations.iter().find(|one| one.id == outcome.delegation);
            let Some(found) = found else {
                faults.push(format!("of an unknown delegation: {outcome:?}"));
                continue;
            };
            if outcome.task.is_some() && found.task != outcome.task {
                faults.push(format!("another task's: {outcome:?} of {:?}", found.task));
            }
            let lines = found.dialogue.as_ref().and_then(|id| self.dialogue(id));
            let lines = lines.map_or(&[][..], |one| &one.lines);
            let said: Vec<_> = lines.iter().map(|line| line.content.clone()).collect();
            let is_true = said == outcome.contents;
            if found.status != outcome.status || !is_true {
                faults.push(format!("not what became of it: {outcome:?}, {found:?}"));
            }
        }
    }

    /// One that a session took and did not come back from is shown to the next one; none sees it
    /// twice without need, and none is lost.
    fn single_messages(&self, faults: &mut Vec<String>) {
        let mut received: BTreeMap<_, Vec<i64>> = BTreeMap::new();
        for (who, id, at_ms) in &self.notes.received {
            let times = received.entry((who.session, id)).or_default();
            times.push(*at_ms);
            if self.is_repeated(times.iter().copied()) {
                faults.push(format!("{id} came twice to {who:?}"));
            }
        }
        for (_, id) in &self.notes.sent {
            if !received.keys().any(|(_, received)| *received == id) {
                faults.push(format!("{id} never came"));
            }
        }
    }

    fn tasks_over(&self, faults: &mut Vec<String>) {
        for task in &self.state.tasks {
            if task.status != "done" && task.status != "blocked" {
                faults.push(format!("{task:?}"));
            }
            if self.notes.done.contains(&task.id) && task.status != "done" {
                faults.push(format!("{task:?} was reported done"));
            }
        }
    }
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
