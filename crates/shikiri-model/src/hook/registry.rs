//! The rows that hooks keep: subagents, the calls that spawned them, and what a session was told.

use crate::time::Timestamp;

use super::conventions::{Conventions, Severity};
use super::evidence::Evidence;
use super::payload::Payload;
use super::role::{Confidence, RoleSource, words};

/// One subagent, from its start or first call to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subagent {
    pub agent_id: String,
    pub session_id: String,
    pub agent_type: String,
    pub role: Option<String>,
    pub role_source: Option<RoleSource>,
    pub confidence: Confidence,
    pub created_at: Timestamp,
    /// Its convention was delivered.
    pub startup_processed: bool,
    pub startup_processed_at: Option<Timestamp>,
    /// The call that spawned it, as a number and by its id.
    pub task_match_index: Option<i64>,
    pub tool_use_id: Option<String>,
    pub parent_agent_id: Option<String>,
    /// Which part of the conventions it has got.
    pub delivered: Option<String>,
    /// Who is about to deliver, and until when nobody else should.
    pub claim: Option<Claim>,
    /// What is on the disk about it has been looked at.
    pub checked: bool,
    pub state: SubagentState,
    pub ended_at: Option<Timestamp>,
    pub end_reason: Option<String>,
    /// What it spent, as JSON: a row for each model.
    pub usage: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub by: String,
    pub until: Timestamp,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SubagentState {
    #[default]
    Active,
    Ended,
}
words!(SubagentState { Active = "active", Ended = "ended" });

/// A call of the tool that starts subagents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spawn {
    /// Given by the store.
    pub id: Option<i64>,
    pub session_id: String,
    pub tool_use_id: String,
    /// The line of the transcript that it was read from.
    pub transcript_index: Option<i64>,
    pub subagent_type: String,
    pub role: Option<String>,
    /// Of the prompt: the first 16 digits of its SHA-256.
    pub prompt_hash: String,
    /// A teammate's.
    pub name: Option<String>,
    /// The subagent that called, if it was one.
    pub parent_agent_id: Option<String>,
    pub matched_agent_id: Option<String>,
    /// Which part of the conventions was written into its prompt.
    pub delivered: Option<String>,
    pub created_at: Timestamp,
    pub ended_at: Option<Timestamp>,
}

/// That a session was told something under a name, and at how many tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    pub key: MarkKey,
    pub created_at: Timestamp,
    pub last_tokens: u64,
    /// `active`, `claimed`, `expired`, `compact_expired`.
    pub status: String,
    pub expired_at: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkKey {
    pub session_id: String,
    pub hook_name: String,
}

/// What a decision is made of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Known {
    /// The subagent that the event is about.
    pub agent: Option<Subagent>,
    /// The calls that [`Needs::spawns`] named.
    pub spawns: Vec<Spawn>,
    /// Calls of the session whose subagent is not known, oldest first.
    pub pending: Vec<Spawn>,
    /// Active subagents of the session, oldest first.
    pub active: Vec<Subagent>,
    pub marks: Vec<Mark>,
}

/// Which rows an event needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    pub session_id: String,
    pub agent_id: Option<String>,
    /// Calls by their `tool_use_id`.
    pub spawns: Vec<String>,
    pub pending: bool,
    /// The subagent of the call, where the event names none.
    pub matched: bool,
    /// Active subagents of the session.
    pub active: bool,
    pub marks: bool,
}

/// A row as it is to be, or rows that are to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Subagent(Subagent),
    Spawn(Spawn),
    Mark(Mark),
    /// All marks of a session's main agent have run out; those of its subagents stay.
    ExpireMainMarks {
        session_id: String,
        status: &'static str,
        at: Timestamp,
    },
    /// A convention was delivered: its answer is on its way.
    Delivered {
        agent_id: String,
        key: String,
        at: Timestamp,
    },
    /// A call was taken for another subagent's.
    Unmatch {
        session_id: String,
        tool_use_id: String,
    },
    /// A subagent was taken for another call's.
    Unbind {
        agent_id: String,
    },
}

/// How the names of marks begin that are a subagent's.
pub const SUBAGENTS_MARK: &str = "subagent:";

