//! Which call spawned an agent: guessed at its start, known with its first tool call.

use crate::time::Timestamp;

use super::decide::{Step, Turn};
use super::evidence::{PromptRole, Want};
use super::registry::{Change, Spawn, Subagent};
use super::role::{Confidence, RoleSource};

impl Turn<'_> {
    /// Looks for the call that the agent may come from.
    pub(super) fn match_and_deliver(&mut self, agent: &mut Subagent) -> Step {
        let candidates = self.candidates(agent)?;
        match candidates.as_slice() {
            _ if self.may_be_another(agent) => return self.deliver_in_doubt(agent, &candidates),
            [] => {}
            [one] if one.is_of(agent) => self.bind(agent, one, Confidence::Exact),
            [one] => self.bind(agent, one, Confidence::Unique),
            [first, rest @ ..] if rest.iter().all(|spawn| spawn.is_like(first)) => {
                agent.take_role(first.role.as_deref(), RoleSource::TaskMatch);
                agent.confidence = Confidence::Unique;
                agent.has_heard(first, self.now);
            }
            _ => return self.deliver_in_doubt(agent, &candidates),
        }
        self.deliver_at_start(agent)
    }

    /// Its role is known, but not its call: if the text stands in the prompt of every call that it can
    /// be, it has it.
    pub(super) fn hear_prompt(&self, agent: &mut Subagent) {
        if agent.tool_use_id.is_some() || agent.delivered.is_some() {
            return;
        }
        let calls: Vec<&Spawn> = self.pending_for(agent).collect();
        if let Some((first, rest)) = calls.split_first()
            && rest.iter().all(|spawn| spawn.delivered == first.delivered)
        {
            agent.has_heard(first, self.now);
        }
    }

    /// With its first tool call there will be a file that names the call; but an agent may never use
    /// a tool. What is for everybody is not wrong, and better than nothing.
    fn deliver_in_doubt(&mut self, agent: &mut Subagent, candidates: &[Spawn]) -> Step {
        self.detail("candidates", candidates.len());
        let all_told = candidates.iter().all(|spawn| spawn.delivered.is_some());
        if agent.delivered.is_some() || (all_told && !candidates.is_empty()) {
            return Ok(());
        }
        self.deliver_at_start(agent)
    }

    /// Whether an agent that is not named may be one that its call has named already.
    fn may_be_another(&self, agent: &Subagent) -> bool {
        let alike = |a: &Subagent| a.is_in_background() && a.agent_type == agent.agent_type;
        agent.is_unnamed() && self.known.active.iter().any(alike)
    }

    /// Calls that the agent may come from. Those that no hook saw are in the transcript.
    fn candidates(&self, agent: &Subagent) -> Result<Vec<Spawn>, Want> {
        let mut found: Vec<Spawn> = self.pending_for(agent).cloned().collect();
        if found.is_empty() {
            let read = self.read_spawns().ok_or(Want::Spawns)?;
            found.extend(read.into_iter().filter(|spawn| self.may_be_of(spawn, agent)));
        }
        if let Some(own) = found.iter().position(|spawn| spawn.is_of(agent)) {
            found = vec![found.swap_remove(own)];
        }
        Ok(found)
    }

    fn pending_for(&self, agent: &Subagent) -> impl Iterator<Item = &Spawn> {
        self.known.pending.iter().filter(|spawn| self.may_be_of(spawn, agent))
    }

    /// An agent that was there before a call was made is not that call's.
    fn may_be_of(&self, spawn: &Spawn, agent: &Subagent) -> bool {
        let is_new = self.known.agent.is_none();
        spawn.could_be(agent) && (is_new || spawn.created_at <= agent.created_at)
    }

    /// Calls that were read from the transcript and that no hook saw; none if nobody has read it.
    fn read_spawns(&self) -> Option<Vec<Spawn>> {
        let is_new = |spawn: &&Spawn| {
            !self.known.spawns.iter().any(|known| known.tool_use_id == spawn.tool_use_id)
        };
        // Where the line does not tell when it was, it is known since now.
        let dated = |spawn: &Spawn| {
            let or_now = |at| if at == Timestamp::default() { self.now } else { at };
            let (created_at, ended_at) = (or_now(spawn.created_at), spawn.ended_at.map(or_now));
            Spawn { created_at, ended_at, ..spawn.clone() }
        };
        let read = self.evidence.spawns.as_ref()?;
        Some(read.iter().filter(is_new).map(dated).collect())
    }

    /// What was read is not read again, so it is kept whatever the event leads to.
    pub(super) fn record_read_spawns(&mut self) {
        for spawn in self.read_spawns().unwrap_or_default() {
            self.change(Change::Spawn(spawn));
        }
    }

    /// Finds out, once, which call spawned the agent: with its first tool call, or at its end.
    pub(super) fn identify(&mut self, agent: &mut Subagent) -> Step {
        self.resolve_by_type(agent);
        if agent.is_certain() || agent.checked {
            agent.checked = true;
            return Ok(());
        }
        let Some(meta) = &self.evidence.meta else {
            return Err(Want::Meta { agent_id: agent.agent_id.clone() });
        };
        let known = self.known;
        if let Some(meta) = meta {
            agent.parent_agent_id = meta.parent_agent_id.clone().or(agent.parent_agent_id.take());
            let by_id = |id: &String| known.spawns.iter().find(|spawn| spawn.tool_use_id == *id);
            // A teammate's file names no call, but the name is its own in the team.
            let named = known.pending.iter().find(|s| s.name.as_deref() == Some(&agent.agent_type));
            let spawn = meta.tool_use_id.as_ref().map_or(named, by_id);
            if let Some(spawn) = spawn {
                self.bind(agent, spawn, Confidence::Exact);
                agent.checked = true;
                return Ok(());
            }
            if let Some(role) =
                meta.spawned_type.as_deref().and_then(|t| self.conventions.role_named(t))
            {
                agent.take_role(Some(role), RoleSource::AgentType);
                (agent.confidence, agent.checked) = (Confidence::Exact, true);
                return Ok(());
            }
            // What it was taken for is not the call that it comes from.
            if let Some(id) = &meta.tool_use_id {
                self.unmatch(agent, id);
                agent.unbind();
                agent.tool_use_id = Some(id.clone());
            }
        }
        match &self.evidence.prompt_role {
            None => return Err(Want::PromptRole { agent_id: Some(agent.agent_id.clone()) }),
            Some(PromptRole::Named(role)) => {
                agent.take_role(Some(role), RoleSource::TranscriptParse);
                (agent.confidence, agent.checked) = (Confidence::Exact, true);
            }
            Some(PromptRole::Unnamed) => agent.checked = meta.is_some(),
            // Then the next call looks again.
            Some(PromptRole::Unread) => self.identify_by_read_call(agent)?,
        }
        Ok(())
    }

    /// No hook saw the call that its file names, but the transcript may show it.
    fn identify_by_read_call(&mut self, agent: &mut Subagent) -> Step {
        let Some(id) = &agent.tool_use_id else { return Ok(()) };
        let read = self.read_spawns().ok_or(Want::Spawns)?;
        if let Some(spawn) = read.iter().find(|spawn| spawn.tool_use_id == *id) {
            self.bind(agent, spawn, Confidence::Exact);
            agent.checked = true;
        }
        Ok(())
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
        self.unmatch(agent, &spawn.tool_use_id);
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
        agent.has_heard(spawn, self.now);
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

    /// If the agent was taken for another call's than this, that call is free again.
    fn unmatch(&mut self, agent: &mut Subagent, tool_use_id: &str) {
        if let Some(other) = agent.tool_use_id.take_if(|id| id != tool_use_id) {
            let session_id = agent.session_id.clone();
            self.change(Change::Unmatch { session_id, tool_use_id: other });
        }
    }
}

