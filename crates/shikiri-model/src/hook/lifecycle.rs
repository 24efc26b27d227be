//! How subagents begin, are bound to the calls that spawned them, and end.

use crate::time::Timestamp;

use super::decide::{Step, Turn};
use super::evidence::Want;
use super::registry::{Change, Spawn, Subagent, SubagentState};
use super::role::{Confidence, RoleSource};

/// What the log calls events of subagents.
const SUBAGENT_EVENT: &str = "subagent_event";

impl Turn<'_> {
    /// `SubagentStart`: also again, when an agent is woken or resumed.
    pub(super) fn start(&mut self) -> Step {
        self.done.log.hook_name = SUBAGENT_EVENT.to_owned();
        let mut agent = self.caller();
        agent.state = SubagentState::Active;
        (agent.ended_at, agent.end_reason) = (None, None);
        self.resolve_by_type(&mut agent);
        let candidates = self.candidates(&agent)?;
        let mut in_doubt = false;
        if !agent.is_certain() {
            match candidates.as_slice() {
                _ if self.may_be_another(&agent) => in_doubt = true,
                [] => {}
                [one] => self.bind(&mut agent, one, Confidence::Unique),
                [first, rest @ ..] if rest.iter().all(|spawn| spawn.role == first.role) => {
                    agent.take_role(first.role.as_deref(), RoleSource::TaskMatch);
                    agent.confidence = Confidence::Unique;
                }
                _ => in_doubt = true,
            }
        }
        self.done.log.agent_id = Some(agent.agent_id.clone());
        if in_doubt {
            // With its first tool call there will be a file that names the call.
            self.detail("candidates", candidates.len());
        } else {
            self.deliver_at_start(&mut agent)?;
        }
        self.change(Change::Subagent(agent));
        Ok(())
    }

    /// Whether an agent that is not named may be one that its call has named already.
    fn may_be_another(&self, agent: &Subagent) -> bool {
        let alike = |a: &Subagent| a.is_in_background() && a.agent_type == agent.agent_type;
        agent.is_unnamed() && self.known.active.iter().any(alike)
    }

    /// Calls that the agent may come from. Those that no hook saw are in the transcript.
    fn candidates(&mut self, agent: &Subagent) -> Result<Vec<Spawn>, Want> {
        let fits = |spawn: &&Spawn| spawn.could_be(agent);
        let pending: Vec<Spawn> = self.known.pending.iter().filter(fits).cloned().collect();
        if agent.is_certain() || !pending.is_empty() {
            return Ok(pending);
        }
        let Some(read) = &self.evidence.spawns else { return Err(Want::Spawns) };
        let is_new = |spawn: &&Spawn| {
            !self.known.spawns.iter().any(|known| known.tool_use_id == spawn.tool_use_id)
        };
        let new: Vec<Spawn> = read.iter().filter(is_new).cloned().collect();
        for spawn in &new {
            self.change(Change::Spawn(spawn.clone()));
        }
        Ok(new.into_iter().filter(|spawn| spawn.could_be(agent)).collect())
    }

    /// `SubagentStop`, the usual end.
    pub(super) fn stop(&mut self) -> Step {
        self.done.log.hook_name = SUBAGENT_EVENT.to_owned();
        let found = match &self.payload.agent_id {
            Some(_) => self.known.agent.clone(),
            // One of those that were started without a name.
            None => {
                let kind = self.payload.agent_type.as_deref();
                let is_it = |a: &&Subagent| a.is_unnamed() && Some(a.agent_type.as_str()) == kind;
                self.known.active.iter().find(is_it).cloned()
            }
        };
        let Some(mut agent) = found else {
            // A compaction ends an agent that never was.
            self.done.log.result = "ignored";
            return Ok(());
        };
        if self.payload.agent_id.is_some() {
            self.identify(&mut agent)?;
        }
        self.end(agent, "stopped")
    }

    /// `StopFailure`: the model API failed.
    pub(super) fn fail(&mut self) -> Step {
        let Some(mut agent) = self.known.agent.clone() else { return Ok(()) };
        self.identify(&mut agent)?;
        self.end(agent, "failed")
    }

    /// `PostToolUse` of the spawning tool: it names the subagent. One in the background has only
    /// been launched.
    pub(super) fn returned(&mut self) -> Step {
        let (Some(tool_use_id), Some(agent_id)) =
            (&self.payload.tool_use_id, self.payload.response("agentId"))
        else {
            return Ok(());
        };
        let known = self.known.agent.clone();
        let fresh = || Subagent::new(agent_id, &self.payload.session_id, self.now);
        let mut agent = known.unwrap_or_else(fresh);
        if agent.agent_type == "unknown"
            && let Some(kind) =
                self.payload.response("agentType").or(self.payload.input("subagent_type"))
        {
            kind.clone_into(&mut agent.agent_type);
        }
        let mut spawn = self.spawn(tool_use_id);
        if spawn.matched_agent_id.as_deref() != Some(agent_id) || !agent.is_certain() {
            self.resolve_by_type(&mut agent);
            self.bind(&mut agent, &spawn, Confidence::Exact);
            spawn.matched_agent_id = Some(agent_id.to_owned());
        }
        self.done.log.agent_id = Some(agent_id.to_owned());
        let goes_on =
            matches!(self.payload.response("status"), Some("async_launched" | "teammate_spawned"));
        if goes_on {
            self.change(Change::Spawn(spawn));
            self.change(Change::Subagent(agent));
            return Ok(());
        }
        spawn.ended_at = Some(self.now);
        self.change(Change::Spawn(spawn));
        self.end(agent, "completed")
    }

    /// `PostToolUseFailure` of the spawning tool: no such type, interrupted, or the agent failed.
    pub(super) fn refused(&mut self) -> Step {
        let Some(tool_use_id) = &self.payload.tool_use_id else { return Ok(()) };
        let mut spawn = self.spawn(tool_use_id);
        spawn.ended_at = Some(self.now);
        let agent = self.known.agent.clone();
        let agent = agent.filter(|agent| spawn.matched_agent_id.as_ref() == Some(&agent.agent_id));
        self.change(Change::Spawn(spawn));
        match agent {
            Some(agent) if agent.is_active() => self.end(agent, "failed"),
            _ => Ok(()),
        }
    }

    /// `Stop`: whoever is not in the background any more has ended without a word.
    pub(super) fn idle(&mut self) -> Step {
        // A teammate or a tmux pane is listed under an id of its own.
        let Some(background) = &self.payload.background else { return Ok(()) };
        let teammates = background.iter().any(|task| task.kind != "subagent");
        let gone: Vec<_> = self
            .known
            .active
            .iter()
            .filter(|agent| !background.iter().any(|task| task.id == agent.agent_id))
            .filter(|agent| !teammates || agent.is_spawned_exactly())
            .cloned()
            .collect();
        self.end_all(gone, "gone")
    }

    pub(super) fn end_session(&mut self) -> Step {
        self.end_all(self.known.active.clone(), "session_end")
    }

    /// `SessionStart`.
    pub(super) fn begin_session(&mut self) -> Step {
        if let Some(source) = &self.payload.source {
            self.detail("source", source.as_str());
        }
        match self.payload.source.as_deref() {
            Some("compact") => self.forget_what_was_told(),
            _ => Ok(()),
        }
    }

    /// After a compaction nobody remembers it. `PostCompact` tells that too, and is the only event
    /// of the two that Claude Code posts to a server.
    pub(super) fn forget_what_was_told(&mut self) -> Step {
        self.done.log.hook_name = "compact_detected".to_owned();
        let session_id = self.payload.session_id.clone();
        self.change(Change::ExpireMarks { session_id, status: "compact_expired", at: self.now });
        Ok(())
    }

    fn end_all(&mut self, agents: Vec<Subagent>, reason: &str) -> Step {
        if !agents.is_empty() {
            self.detail("ended", agents.len());
        }
        agents.into_iter().try_for_each(|agent| self.end(agent, reason))
    }

    /// Ends one, with what it spent if that can be found.
    fn end(&mut self, mut agent: Subagent, reason: &str) -> Step {
        match self.evidence.usage_of(&agent.agent_id) {
            None => return Err(Want::Usage { agent_id: agent.agent_id }),
            Some(None) => {}
            Some(Some(usage)) => agent.usage = Some(usage.to_owned()),
        }
        agent.end(reason, self.now);
        self.change(Change::Subagent(agent));
        Ok(())
    }

    /// The subagent that the event comes from; a new one if it is not known.
    pub(super) fn caller(&self) -> Subagent {
        let unnamed = format!("{UNNAMED}{}", self.evidence.me);
        let id = self.payload.agent_id.as_deref().unwrap_or(&unnamed);
        let fresh = || Subagent::new(id, &self.payload.session_id, self.now);
        let mut agent = self.known.agent.clone().unwrap_or_else(fresh);
        self.payload.session_id.clone_into(&mut agent.session_id);
        if let Some(kind) = &self.payload.agent_type {
            kind.clone_into(&mut agent.agent_type);
        }
        agent
    }

    /// The call with this id, as it is known or as the event tells it.
    pub(super) fn spawn(&self, tool_use_id: &str) -> Spawn {
        let known = self.known.spawns.iter().find(|spawn| spawn.tool_use_id == tool_use_id);
        let told = || Spawn::from_call(self.payload, tool_use_id, self.now);
        known.cloned().unwrap_or_else(told)
    }

    /// An agent type that is a role says more than any prompt.
    pub(super) fn resolve_by_type(&self, agent: &mut Subagent) {
        if agent.role_source != Some(RoleSource::Manual)
            && let Some(role) = self.conventions.role_named(&agent.agent_type)
        {
            agent.take_role(Some(role), RoleSource::AgentType);
            agent.confidence = Confidence::Exact;
        }
    }

    /// The call spawned the agent. If one of them was bound to another, that was wrong.
    pub(super) fn bind(&mut self, agent: &mut Subagent, spawn: &Spawn, confidence: Confidence) {
        let session_id = agent.session_id.clone();
        if let Some(other) = agent.tool_use_id.take_if(|id| *id != spawn.tool_use_id) {
            self.change(Change::Unmatch { session_id, tool_use_id: other });
        }
        if let Some(other) = &spawn.matched_agent_id
            && *other != agent.agent_id
        {
            self.change(Change::Unbind { agent_id: other.clone() });
        }
        let mut bound = spawn.clone();
        bound.matched_agent_id = Some(agent.agent_id.clone());
        agent.tool_use_id = Some(spawn.tool_use_id.clone());
        agent.task_match_index = spawn.id;
        agent.parent_agent_id = spawn.parent_agent_id.clone().or(agent.parent_agent_id.take());
        // What was written into the prompt has arrived with it.
        if let Some(key) = &spawn.delivered {
            agent.delivered = Some(key.clone());
            agent.startup_processed = true;
            agent.startup_processed_at.get_or_insert(self.now);
        }
        let by_type = matches!(agent.role_source, Some(RoleSource::Manual | RoleSource::AgentType));
        if !by_type {
            let named = spawn.role.as_deref();
            match named.or(self.conventions.role_named(&spawn.subagent_type)) {
                Some(role) if named.is_none() => agent.take_role(Some(role), RoleSource::AgentType),
                role => agent.take_role(role, RoleSource::TaskMatch),
            }
            agent.confidence = confidence;
        }
        self.change(Change::Spawn(bound));
    }
}

