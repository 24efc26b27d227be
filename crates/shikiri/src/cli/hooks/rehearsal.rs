//! What an agent would be told, played with the very decisions that a hook makes. The rows are kept
//! in memory, and there is only one agent.

use std::path::Path;

use serde_json::{Value, json};
use shikiri_model::hook::{
    Change, Conventions, Decision, Evidence, Known, Mark, Meta, Needs, Outcome, Payload,
    PromptRole, Spawn, Subagent, Want, decide, role_in,
};
use shikiri_model::time::Timestamp;

const SESSION: &str = "rehearsal";
const AGENT: &str = "a1";
const SPAWN: &str = "toolu_spawn";
/// Each want is asked for once.
const MOST_WANTS: usize = 16;

/// A tool call that is to be played.
pub(super) struct Call {
    pub(super) tool: String,
    pub(super) path: Option<String>,
    pub(super) command: Option<String>,
}

/// An event, and what a hook would make of it.
pub(super) struct Step {
    pub(super) when: When,
    /// The tool that is about to be used, if one is.
    pub(super) tool: Option<String>,
    pub(super) decision: Decision,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// Somebody is about to spawn it.
    Spawn,
    Start,
    /// It is about to use a tool.
    Call,
    /// And once more, since a convention denied the first call.
    CallAgain,
}

pub(super) struct Rehearsal<'a> {
    conventions: &'a Conventions,
    root: String,
    prompt: String,
    agent: Option<Subagent>,
    spawn: Option<Spawn>,
    marks: Vec<Mark>,
    /// How often something was decided.
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
    ) -> Result<(Vec<Step>, Option<Subagent>), String> {
        prompt.clone_into(&mut self.prompt);
        let mut steps = vec![self.spawned(agent_type)?];
        let start = json!({ "hook_event_name": "SubagentStart", "agent_id": AGENT,
                            "agent_type": agent_type });
        let decision = self.decide(start)?;
        steps.push(Step { when: When::Start, tool: None, decision });
        steps.extend(self.call(call, Some(agent_type))?);
        Ok((steps, self.agent))
    }

    /// The call that spawns it. What the main agent is told for itself is told before.
    fn spawned(&mut self, agent_type: &str) -> Result<Step, String> {
        let input = json!({ "description": "rehearsal", "prompt": self.prompt,
                            "subagent_type": agent_type });
        let payload = json!({ "hook_event_name": "PreToolUse", "tool_name": "Agent",
                              "tool_use_id": SPAWN, "tool_input": input });
        self.decide(payload.clone())?;
        let mut decision = self.decide(payload)?;
        // Warnings are the main agent's.
        decision.answer.context = None;
        Ok(Step { when: When::Spawn, tool: Some("Agent".to_owned()), decision })
    }

    /// A convention may deny the first call; what then holds is seen with a second.
    fn call(&mut self, call: &Call, agent_type: Option<&str>) -> Result<Vec<Step>, String> {
        let mut input = json!({});
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
        let details = first.decision.log.details.as_ref();
        let by_convention = details.is_some_and(|details| details.get("convention").is_some());
        let again = first.decision.answer.deny.is_some() && by_convention;
        let mut steps = vec![first];
        if again {
            steps.push(step(When::CallAgain, self.decide(payload)?));
        }
        Ok(steps)
    }

    fn decide(&mut self, mut payload: Value) -> Result<Decision, String> {
        payload["session_id"] = json!(SESSION);
        payload["cwd"] = json!(self.root);
        let payload = Payload::parse(payload.to_string().as_bytes());
        let payload = payload.map_err(|error| error.to_string())?;
        self.turns += 1;
        let mut evidence = Evidence {
            me: format!("rehearsal {}", self.turns),
            project: Some(self.root.clone()),
            ..Evidence::default()
        };
        for _ in 0..MOST_WANTS {
            let known = self.load(&Needs::of(&payload, &evidence, self.conventions));
            let now = Timestamp::from_millis(self.turns);
            match decide(&payload, &known, &evidence, self.conventions, now) {
                Outcome::Wants(want) => self.find(&want, &mut evidence),
                Outcome::Done(decision) => {
                    let changes = decision.changes.iter().chain(&decision.confirm);
                    changes.for_each(|change| self.apply(change));
                    return Ok(*decision);
                }
            }
        }
        Err("the event cannot be decided".to_owned())
    }

    /// What the disk would tell in a project where nothing is missing.
    fn find(&self, want: &Want, evidence: &mut Evidence) {
        match want {
            Want::Meta { .. } => {
                let tool_use_id = Some(SPAWN.to_owned());
                evidence.meta = Some(Some(Meta { tool_use_id, ..Meta::default() }));
            }
            Want::Spawns => evidence.spawns = Some(Vec::new()),
            Want::PromptRole { .. } => {
                let named = |role: &str| PromptRole::Named(role.to_owned());
                evidence.prompt_role =
                    Some(role_in(&self.prompt).map_or(PromptRole::Unnamed, named));
            }
            Want::NamesAgents => evidence.names_agents = Some(Some(true)),
            Want::Tokens { .. } => evidence.tokens = Some(Some(0)),
            Want::Usage { agent_id } => evidence.usage.push((agent_id.clone(), None)),
            Want::Claimant { by } => evidence.claimants.push((by.clone(), false)),
        }
    }

    fn load(&self, needs: &Needs) -> Known {
        let spawn = |wanted: &dyn Fn(&Spawn) -> bool| {
            self.spawn.iter().filter(|spawn| wanted(spawn)).cloned().collect()
        };
        Known {
            agent: self
                .agent
                .clone()
                .filter(|agent| needs.agent_id.as_ref() == Some(&agent.agent_id)),
            spawns: spawn(&|spawn| needs.spawns.contains(&spawn.tool_use_id)),
            pending: spawn(&|spawn| needs.pending && spawn.matched_agent_id.is_none()),
            active: Vec::new(),
            marks: self.marks.iter().filter(|_| needs.marks).cloned().collect(),
        }
    }

    fn apply(&mut self, change: &Change) {
        match change {
            Change::Subagent(agent) => self.agent = Some(agent.clone()),
            Change::Spawn(spawn) => self.spawn = Some(spawn.clone()),
            Change::Mark(mark) => {
                self.marks.retain(|known| known.key != mark.key);
                self.marks.push(mark.clone());
            }
            Change::Delivered { key, at, .. } => {
                if let Some(agent) = &mut self.agent {
                    (agent.startup_processed, agent.startup_processed_at) = (true, Some(*at));
                    (agent.delivered, agent.claim) = (Some(key.clone()), None);
                }
            }
            // There is no other agent to be taken for, and no end.
            Change::ExpireMainMarks { .. } | Change::Unmatch { .. } | Change::Unbind { .. } => {}
        }
    }
}
