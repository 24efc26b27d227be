//! Shows what hooks would tell an agent, using a real hook's decisions. Rows are kept in memory,
//! and there is only one agent.

use std::path::Path;

use serde_json::{Value, json};
use shikiri_hook::path_resolver;
use shikiri_model::hook::{
    Conventions, EvidenceRequest, HookDecision, HookEvidence, HookInput, HookOutcome,
    HookRowChange, HookRows, HookRowsNeeded, PromptRole, SessionMark, SpawnCall, SubagentMeta,
    SubagentRecord, decide, parse_role_tag, paths_of_call,
};
use shikiri_model::time::Timestamp;

const SESSION: &str = "rehearsal";
const AGENT: &str = "a1";
const SPAWN: &str = "toolu_spawn";
/// Each piece of evidence is requested once.
const MOST_WANTS: usize = 16;

/// The tool call to simulate.
pub(super) struct Call {
    pub(super) tool: String,
    pub(super) path: Option<String>,
    pub(super) command: Option<String>,
    /// The other fields of its input, an object.
    pub(super) input: Value,
}

/// An event, and a hook's decision about it.
pub(super) struct Step {
    pub(super) when: When,
    /// The tool that is about to be used, if there is one.
    pub(super) tool: Option<String>,
    pub(super) decision: HookDecision,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// A subagent is about to be spawned.
    Spawn,
    Start,
    /// The agent is about to use a tool.
    Call,
    /// The same call again, because the first one was denied once.
    CallAgain,
}

pub(super) struct Rehearsal<'a> {
    conventions: &'a Conventions,
    root: String,
    prompt: String,
    agent: Option<SubagentRecord>,
    spawn: Option<SpawnCall>,
    marks: Vec<SessionMark>,
    /// The number of decisions so far.
    turns: i64,
}

impl<'a> Rehearsal<'a> {
    pub(super) fn new(conventions: &'a Conventions, root: &Path) -> Self {
        Self {
            conventions,
            root: root.to_string_lossy().into_owned(),
            prompt: String::new(),
            agent: None,
            spawn: None,
            marks: Vec::new(),
            turns: 0,
        }
    }

    /// The main agent is about to use a tool.
    pub(super) fn main_agent(mut self, call: &Call) -> Result<Vec<Step>, String> {
        self.call(call, None)
    }

    /// A subagent is spawned, starts and is about to use a tool.
    pub(super) fn subagent(
        mut self,
        agent_type: &str,
        prompt: &str,
        call: &Call,
    ) -> Result<(Vec<Step>, Option<SubagentRecord>), String> {
        prompt.clone_into(&mut self.prompt);
        let mut steps = vec![self.spawned(agent_type)?];
        let start = json!({ "hook_event_name": "SubagentStart", "agent_id": AGENT,
                            "agent_type": agent_type });
        let decision = self.decide(start)?;
        steps.push(Step { when: When::Start, tool: None, decision });
        steps.extend(self.call(call, Some(agent_type))?);
        Ok((steps, self.agent))
    }

    /// The call that spawns it. The main agent's own messages come before.
    fn spawned(&mut self, agent_type: &str) -> Result<Step, String> {
        let input = json!({ "description": "rehearsal", "prompt": self.prompt,
                            "subagent_type": agent_type });
        let payload = json!({ "hook_event_name": "PreToolUse", "tool_name": "Agent",
                              "tool_use_id": SPAWN, "tool_input": input });
        self.decide(payload.clone())?;
        let mut decision = self.decide(payload)?;
        // Warnings are for the main agent.
        decision.answer.context = None;
        Ok(Step { when: When::Spawn, tool: Some("Agent".to_owned()), decision })
    }

    /// A convention may deny the first call; a second one shows what applies then.
    fn call(&mut self, call: &Call, agent_type: Option<&str>) -> Result<Vec<Step>, String> {
        let mut input = call.input.clone();
        if let Some(path) = &call.path {
            input["file_path"] = json!(path);
        }
        if let Some(command) = &call.command {
            input["command"] = json!(command);
        }
        let mut payload = json!({ "hook_event_name": "PreToolUse", "tool_name": call.tool,
                                  "tool_use_id": "toolu_call", "tool_input": input });
        if let Some(agent_type) = agent_type {
            payload["agent_id"] = json!(AGENT);
            payload["agent_type"] = json!(agent_type);
        }
        let step = |when, decision| Step { when, tool: Some(call.tool.clone()), decision };
        let first = step(When::Call, self.decide(payload.clone())?);
        // A convention, or a rule for the first call.
        let is_once = !first.decision.confirm.is_empty();
        let again = first.decision.answer.deny.is_some() && is_once;
        let mut steps = vec![first];
        if again {
            steps.push(step(When::CallAgain, self.decide(payload)?));
        }
        Ok(steps)
    }

