//! Rows, disk and clock for tests of decisions.

use serde_json::{Value, json};

use super::*;
use crate::time::Timestamp;

/// The rows, as a store would keep them.
#[derive(Default)]
pub(super) struct HookTestWorld {
    pub(super) agents: Vec<SubagentRecord>,
    pub(super) spawns: Vec<SpawnCall>,
    pub(super) marks: Vec<SessionMark>,
    pub(super) touches: Vec<FileTouch>,
    pub(super) sessions: Vec<HookSession>,
    pub(super) log: Vec<HookLogEntry>,
    pub(super) conventions: Conventions,
    /// The evidence that a lookup returns.
    pub(super) disk: HookEvidence,
    /// The session's transcript.
    pub(super) transcript: String,
    /// What transcripts say that their agents spent; None: all that there is to say.
    pub(super) usage: Option<TranscriptUsage>,
    pub(super) asked: Vec<EvidenceRequest>,
    pub(super) now: i64,
}

const CONVENTIONS: &str = r#"{
    "main": { "text": "main text" },
    "default": { "text": "default text" },
    "roles": { "tester": { "text": "tester text" }, "coder": { "text": "coder text" } },
    "agent_types": { "Explore": { "enabled": false } }
}"#;

pub(super) fn world() -> HookTestWorld {
    with(CONVENTIONS)
}

pub(super) fn with(conventions: &str) -> HookTestWorld {
    HookTestWorld {
        conventions: serde_json::from_str(conventions).unwrap(),
        ..HookTestWorld::default()
    }
}

impl HookTestWorld {
    pub(super) fn load(&self, needs: &HookRowsNeeded) -> HookRows {
        let in_session = |session: &String| *session == needs.session_id;
        let active = |agent: &&SubagentRecord| {
            needs.active && agent.is_active() && in_session(&agent.session_id)
        };
        let unread = |agent: &&SubagentRecord| {
            needs.unread
                && !agent.is_active()
                && !agent.usage_complete
                && in_session(&agent.session_id)
        };
        let pending = |spawn: &&SpawnCall| {
            needs.pending
                && in_session(&spawn.session_id)
                && spawn.matched_agent_id.is_none()
                && spawn.ended_at.is_none()
        };
        let named =
            |s: &&SpawnCall| in_session(&s.session_id) && needs.spawns.contains(&s.tool_use_id);
        let spawns: Vec<_> = self.spawns.iter().filter(named).cloned().collect();
        let matched = spawns.iter().find_map(|s| s.matched_agent_id.clone());
        let id = needs.agent_id.clone().or(matched.filter(|_| needs.matched));
        HookRows {
            agent: self.agents.iter().find(|a| Some(&a.agent_id) == id.as_ref()).cloned(),
            spawns,
            pending: self.spawns.iter().filter(pending).cloned().collect(),
            active: self.agents.iter().filter(active).cloned().collect(),
            unread: self.agents.iter().filter(unread).cloned().collect(),
            session: self
                .sessions
                .iter()
                .find(|session| needs.session && in_session(&session.session_id))
                .cloned(),
            marks: self.marks.iter().filter(|m| in_session(&m.key.session_id)).cloned().collect(),
        }
    }

    pub(super) fn apply(&mut self, change: HookRowChange) {
        fn put<T>(rows: &mut Vec<T>, row: T, same: impl Fn(&T, &T) -> bool) {
            match rows.iter_mut().find(|old| same(old, &row)) {
                Some(old) => *old = row,
                None => rows.push(row),
            }
        }
        match change {
            HookRowChange::Subagent(agent) => {
                put(&mut self.agents, agent, |a, b| a.agent_id == b.agent_id);
            }
            HookRowChange::Spawn(mut spawn) => {
                spawn.id.get_or_insert(i64::try_from(self.spawns.len()).unwrap() + 1);
                put(&mut self.spawns, spawn, |a, b| {
                    (&a.session_id, &a.tool_use_id) == (&b.session_id, &b.tool_use_id)
                });
            }
            HookRowChange::Mark(mark) => put(&mut self.marks, mark, |a, b| a.key == b.key),
            HookRowChange::Session(session) => {
                put(&mut self.sessions, session, |a, b| a.session_id == b.session_id);
            }
            HookRowChange::ExpireMainMarks { session_id, status, at } => {
                let is_meant = |mark: &SessionMark| {
                    mark.key.session_id == session_id
                        && !mark.key.hook_name.starts_with(SUBAGENTS_MARK)
                };
                for mark in self.marks.iter_mut().filter(|mark| is_meant(mark)) {
                    status.clone_into(&mut mark.status);
                    mark.expired_at = Some(at);
                }
            }
            HookRowChange::Delivered { agent_id, key, at } => {
                for agent in self.agents.iter_mut().filter(|a| a.agent_id == agent_id) {
                    agent.startup_processed = true;
                    agent.startup_processed_at = Some(at);
                    agent.delivered = Some(key.clone());
                    agent.claim = None;
                }
            }
            HookRowChange::Unmatch { session_id, tool_use_id } => {
                for spawn in self
                    .spawns
                    .iter_mut()
                    .filter(|s| s.session_id == session_id && s.tool_use_id == tool_use_id)
                {
                    spawn.matched_agent_id = None;
                }
            }
            HookRowChange::Touch(touch) => self.touches.push(touch),
            HookRowChange::Unbind { agent_id } => {
                for agent in self.agents.iter_mut().filter(|a| a.agent_id == agent_id) {
                    agent.unbind();
                }
            }
        }
    }