/// Subagents of a Claude Code that does not name them are called this, and who noticed them.
const UNNAMED: &str = "unnamed-";

impl Subagent {
    pub(super) fn take_role(&mut self, role: Option<&str>, source: RoleSource) {
        self.role = role.map(str::to_owned);
        self.role_source = role.map(|_| source);
    }

    pub(super) fn is_unnamed(&self) -> bool {
        self.agent_id.starts_with(UNNAMED)
    }

    /// Its call has returned while it works: then the main agent may be calling, too.
    pub(super) fn is_in_background(&self) -> bool {
        self.tool_use_id.is_some() && self.confidence == Confidence::Exact
    }

    /// Known by the call that spawned it, so that it is listed by its own id.
    fn is_spawned_exactly(&self) -> bool {
        self.tool_use_id.is_some() && !self.agent_id.contains('-')
    }

    /// Whether its convention is not to be given now: it has it, or somebody is giving it.
    pub(super) fn claimed_until(&self, now: Timestamp) -> Option<&str> {
        self.claim.as_ref().filter(|claim| claim.until > now).map(|claim| claim.by.as_str())
    }
}

impl Spawn {
    /// A teammate is started under its name, everyone else under the type that was asked for.
    fn could_be(&self, agent: &Subagent) -> bool {
        self.ended_at.is_none()
            && (self.name.as_deref() == Some(&agent.agent_type)
                || self.subagent_type == agent.agent_type)
    }
}
