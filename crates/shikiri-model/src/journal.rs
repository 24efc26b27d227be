//! The journal of an in-process agent: what its earlier attempts did, read from the run's stream.
//!
//! Every durable thing that an agent does takes the next index when it is *called*, so that
//! joined futures get the same indexes each time. Replaying asks the journal what is known under
//! an index; an entry of another kind or name means that the code has changed under the run.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::event::EventRef;
use crate::run::{Answer, Outcome, RunError};
use crate::time::Timestamp;

/// What an agent can do durably. `name` tells two uses of one kind apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    pub kind: OperationKind,
    pub name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationKind {
    /// `progress`, `log`, `partial`, `callers_released`: told once.
    Note,
    Step,
    Question,
    Timer,
    Child,
    /// A look at what the run was given since the last look.
    Updates,
}

/// What is known under an index.
#[derive(Clone, Debug, PartialEq)]
pub enum Recorded {
    /// A note that was told.
    Told,
    /// A step that began `attempts` times and whose outcome is not recorded.
    Unknown {
        attempts: u64,
    },
    StepCompleted(Value),
    StepFailed(String),
    Asked,
    Answered(Answer),
    TimerSet(Timestamp),
    TimerFired,
    ChildStarted,
    ChildEnded(Outcome),
    InputsTaken(Vec<Value>),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
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
    entries: BTreeMap<u64, (Operation, Recorded)>,
    /// Answers to the question "did this step happen?", by the step's index.
    doubts: BTreeMap<u64, Recorded>,
    inputs_taken: usize,
}

impl Journal {
    /// Takes in one event of the run's stream; events of other kinds are passed over.
    pub fn replay(&mut self, event: EventRef<'_>) -> Result<(), serde_json::Error> {
        let Some(kind) = operation_kind(event.kind) else { return Ok(()) };
        // What a step tells while it works has no place of its own.
        if kind == OperationKind::Note && !is_placed(event.data)? {
            return Ok(());
        }
        let entry: Entry = serde_json::from_str(event.data)?;
        let before = self.entries.get(&entry.index).map(|(operation, _)| operation.kind);
        let recorded = entry.recorded(event.kind);
        if let Recorded::InputsTaken(inputs) = &recorded {
            self.inputs_taken = self.inputs_taken.max(entry.from.unwrap_or(0) + inputs.len());
        }
        if event.kind == "step_started" {
            // The doubt was about the attempt before: a new crash is a new question.
            self.doubts.remove(&entry.index);
        }
        // A question under a step's index is the doubt about that step.
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
        self.entries.insert(entry.index, (Operation { kind, name }, recorded));
        Ok(())
    }

    fn name_of(&self, index: u64) -> String {
        self.entries.get(&index).map(|(operation, _)| operation.name.clone()).unwrap_or_default()
    }

    /// What is known of the operation that the code does now under `index`; None if it is new.
    pub fn recall(&self, index: u64, found: &Operation) -> Result<Option<&Recorded>, Mismatch> {
        match self.entries.get(&index) {
            None => Ok(None),
            Some((operation, recorded)) if operation == found => Ok(Some(recorded)),
            Some((operation, _)) => Err(Mismatch::Different {
                index,
                recorded: operation.to_string(),
                found: found.to_string(),
            }),
        }
    }

    /// What is known of the question whether the step under `index` happened.
    pub fn doubt(&self, index: u64) -> Option<&Recorded> {
        self.doubts.get(&index)
    }

    /// How many of the run's inputs its agent has taken.
    pub fn inputs_taken(&self) -> usize {
        self.inputs_taken
    }

    /// At the agent's end: everything recorded must have been used.
    pub fn check_end(&self, used: u64) -> Result<(), Mismatch> {
        match self.entries.last_key_value() {
            Some((last, _)) if *last >= used => Err(Mismatch::Unused { recorded: *last + 1, used }),
            _ => Ok(()),
        }
    }
}

impl std::fmt::Display for Operation {
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
    struct Place {
        index: Option<u64>,
    }
    Ok(serde_json::from_str::<Place>(data)?.index.is_some())
}

/// The fields that the journal reads, of all kinds of entries together.
#[derive(Deserialize)]
struct Entry {
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

impl Entry {
    fn question_kind(&self) -> String {
        self.kind.clone().unwrap_or_default()
    }

    fn recorded(&self, event: &str) -> Recorded {
        match event {
            "step_started" => Recorded::Unknown { attempts: self.attempt.unwrap_or(1) },
            "step_completed" => Recorded::StepCompleted(self.result()),
            "step_failed" => Recorded::StepFailed(self.error_text()),
            "question" => Recorded::Asked,
            "answer" => Recorded::Answered(Answer {
                action: self.action.unwrap_or(crate::run::AnswerAction::Cancel),
                content: self.content.clone().unwrap_or_default(),
                reason: self.reason.clone(),
            }),
            "timer_set" => Recorded::TimerSet(self.until.unwrap_or_default()),
            "timer_fired" => Recorded::TimerFired,
            "child_started" => Recorded::ChildStarted,
            "child_ended" => Recorded::ChildEnded(self.outcome()),
            "inputs_taken" => Recorded::InputsTaken(self.inputs.clone().unwrap_or_default()),
            _ => Recorded::Told,
        }
    }

    fn result(&self) -> Value {
        self.result.clone().unwrap_or_default()
    }

    fn error_text(&self) -> String {
        self.error.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    fn outcome(&self) -> Outcome {
        match self.status.as_deref() {
            Some("completed") => Outcome::Completed(self.result()),
            Some("cancelled") => Outcome::Cancelled,
            _ => Outcome::Failed(
                self.error
                    .clone()
                    .and_then(|error| serde_json::from_value(error).ok())
                    .unwrap_or_else(|| RunError::new("INTERNAL_ERROR", "the child failed")),
            ),
        }
    }
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
