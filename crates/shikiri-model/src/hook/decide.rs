//! One event in, one decision out.

use std::cell::OnceCell;

use serde_json::{Map, Value, json};

use crate::time::Timestamp;

use super::conventions::Conventions;
use super::evidence::{Evidence, Want};
use super::payload::Payload;
use super::registry::{Change, Known};

/// Everything that follows from an event.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    pub changes: Vec<Change>,
    pub answer: Answer,
    pub log: LogLine,
    /// Written when the answer has been given: a hook that is killed before delivers again.
    pub confirm: Vec<Change>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Done(Box<Decision>),
    Wants(Want),
}

/// What Claude Code is told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    pub context: Option<String>,
    /// The call is not made, for this reason.
    pub deny: Option<String>,
    /// The call's input in place of what the model wrote: all of it, since nothing is merged.
    pub input: Option<Map<String, Value>>,
}

/// The event as a row of the log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogLine {
    pub hook_name: String,
    pub event_type: String,
    pub agent_id: Option<String>,
    /// `ok`, `injected`, `blocked`, `ignored`.
    pub result: &'static str,
    pub details: Option<Value>,
    /// Of calls of MCP tools: the server that is called sees the same id.
    pub tool_use_id: Option<String>,
}

impl Answer {
    /// As Claude Code reads it from standard output; none if there is nothing to say.
    pub fn to_json(&self, event: &str) -> Option<Value> {
        if *self == Self::default() {
            return None;
        }
        let mut specific = json!({ "hookEventName": event });
        if let Some(text) = &self.context {
            specific["additionalContext"] = json!(text);
        }
        if let Some(reason) = &self.deny {
            specific["permissionDecision"] = json!("deny");
            specific["permissionDecisionReason"] = json!(reason);
        }
        if let Some(input) = &self.input {
            specific["updatedInput"] = json!(input);
        }
        Some(json!({ "hookSpecificOutput": specific }))
    }
}

/// Decides what an event leads to.
pub fn decide(
    payload: &Payload,
    known: &Known,
    evidence: &Evidence,
    conventions: &Conventions,
    now: Timestamp,
) -> Outcome {
    let (done, commands) = Default::default();
    let mut turn = Turn { payload, known, evidence, conventions, now, done, commands };
    turn.done.log = LogLine {
        hook_name: payload.event.clone(),
        event_type: payload.event.clone(),
        agent_id: payload.agent_id.clone(),
        result: "ok",
        details: None,
        tool_use_id: None,
    };
    turn.record_read_spawns();
    let taken = match payload.event.as_str() {
        "SubagentStart" => turn.start(),
        "SubagentStop" => turn.stop(),
        "StopFailure" => turn.fail(),
        "PreToolUse" => turn.before_tool(),
        "PostToolUse" if payload.spawns() => turn.returned(),
        "PostToolUseFailure" if payload.spawns() => turn.refused(),
        "Stop" => turn.idle(),
        "SessionEnd" => turn.end_session(),
        "SessionStart" => turn.begin_session(),
        "PostCompact" if payload.agent_id.is_none() => turn.forget_what_was_told(),
        event => {
            if !OTHER_EVENTS.contains(&event) {
                turn.done.log.result = "ignored";
            }
            Ok(())
        }
    };
    match taken {
        Ok(()) => Outcome::Done(Box::new(turn.done)),
        Err(want) => Outcome::Wants(want),
    }
}

/// Events that Claude Code 2.1.325 has besides those that mean something here.
const OTHER_EVENTS: [&str; 25] = [
    "PostToolUse",
    "PostToolUseFailure",
    "PostToolBatch",
    "Notification",
    "UserPromptSubmit",
    "UserPromptExpansion",
    "PreCompact",
    "PostCompact",
    "PreModelSwitch",
    "PostModelSwitch",
    "PermissionRequest",
    "PermissionDenied",
    "Setup",
    "TeammateIdle",
    "TaskCreated",
    "TaskCompleted",
    "Elicitation",
    "ElicitationResult",
    "ConfigChange",
    "WorktreeCreate",
    "WorktreeRemove",
    "InstructionsLoaded",
    "CwdChanged",
    "FileChanged",
    "MessageDisplay",
];

/// One event while it is decided.
pub(super) struct Turn<'a> {
    pub(super) payload: &'a Payload,
    pub(super) known: &'a Known,
    pub(super) evidence: &'a Evidence,
    pub(super) conventions: &'a Conventions,
    pub(super) now: Timestamp,
    pub(super) done: Decision,
    /// The commands of the shell line that is about to be run, once a rule asks for them.
    pub(super) commands: OnceCell<Vec<String>>,
}

/// A step is done, or wants to know something first.
pub(super) type Step = Result<(), Want>;

impl Turn<'_> {
    pub(super) fn change(&mut self, change: Change) {
        self.done.changes.push(change);
    }

    pub(super) fn detail(&mut self, name: &str, value: impl Into<Value>) {
        let details = self.done.log.details.get_or_insert_with(|| Value::Object(Map::new()));
        details[name] = value.into();
    }
}