impl Needs {
    pub fn of(payload: &Payload, evidence: &Evidence, conventions: &Conventions) -> Self {
        let session_id = payload.session_id.clone();
        let mut needs = Self { session_id, agent_id: payload.agent_id.clone(), ..Self::default() };
        if payload.spawns() {
            needs.spawns.extend(payload.tool_use_id.clone());
            needs.agent_id = payload.response("agentId").map(str::to_owned).or(needs.agent_id);
        }
        let meta = evidence.meta.as_ref().and_then(Option::as_ref);
        needs.spawns.extend(meta.and_then(|meta| meta.tool_use_id.clone()));
        let read = evidence.spawns.iter().flatten();
        needs.spawns.extend(read.map(|spawn| spawn.tool_use_id.clone()));
        match payload.event.as_str() {
            "SubagentStart" => {
                (needs.pending, needs.active) = (true, payload.agent_id.is_none());
            }
            // Whoever called is not the one that has ended.
            "PostToolUseFailure" if payload.spawns() => {
                (needs.agent_id, needs.matched, needs.pending) = (None, true, true);
            }
            "PreToolUse" => {
                needs.pending = evidence.meta.is_some() || payload.spawns();
                needs.active = payload.agent_id.is_none() && payload.agent_type.is_none();
                needs.marks = payload.agent_id.is_none() || conventions.has_marks_of_subagents();
            }
            "SubagentStop" => (needs.pending, needs.active) = (true, payload.agent_id.is_none()),
            "Stop" | "SessionEnd" => (needs.pending, needs.active) = (true, true),
            "SessionStart" | "StopFailure" | "PostToolUse" => {
                needs.pending = payload.event != "PostToolUse" || payload.spawns();
            }
            _ => {}
        }
        needs
    }
}

impl Conventions {
    /// Rules that are not said every time, or texts that are said again.
    fn has_marks_of_subagents(&self) -> bool {
        let is_marked = |severity, threshold: Option<u64>| match severity {
            Severity::Info => true,
            Severity::Warn => threshold.is_some(),
            Severity::Block => false,
        };
        let mut texts = self.roles.values().chain(self.agent_types.values()).chain(&self.default);
        self.rules.iter().any(|rule| is_marked(rule.severity, rule.token_threshold))
            || texts.any(|convention| convention.token_threshold.is_some())
    }
}

impl Subagent {
    pub fn new(agent_id: &str, session_id: &str, now: Timestamp) -> Self {
        Self {
            agent_id: agent_id.to_owned(),
            session_id: session_id.to_owned(),
            agent_type: "unknown".to_owned(),
            role: None,
            role_source: None,
            confidence: Confidence::None,
            created_at: now,
            startup_processed: false,
            startup_processed_at: None,
            task_match_index: None,
            tool_use_id: None,
            parent_agent_id: None,
            delivered: None,
            claim: None,
            checked: false,
            state: SubagentState::Active,
            ended_at: None,
            end_reason: None,
            usage: None,
        }
    }

    pub fn is_active(&self) -> bool {
        self.state == SubagentState::Active
    }

    /// Ends it; the first reason counts.
    pub fn end(&mut self, reason: &str, now: Timestamp) {
        if self.is_active() {
            self.state = SubagentState::Ended;
            self.ended_at = Some(now);
            self.end_reason = Some(reason.to_owned());
        }
    }

    /// It was taken for another call's: what followed from that is not true.
    pub fn unbind(&mut self) {
        (self.tool_use_id, self.task_match_index) = (None, None);
        if self.role_source == Some(RoleSource::TaskMatch) {
            (self.role, self.role_source) = (None, None);
        }
        (self.confidence, self.checked) = (Confidence::None, false);
    }

    /// Its role is as sure as it can be.
    pub fn is_certain(&self) -> bool {
        self.confidence == Confidence::Exact || self.role_source == Some(RoleSource::Manual)
    }
}

impl Spawn {
    /// As the call that is about to be made says.
    pub fn from_call(payload: &Payload, tool_use_id: &str, now: Timestamp) -> Self {
        let prompt = payload.input("prompt").unwrap_or_default();
        Self {
            id: None,
            session_id: payload.session_id.clone(),
            tool_use_id: tool_use_id.to_owned(),
            transcript_index: None,
            subagent_type: payload.input("subagent_type").unwrap_or(USUAL_TYPE).to_owned(),
            role: super::role::role_in(prompt).map(str::to_owned),
            prompt_hash: hash(prompt),
            name: payload.input("name").map(str::to_owned),
            parent_agent_id: payload.agent_id.clone(),
            matched_agent_id: None,
            delivered: None,
            created_at: now,
            ended_at: None,
        }
    }
}

/// What is spawned when no type is named.
const USUAL_TYPE: &str = "general-purpose";

/// The first 16 digits of the prompt's SHA-256.
pub(super) fn hash(prompt: &str) -> String {
    use sha2::{Digest as _, Sha256};
    Sha256::digest(prompt.as_bytes()).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}