impl Subagent {
    /// What was written into its prompt has arrived with it.
    fn has_heard(&mut self, spawn: &Spawn, now: Timestamp) {
        if let Some(key) = &spawn.delivered {
            self.delivered = Some(key.clone());
            self.startup_processed = true;
            self.startup_processed_at.get_or_insert(now);
        }
    }

    /// Something was found out before about where it comes from.
    pub(super) fn is_matched(&self) -> bool {
        self.tool_use_id.is_some() || self.role.is_some()
    }

    /// The call that spawned it is known by its id.
    pub(super) fn is_bound_exactly(&self) -> bool {
        self.tool_use_id.is_some() && self.confidence == Confidence::Exact
    }
}

impl Spawn {
    /// A teammate is started under its name, everyone else under the type that was asked for.
    fn could_be(&self, agent: &Subagent) -> bool {
        self.ended_at.is_none()
            && (self.matched_agent_id.is_none() || self.is_of(agent))
            && (self.name.as_deref() == Some(&agent.agent_type)
                || self.subagent_type == agent.agent_type)
    }

    /// The agent is known to come from it.
    pub(super) fn is_of(&self, agent: &Subagent) -> bool {
        self.matched_agent_id.as_ref() == Some(&agent.agent_id)
    }

    /// Whichever of the two an agent comes from, it is the same to it.
    fn is_like(&self, other: &Self) -> bool {
        (&self.role, &self.delivered) == (&other.role, &other.delivered)
    }
}
