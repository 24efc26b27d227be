//! The journal of an in-process agent: the operations of its earlier attempts, read from the run's
//! stream.
//!
//! Every durable operation takes the next index when it is *called*, so that joined futures get the
//! same indexes each time. A replay looks its operations up by index. An entry of another kind or
//! name means that the code was changed while the run existed.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::event::EventRef;
use crate::run::{QuestionAnswer, RunError, RunErrorCode, RunOutcome};
use crate::time::Timestamp;

/// A durable operation. `name` distinguishes uses of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalOperation {
    pub kind: OperationKind,
    pub name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationKind {
    /// `progress`, `log`, `partial` or `callers_released`: reported once.
    Note,
    Step,
    Question,
    Timer,
    Child,
    /// A read of the run's new inputs.
    Updates,
}

/// The recorded state of an index.
#[derive(Clone, Debug, PartialEq)]
pub enum JournalEntry {
    /// A note that was reported.
    Told,
    /// A step that began `attempts` times and whose outcome is not recorded.
    Unknown {
        attempts: u64,
    },
    StepCompleted(Value),
    StepFailed(String),
    Asked,
    Answered(QuestionAnswer),
    TimerSet(Timestamp),
    TimerFired,
    ChildStarted,
    ChildEnded(RunOutcome),
    InputsTaken(Vec<Value>),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalMismatch {
    #[error(
        "the journal does not fit the agent's code: entry {index} was {recorded}, the code now \
         does {found}; finish such runs with the old code, or cancel them"
    )]
    Different { index: u64, recorded: String, found: String },
    #[error(
        "the journal does not fit the agent's code: it has entries up to {recorded}, but the code \
         ended after {used}"
    )]
    Unused { recorded: u64, used: u64 },
}

#[derive(Clone, Debug, Default)]
pub struct Journal {
    entries: BTreeMap<u64, (JournalOperation, JournalEntry)>,
    /// Answers to the question whether a step happened, by the step's index.
    doubts: BTreeMap<u64, JournalEntry>,
    inputs_taken: usize,
}

impl Journal {
    /// Applies one event of the run's stream. Events of other kinds are skipped.
    pub fn replay(&mut self, event: EventRef<'_>) -> Result<(), serde_json::Error> {
        let Some(kind) = operation_kind(event.kind) else { return Ok(()) };
        // A note inside a step has no index of its own.
        if kind == OperationKind::Note && !is_placed(event.data)? {
            return Ok(());
        }
        let entry: JournalEventFields = serde_json::from_str(event.data)?;
        let before = self.entries.get(&entry.index).map(|(operation, _)| operation.kind);
        let recorded = entry.recorded(event.kind);
        if let JournalEntry::InputsTaken(inputs) = &recorded {
            self.inputs_taken = self.inputs_taken.max(entry.from.unwrap_or(0) + inputs.len());
        }
        if event.kind == "step_started" {
            // The question was about the attempt before. A new crash needs a new question.
            self.doubts.remove(&entry.index);
        }
        // A question under a step's index asks whether that step happened.
        if kind == OperationKind::Question && before == Some(OperationKind::Step) {
            self.doubts.insert(entry.index, recorded);
            return Ok(());
        }
        let name = match kind {
            OperationKind::Note => event.kind.to_owned(),
            OperationKind::Question if before.is_some() => self.name_of(entry.index),
            OperationKind::Question => entry.question_kind(),
            OperationKind::Child if before.is_some() => self.name_of(entry.index),
            OperationKind::Child => entry.agent.unwrap_or_default(),
            OperationKind::Step => entry.name.unwrap_or_default(),
            OperationKind::Timer => "sleep".to_owned(),
            OperationKind::Updates => "updates".to_owned(),
        };
        self.entries.insert(entry.index, (JournalOperation { kind, name }, recorded));
        Ok(())
    }

    fn name_of(&self, index: u64) -> String {
        self.entries.get(&index).map(|(operation, _)| operation.name.clone()).unwrap_or_default()
    }

    /// The record of the operation that is called now under `index`; None if it is new.
    pub fn recall(
        &self,
        index: u64,
        found: &JournalOperation,
    ) -> Result<Option<&JournalEntry>, JournalMismatch> {
        match self.entries.get(&index) {
            None => Ok(None),
            Some((operation, recorded)) if operation == found => Ok(Some(recorded)),
            Some((operation, _)) => Err(JournalMismatch::Different {
                index,
                recorded: operation.to_string(),
                found: found.to_string(),
            }),
        }
    }