    fn decide(&mut self, mut payload: Value) -> Result<HookDecision, String> {
        payload["session_id"] = json!(SESSION);
        payload["cwd"] = json!(self.root);
        let payload = HookInput::parse(payload.to_string().as_bytes());
        let payload = payload.map_err(|error| error.to_string())?;
        self.turns += 1;
        let paths = paths_of_call(&payload, self.conventions, Some(&self.root));
        let mut evidence = HookEvidence {
            me: format!("rehearsal {}", self.turns),
            project: Some(self.root.clone()),
            paths: path_resolver::resolve(Path::new(&self.root), Some(&self.root), &paths),
            ..HookEvidence::default()
        };
        for _ in 0..MOST_WANTS {
            let known = self.load(&HookRowsNeeded::of(&payload, &evidence, self.conventions));
            let now = Timestamp::from_millis(self.turns);
            match decide(&payload, &known, &evidence, self.conventions, now) {
                HookOutcome::Wants(want) => self.find(&want, &mut evidence),
                HookOutcome::Done(decision) => {
                    let changes = decision.changes.iter().chain(&decision.confirm);
                    changes.for_each(|change| self.apply(change));
                    return Ok(*decision);
                }
            }
        }
        Err("the event cannot be decided".to_owned())
    }

    /// The evidence of a project in which no file is missing.
    fn find(&self, want: &EvidenceRequest, evidence: &mut HookEvidence) {
        match want {
            EvidenceRequest::Meta { .. } => {
                let tool_use_id = Some(SPAWN.to_owned());
                evidence.meta = Some(Some(SubagentMeta { tool_use_id, ..SubagentMeta::default() }));
            }
            EvidenceRequest::Spawns => evidence.spawns = Some(Vec::new()),
            EvidenceRequest::PromptRole { .. } => {
                let named = |role: &str| PromptRole::Named(role.to_owned());
                evidence.prompt_role =
                    Some(parse_role_tag(&self.prompt).map_or(PromptRole::NoTag, named));
            }
            EvidenceRequest::NamesAgents => evidence.names_agents = Some(Some(true)),
            EvidenceRequest::Tokens { .. } => evidence.tokens = Some(Some(0)),
            EvidenceRequest::Heard { .. } => evidence.is_heard = Some(false),
            EvidenceRequest::Usage(_) | EvidenceRequest::Start { .. } => {
                evidence.note_start_wait(1)
            }
            EvidenceRequest::Claimant { by } => evidence.claimants.push((by.clone(), false)),
        }
    }

    fn load(&self, needs: &HookRowsNeeded) -> HookRows {
        let spawn = |wanted: &dyn Fn(&SpawnCall) -> bool| {
            self.spawn.iter().filter(|spawn| wanted(spawn)).cloned().collect()
        };
        HookRows {
            agent: self
                .agent
                .clone()
                .filter(|agent| needs.agent_id.as_ref() == Some(&agent.agent_id)),
            spawns: spawn(&|spawn| needs.spawns.contains(&spawn.tool_use_id)),
            pending: spawn(&|spawn| needs.pending && spawn.matched_agent_id.is_none()),
            marks: self.marks.iter().filter(|_| needs.marks).cloned().collect(),
            ..HookRows::default()
        }
    }

    fn apply(&mut self, change: &HookRowChange) {
        match change {
            HookRowChange::Subagent(agent) => self.agent = Some(agent.clone()),
            HookRowChange::Spawn(spawn) => self.spawn = Some(spawn.clone()),
            HookRowChange::Mark(mark) => {
                self.marks.retain(|known| known.key != mark.key);
                self.marks.push(mark.clone());
            }
            HookRowChange::Delivered { key, at, .. } => {
                if let Some(agent) = &mut self.agent {
                    (agent.startup_processed, agent.startup_processed_at) = (true, Some(*at));
                    (agent.delivered, agent.claim) = (Some(key.clone()), None);
                }
            }
            // There is only one agent here, and the simulation has no end event.
            HookRowChange::ExpireMainMarks { .. }
            | HookRowChange::Touch(_)
            | HookRowChange::Session(_)
            | HookRowChange::Unmatch { .. }
            | HookRowChange::Unbind { .. } => {}
        }
    }
}