    /// A hook that answers and is killed before it confirms.
    pub(super) fn killed(&mut self, payload: Value) -> HookOutput {
        self.decide(payload).answer
    }

    pub(super) fn hook(&mut self, payload: Value) -> HookOutput {
        let decision = self.decide(payload);
        for change in decision.confirm {
            self.apply(change);
        }
        decision.answer
    }

    pub(super) fn decide(&mut self, mut payload: Value) -> HookDecision {
        self.now += 1;
        payload["session_id"] = payload.get("session_id").cloned().unwrap_or(json!("s"));
        let payload = HookInput::parse(payload.to_string().as_bytes()).unwrap();
        let me = format!("process {}", self.now);
        let mut evidence = HookEvidence {
            me,
            project: Some("/p".to_owned()),
            paths: self.disk.paths.clone(),
            store_problem: self.disk.store_problem.clone(),
            ..HookEvidence::default()
        };
        loop {
            let needs = HookRowsNeeded::of(&payload, &evidence, &self.conventions);
            let now = Timestamp::from_millis(self.now);
            match decide(&payload, &self.load(&needs), &evidence, &self.conventions, now) {
                HookOutcome::Wants(want) => {
                    if let EvidenceRequest::Start { waiting: Some(call) } = &want {
                        self.apply(HookRowChange::Spawn((**call).clone()));
                    }
                    self.look_up(&mut evidence, &want);
                    assert!(!self.asked.contains(&want) || self.asked.len() < 999, "asks for ever");
                    self.asked.push(want);
                }
                HookOutcome::Done(decision) => {
                    for change in decision.changes.clone() {
                        self.apply(change);
                    }
                    self.log.push(decision.log.clone());
                    return *decision;
                }
            }
        }
    }

    pub(super) fn look_up(&self, evidence: &mut HookEvidence, want: &EvidenceRequest) {
        let disk = &self.disk;
        match want {
            EvidenceRequest::Meta { .. } => evidence.meta = Some(disk.meta.clone().flatten()),
            EvidenceRequest::PromptRole { .. } => {
                evidence.prompt_role = Some(disk.prompt_role.clone().unwrap_or(PromptRole::Unread));
            }
            EvidenceRequest::Spawns => {
                evidence.spawns = Some(disk.spawns.clone().unwrap_or_default())
            }
            EvidenceRequest::NamesAgents => {
                evidence.names_agents = Some(disk.names_agents.flatten())
            }
            EvidenceRequest::Tokens { .. } => evidence.tokens = Some(disk.tokens.flatten()),
            EvidenceRequest::Heard { text } => {
                evidence.is_heard = Some(self.transcript.contains(text.as_str()));
            }
            EvidenceRequest::Usage(requests) => {
                for request in requests {
                    let who = request.agent_id.clone();
                    let told = format!("what {} spent", who.as_deref().unwrap_or("the session"));
                    let found = self.usage.clone().unwrap_or(TranscriptUsage {
                        usage: Some(told),
                        is_complete: true,
                        path: None,
                    });
                    evidence.usage.push((who, found));
                }
            }
            EvidenceRequest::Start { .. } => evidence.note_start_wait(3),
            EvidenceRequest::Claimant { by } => {
                let lives = disk.claimants.iter().any(|(who, lives)| who == by && *lives);
                evidence.claimants.push((by.clone(), lives));
            }
        }
    }

    pub(super) fn spawn(&mut self, id: &str, kind: &str, prompt: &str) -> HookOutput {
        self.hook(json!({
            "hook_event_name": "PreToolUse", "tool_name": "Agent", "tool_use_id": id,
            "tool_input": { "subagent_type": kind, "prompt": prompt },
        }))
    }

    pub(super) fn start(&mut self, agent: &str, kind: &str) -> Option<String> {
        let event = "SubagentStart";
        let told = json!({ "hook_event_name": event, "agent_id": agent, "agent_type": kind });
        self.hook(told).context
    }

    pub(super) fn tool(&mut self, agent: &str, kind: &str) -> Option<String> {
        self.hook(tool(agent, kind)).context
    }

    /// Acts as if Claude Code had written the call of the next agent to disk.
    pub(super) fn meta(&mut self, tool_use_id: &str) {
        let tool_use_id = Some(tool_use_id.to_owned());
        self.disk.meta = Some(Some(SubagentMeta { tool_use_id, ..SubagentMeta::default() }));
    }

    pub(super) fn agent(&self, id: &str) -> &SubagentRecord {
        self.agents.iter().find(|agent| agent.agent_id == id).unwrap()
    }
}

pub(super) fn tool(agent: &str, kind: &str) -> Value {
    json!({
        "hook_event_name": "PreToolUse", "agent_id": agent, "agent_type": kind,
        "tool_name": "Bash", "tool_use_id": "toolu_x", "tool_input": { "command": "ls" },
    })
}

pub(super) fn main_tool(name: &str, input: Value) -> Value {
    json!({ "hook_event_name": "PreToolUse", "tool_name": name, "tool_input": input })
}