    /// The record of the question whether the step under `index` happened.
    pub fn step_confirmation(&self, index: u64) -> Option<&JournalEntry> {
        self.doubts.get(&index)
    }

    /// The number of inputs that the agent has read.
    pub fn inputs_taken(&self) -> usize {
        self.inputs_taken
    }

    /// Checks at the agent's end that every recorded operation was used.
    pub fn check_end(&self, used: u64) -> Result<(), JournalMismatch> {
        match self.entries.last_key_value() {
            Some((last, _)) if *last >= used => {
                Err(JournalMismatch::Unused { recorded: *last + 1, used })
            }
            _ => Ok(()),
        }
    }
}

impl std::fmt::Display for JournalOperation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.kind {
            OperationKind::Note => "note",
            OperationKind::Step => "step",
            OperationKind::Question => "question of kind",
            OperationKind::Timer => "timer",
            OperationKind::Child => "call of",
            OperationKind::Updates => "look for",
        };
        write!(f, "{kind} {:?}", self.name)
    }
}

fn operation_kind(event: &str) -> Option<OperationKind> {
    Some(match event {
        "progress" | "log" | "partial" | "callers_released" => OperationKind::Note,
        "step_started" | "step_completed" | "step_failed" => OperationKind::Step,
        "question" | "answer" => OperationKind::Question,
        "timer_set" | "timer_fired" => OperationKind::Timer,
        "child_started" | "child_ended" => OperationKind::Child,
        "inputs_taken" => OperationKind::Updates,
        _ => return None,
    })
}

fn is_placed(data: &str) -> Result<bool, serde_json::Error> {
    #[derive(Deserialize)]
    struct JournalIndexField {
        index: Option<u64>,
    }
    Ok(serde_json::from_str::<JournalIndexField>(data)?.index.is_some())
}

/// The fields of all kinds of entries that the journal reads.
#[derive(Deserialize)]
struct JournalEventFields {
    index: u64,
    name: Option<String>,
    agent: Option<String>,
    kind: Option<String>,
    attempt: Option<u64>,
    result: Option<Value>,
    error: Option<Value>,
    until: Option<Timestamp>,
    status: Option<String>,
    action: Option<crate::run::AnswerAction>,
    content: Option<Value>,
    reason: Option<String>,
    from: Option<usize>,
    inputs: Option<Vec<Value>>,
}

impl JournalEventFields {
    fn question_kind(&self) -> String {
        self.kind.clone().unwrap_or_default()
    }

    fn recorded(&self, event: &str) -> JournalEntry {
        match event {
            "step_started" => JournalEntry::Unknown { attempts: self.attempt.unwrap_or(1) },
            "step_completed" => JournalEntry::StepCompleted(self.result()),
            "step_failed" => JournalEntry::StepFailed(self.error_text()),
            "question" => JournalEntry::Asked,
            "answer" => JournalEntry::Answered(QuestionAnswer {
                action: self.action.unwrap_or(crate::run::AnswerAction::Cancel),
                content: self.content.clone().unwrap_or_default(),
                reason: self.reason.clone(),
            }),
            "timer_set" => JournalEntry::TimerSet(self.until.unwrap_or_default()),
            "timer_fired" => JournalEntry::TimerFired,
            "child_started" => JournalEntry::ChildStarted,
            "child_ended" => JournalEntry::ChildEnded(self.outcome()),
            "inputs_taken" => JournalEntry::InputsTaken(self.inputs.clone().unwrap_or_default()),
            _ => JournalEntry::Told,
        }
    }

    fn result(&self) -> Value {
        self.result.clone().unwrap_or_default()
    }

    fn error_text(&self) -> String {
        self.error.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    fn outcome(&self) -> RunOutcome {
        match self.status.as_deref() {
            Some("completed") => RunOutcome::Completed(self.result()),
            Some("cancelled") => RunOutcome::Cancelled,
            _ => RunOutcome::Failed(
                self.error
                    .clone()
                    .and_then(|error| serde_json::from_value(error).ok())
                    .unwrap_or_else(|| {
                        RunError::new(RunErrorCode::InternalError.as_str(), "the child failed")
                    }),
            ),
        }
    }
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
