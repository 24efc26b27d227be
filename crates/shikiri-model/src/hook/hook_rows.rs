//! The rows of hooks: subagents, the calls that spawned them, and the texts that a session was
//! given.

use crate::time::Timestamp;

use super::conventions::{Conventions, RuleSeverity};
use super::file_touches::FileTouch;
use super::hook_evidence::HookEvidence;
use super::hook_input::HookInput;
use super::hook_session::HookSession;
use super::role_source::{RoleConfidence, RoleSource};
use crate::macros::text_enum;

/// One subagent, from its start or first call to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubagentRecord {
    pub agent_id: String,
    pub session_id: String,
    pub agent_type: String,
    pub role: Option<String>,
    pub role_source: Option<RoleSource>,
    pub confidence: RoleConfidence,
    pub created_at: Timestamp,
    /// Its convention was delivered.
    pub startup_processed: bool,
    pub startup_processed_at: Option<Timestamp>,
    /// The call that spawned it, by number and by id.
    pub task_match_index: Option<i64>,
    pub tool_use_id: Option<String>,
    pub parent_agent_id: Option<String>,
    /// The part of the conventions that it was given.
    pub delivered: Option<String>,
    /// The process that is about to deliver, and the time until which others leave it to that
    /// process.
    pub claim: Option<DeliveryClaim>,
    /// The evidence on disk about it was read.
    pub checked: bool,
    pub state: SubagentState,
    pub ended_at: Option<Timestamp>,
    pub end_reason: Option<String>,
    /// Its usage as JSON, one row per model.
    pub usage: Option<String>,
    /// Nothing is missing in the usage. Otherwise it is read again.
    pub usage_complete: bool,
    /// Its transcript, as far as it was found.
    pub transcript_path: Option<String>,
    /// Its latest start, or an end after which it went on: its last answer is later.
    pub resumed_at: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryClaim {
    pub by: String,
    pub until: Timestamp,
}

text_enum! {
    #[derive(Default)]
    pub enum SubagentState {
        #[default]
        Active = "active",
        Ended = "ended",
    }
}

/// A call of the tool that spawns subagents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpawnCall {
    /// Assigned by the store.
    pub id: Option<i64>,
    pub session_id: String,
    pub tool_use_id: String,
    /// The transcript line that it was read from.
    pub transcript_index: Option<i64>,
    pub subagent_type: String,
    pub role: Option<String>,
    /// The first 16 digits of the prompt's SHA-256.
    pub prompt_hash: String,
    /// The name of a teammate.
    pub name: Option<String>,
    /// The subagent that made the call; None for the main agent.
    pub parent_agent_id: Option<String>,
    pub matched_agent_id: Option<String>,
    /// The part of the conventions that was written into its prompt.
    pub delivered: Option<String>,
    pub created_at: Timestamp,
    pub ended_at: Option<Timestamp>,
}

/// A named text that a session was given, and the token count at that time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionMark {
    pub key: SessionMarkKey,
    pub created_at: Timestamp,
    pub last_tokens: u64,
    /// `active`, `claimed`, `expired`, `compact_expired`.
    pub status: String,
    pub expired_at: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionMarkKey {
    pub session_id: String,
    pub hook_name: String,
}

/// The rows that a decision is based on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HookRows {
    /// The subagent that sent the event.
    pub agent: Option<SubagentRecord>,
    /// The calls that [`HookRowsNeeded::spawns`] named.
    pub spawns: Vec<SpawnCall>,
    /// Calls of the session without a known subagent, oldest first.
    pub pending: Vec<SpawnCall>,
    /// Active subagents of the session, oldest first.
    pub active: Vec<SubagentRecord>,
    /// Subagents of the session that ended and whose usage is not complete, oldest first.
    pub unread: Vec<SubagentRecord>,
    pub session: Option<HookSession>,
    pub marks: Vec<SessionMark>,
}

/// The rows that an event needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HookRowsNeeded {
    pub session_id: String,
    pub agent_id: Option<String>,
    /// Calls by their `tool_use_id`.
    pub spawns: Vec<String>,
    pub pending: bool,
    /// The subagent of the spawn call, for an event that names no subagent.
    pub matched: bool,
    /// Active subagents of the session.
    pub active: bool,
    /// Subagents whose usage is not complete.
    pub unread: bool,
    pub session: bool,
    pub marks: bool,
}

/// A row to write, or a change of several rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookRowChange {
    Subagent(SubagentRecord),
    Spawn(SpawnCall),
    Mark(SessionMark),
    Session(HookSession),
    /// Expires the marks of a session's main agent. Those of its subagents stay.
    ExpireMainMarks {
        session_id: String,
        status: &'static str,
        at: Timestamp,
    },
    /// A convention was delivered with an answer that is being written.
    Delivered {
        agent_id: String,
        key: String,
        at: Timestamp,
    },
    /// A call was matched to the wrong subagent.
    Unmatch {
        session_id: String,
        tool_use_id: String,
    },
    /// A tool call used a file.
    Touch(FileTouch),
    /// A subagent was matched to the wrong call.
    Unbind {
        agent_id: String,
    },
}

/// The prefix of the marks of subagents.
pub const SUBAGENTS_MARK: &str = "subagent:";

