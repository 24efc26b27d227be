//! The decision for one hook event.

use std::cell::OnceCell;

use serde_json::{Map, Value, json};

use crate::time::Timestamp;

use super::conventions::Conventions;
use super::hook_evidence::{EvidenceRequest, HookEvidence};
use super::hook_input::HookInput;
use super::hook_rows::{HookRowChange, HookRows};
use super::shell_commands::ShellLine;
use super::tool_targets::ToolTarget;

/// The result of a decision.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HookDecision {
    pub changes: Vec<HookRowChange>,
    pub answer: HookOutput,
    pub log: HookLogEntry,
    /// Written after the answer was written. A hook that is killed before delivers again.
    pub confirm: Vec<HookRowChange>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum HookOutcome {
    Done(Box<HookDecision>),
    Wants(EvidenceRequest),
}

/// The answer to Claude Code.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HookOutput {
    pub context: Option<String>,
    /// Denies the call, for this reason.
    pub deny: Option<String>,
    /// Leaves the call to a person, for this reason.
    pub ask: Option<String>,
    /// Shown to the person, not to the agent.
    pub system: Option<String>,
    /// Replaces the whole input of the call; Claude Code does not merge it.
    pub input: Option<Map<String, Value>>,
}

/// The event's row in the log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HookLogEntry {
    pub hook_name: String,
    pub event_type: String,
    pub agent_id: Option<String>,
    /// `ok`, `injected`, `asked`, `blocked`, `ignored`.
    pub result: &'static str,
    pub details: Option<Value>,
    /// For calls of MCP tools: the called server sees the same id.
    pub tool_use_id: Option<String>,
}

impl HookOutput {
    /// The JSON for standard output; None if there is nothing to answer.
    pub fn to_json(&self, event: &str) -> Option<Value> {
        if *self == Self::default() {
            return None;
        }
        let is_for_agent = Self { system: None, ..self.clone() } != Self::default();
        let mut answer = Map::new();
        if let Some(text) = &self.system {
            answer.insert("systemMessage".to_owned(), json!(text));
        }
        if !is_for_agent {
            return Some(Value::Object(answer));
        }
        let mut specific = json!({ "hookEventName": event });
        if let Some(text) = &self.context {
            specific["additionalContext"] = json!(text);
        }
        if let Some(reason) = &self.deny {
            specific["permissionDecision"] = json!("deny");
            specific["permissionDecisionReason"] = json!(reason);
        } else if let Some(reason) = &self.ask {
            specific["permissionDecision"] = json!("ask");
            specific["permissionDecisionReason"] = json!(reason);
        }
        if let Some(input) = &self.input {
            specific["updatedInput"] = json!(input);
        }
        answer.insert("hookSpecificOutput".to_owned(), specific);
        Some(Value::Object(answer))
    }
}

/// Decides an event.
pub fn decide(
    payload: &HookInput,
    known: &HookRows,
    evidence: &HookEvidence,
    conventions: &Conventions,
    now: Timestamp,
) -> HookOutcome {
    let (done, shell_line, targets) = Default::default();
    let mut turn =
        HookEvaluation { payload, known, evidence, conventions, now, done, shell_line, targets };
    turn.done.log = HookLogEntry {
        hook_name: payload.event.clone(),
        event_type: payload.event.clone(),
        agent_id: payload.agent_id.clone(),
        result: "ok",
        details: None,
        tool_use_id: None,
    };
    if evidence.store_problem.is_some() {
        return match turn.decide_without_rows() {
            Ok(()) => HookOutcome::Done(Box::new(turn.done)),
            Err(want) => HookOutcome::Wants(want),
        };
    }
    turn.record_read_spawns();
    let taken = match payload.event.as_str() {
        "SubagentStart" => turn.start(),
        "SubagentStop" => turn.stop(),
        "StopFailure" => turn.fail(),
        "PreToolUse" => turn.before_tool(),
        "PostToolUse" if payload.is_spawn_call() => turn.on_spawn_returned(),
        "PostToolUseFailure" if payload.is_spawn_call() => turn.on_spawn_failed(),
        "Stop" => turn.on_stop(),
        "SessionEnd" => turn.end_session(),
        "SessionStart" => turn.begin_session(),
        "UserPromptSubmit" => turn.on_prompt(),
        "PostCompact" if payload.agent_id.is_none() => turn.after_compaction(),
        event => {
            if !OTHER_EVENTS.contains(&event) {
                turn.done.log.result = "ignored";
            }
            Ok(())
        }
    };
    turn.record_touches();
    match taken.and_then(|()| turn.report_problem()) {
        Ok(()) => HookOutcome::Done(Box::new(turn.done)),
        Err(want) => HookOutcome::Wants(want),
    }
}

/// Events that Claude Code 2.1.325 also sends and that need no decision here.
const OTHER_EVENTS: [&str; 24] = [
    "PostToolUse",
    "PostToolUseFailure",
    "PostToolBatch",
    "Notification",
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

/// The state while one event is decided.
pub(super) struct HookEvaluation<'a> {
    pub(super) payload: &'a HookInput,
    pub(super) known: &'a HookRows,
    pub(super) evidence: &'a HookEvidence,
    pub(super) conventions: &'a Conventions,
    pub(super) now: Timestamp,
    pub(super) done: HookDecision,
    /// The shell line of the call, parsed when a rule needs it.
    pub(super) shell_line: OnceCell<ShellLine>,
    /// The files of the call.
    pub(super) targets: OnceCell<Vec<ToolTarget>>,
}

/// The result of a step: done, or evidence is needed first.
pub(super) type EvaluationResult = Result<(), EvidenceRequest>;

impl HookEvaluation<'_> {
    pub(super) fn change(&mut self, change: HookRowChange) {
        self.done.changes.push(change);
    }

    pub(super) fn detail(&mut self, name: &str, value: impl Into<Value>) {
        let details = self.done.log.details.get_or_insert_with(|| Value::Object(Map::new()));
        details[name] = value.into();
    }
}