impl HookRowsNeeded {
    pub fn of(payload: &HookInput, evidence: &HookEvidence, conventions: &Conventions) -> Self {
        let session_id = payload.session_id.clone();
        let mut needs = Self { session_id, agent_id: payload.agent_id.clone(), ..Self::default() };
        if payload.is_spawn_call() {
            needs.spawns.extend(payload.tool_use_id.clone());
            needs.agent_id = payload.response("agentId").map(str::to_owned).or(needs.agent_id);
        }
        let meta = evidence.meta.as_ref().and_then(Option::as_ref);
        needs.spawns.extend(meta.and_then(|meta| meta.tool_use_id.clone()));
        let read = evidence.spawns.iter().flatten();
        needs.spawns.extend(read.map(|spawn| spawn.tool_use_id.clone()));
        let is_main = payload.agent_id.is_none();
        match payload.event.as_str() {
            "SubagentStart" => {
                (needs.pending, needs.active) = (true, true);
                needs.marks = payload.is_of_workflow();
            }
            // The event comes from the caller, not from the subagent that ended.
            "PostToolUseFailure" if payload.is_spawn_call() => {
                (needs.agent_id, needs.matched, needs.pending) = (None, true, true);
            }
            "PreToolUse" => {
                needs.pending = evidence.meta.is_some() || payload.is_spawn_call();
                needs.active = is_main && payload.agent_type.is_none();
                needs.marks = is_main
                    || conventions.problem.is_some()
                    || conventions.has_marks_of_subagents();
            }
            "SubagentStop" => {
                (needs.pending, needs.active, needs.unread) = (true, is_main, true);
            }
            "Stop" | "SessionEnd" => {
                (needs.pending, needs.active) = (true, true);
                (needs.session, needs.unread) = (true, true);
            }
            "SessionStart" => {
                (needs.pending, needs.session, needs.marks) = (true, is_main, is_main);
            }
            "UserPromptSubmit" => {
                (needs.session, needs.unread, needs.marks) = (is_main, true, is_main);
            }
            "PostCompact" => needs.marks = is_main,
            "StopFailure" => (needs.pending, needs.session) = (true, is_main),
            "PostToolUse" if payload.is_spawn_call() => {
                (needs.pending, needs.unread) = (true, true);
            }
            _ => {}
        }
        needs
    }
}

impl Conventions {
    /// Whether the file has rules that are not given every time, or texts that are repeated.
    fn has_marks_of_subagents(&self) -> bool {
        let is_marked = |severity, threshold: Option<u64>| match severity {
            RuleSeverity::Info | RuleSeverity::Once => true,
            RuleSeverity::Warn => threshold.is_some(),
            RuleSeverity::Ask | RuleSeverity::Block => false,
        };
        let mut texts = self.roles.values().chain(self.agent_types.values()).chain(&self.default);
        self.rules.iter().any(|rule| is_marked(rule.severity, rule.token_threshold))
            || texts.any(|convention| convention.token_threshold.is_some())
    }
}

impl SubagentRecord {
    pub fn new(agent_id: &str, session_id: &str, now: Timestamp) -> Self {
        Self {
            agent_id: agent_id.to_owned(),
            session_id: session_id.to_owned(),
            agent_type: "unknown".to_owned(),
            role: None,
            role_source: None,
            confidence: RoleConfidence::None,
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
            usage_complete: false,
            transcript_path: None,
            resumed_at: None,
        }
    }

    pub fn is_active(&self) -> bool {
        self.state == SubagentState::Active
    }

    /// Ends it. The first reason is kept.
    pub fn end(&mut self, reason: &str, now: Timestamp) {
        if self.is_active() {
            self.state = SubagentState::Ended;
            self.ended_at = Some(now);
            self.end_reason = Some(reason.to_owned());
        }
    }

    /// A start, or a call after an end.
    pub(super) fn resume(&mut self, now: Timestamp) {
        self.state = SubagentState::Active;
        (self.ended_at, self.end_reason) = (None, None);
        (self.usage_complete, self.resumed_at) = (false, Some(now));
    }

    /// Undoes a match with the wrong call, and everything that followed from it.
    pub fn unbind(&mut self) {
        (self.tool_use_id, self.task_match_index) = (None, None);
        if self.role_source == Some(RoleSource::TaskMatch) {
            (self.role, self.role_source) = (None, None);
        }
        (self.confidence, self.checked) = (RoleConfidence::None, false);
    }

    /// Whether its role cannot become more certain.
    pub fn is_certain(&self) -> bool {
        self.confidence == RoleConfidence::Exact || self.role_source == Some(RoleSource::Manual)
    }
}

impl SpawnCall {
    /// The spawn call that is about to be made.
    pub fn from_call(payload: &HookInput, tool_use_id: &str, now: Timestamp) -> Self {
        let prompt = payload.input("prompt").unwrap_or_default();
        Self {
            id: None,
            session_id: payload.session_id.clone(),
            tool_use_id: tool_use_id.to_owned(),
            transcript_index: None,
            subagent_type: payload.input("subagent_type").unwrap_or(USUAL_TYPE).to_owned(),
            role: super::role_source::parse_role_tag(prompt).map(str::to_owned),
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

/// The agent type if a call names none.
const USUAL_TYPE: &str = "general-purpose";

/// The first 16 digits of the prompt's SHA-256.
pub(super) fn hash(prompt: &str) -> String {
    use sha2::{Digest as _, Sha256};
    hex::encode(&Sha256::digest(prompt.as_bytes())[..8])
}
