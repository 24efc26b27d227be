//! Matches agents to the calls that spawned them: a guess at the agent's start, certain with its
//! first tool call.

use crate::time::Timestamp;

use super::convention_delivery::WORKFLOW_ROLES;
use super::decide::{EvaluationResult, HookEvaluation};
use super::hook_evidence::{EvidenceRequest, PromptRole};
use super::hook_rows::{HookRowChange, SpawnCall, SubagentRecord};
use super::role_source::{RoleConfidence, RoleSource};

impl HookEvaluation<'_> {
    /// Looks for the call that the agent may come from.
    pub(super) fn match_and_deliver(&mut self, agent: &mut SubagentRecord) -> EvaluationResult {
        let candidates = self.candidates(agent)?;
        match candidates.as_slice() {
            _ if self.may_be_another(agent) => return self.deliver_in_doubt(agent, &candidates),
            // The prompt will tell.
            [] if self.payload.is_of_workflow() && self.has_mark(WORKFLOW_ROLES) => return Ok(()),
            [] => {}
            [one] if one.is_of(agent) => self.bind(agent, one, RoleConfidence::Exact),
            [one] if self.may_be_of_another(one, agent) => {
                return self.deliver_in_doubt(agent, &candidates);
            }
            [one] => self.bind(agent, one, RoleConfidence::Unique),
            [first, rest @ ..] if rest.iter().all(|spawn| spawn.is_like(first)) => {
                agent.take_role(first.role.as_deref(), RoleSource::TaskMatch);
                agent.confidence = RoleConfidence::Unique;
                agent.has_heard(first, self.now);
            }
            _ => return self.deliver_in_doubt(agent, &candidates),
        }
        self.deliver_at_start(agent)
    }

    /// The role is known but not the call. If the prompt of every possible call has the text, the
    /// agent has it.
    pub(super) fn hear_prompt(&self, agent: &mut SubagentRecord) {
        if agent.tool_use_id.is_some() || agent.delivered.is_some() {
            return;
        }
        let calls: Vec<&SpawnCall> = self.pending_for(agent).collect();
        if let Some((first, rest)) = calls.split_first()
            && rest.iter().all(|spawn| spawn.delivered == first.delivered)
        {
            agent.has_heard(first, self.now);
        }
    }

    /// The first tool call brings a file that names the call. Until then the agent is told only what
    /// it is told in any case: a text that all calls have in common, and none has in its prompt. The
    /// calls of an agent without a name show nothing, so it is told what is for everybody.
    fn deliver_in_doubt(
        &mut self,
        agent: &mut SubagentRecord,
        candidates: &[SpawnCall],
    ) -> EvaluationResult {
        self.detail("candidates", candidates.len());
        let own = self.conventions.for_subagent(None, &agent.agent_type).map(|text| text.key);
        let is_own = |spawn: &SpawnCall| {
            spawn.delivered.is_none() && self.text_of_call(spawn).map(|text| text.key) == own
        };
        let all_told = candidates.iter().all(|spawn| spawn.delivered.is_some());
        let is_due = match agent.is_unnamed() {
            true => !all_told || candidates.is_empty(),
            false => candidates.iter().all(is_own),
        };
        if agent.delivered.is_some() || !is_due {
            return Ok(());
        }
        self.deliver_at_start(agent)
    }

    /// Whether the call may be that of another agent, which started in doubt: the call of one of them
    /// was seen by no hook.
    fn may_be_of_another(&self, spawn: &SpawnCall, agent: &SubagentRecord) -> bool {
        let is_in_doubt = |other: &SubagentRecord| {
            other.agent_id != agent.agent_id
                && !other.is_matched()
                && !other.is_certain()
                && spawn.could_be(other)
                && spawn.created_at <= other.created_at
        };
        self.known.active.iter().any(is_in_doubt)
    }

    /// Whether an unnamed agent may be one that its call has named already.
    fn may_be_another(&self, agent: &SubagentRecord) -> bool {
        let alike = |a: &SubagentRecord| a.is_bound_exactly() && a.agent_type == agent.agent_type;
        agent.is_unnamed() && self.known.active.iter().any(alike)
    }

    /// Calls that the agent may come from. Calls that no hook saw are in the transcript.
    fn candidates(&self, agent: &SubagentRecord) -> Result<Vec<SpawnCall>, EvidenceRequest> {
        let mut found: Vec<SpawnCall> = self.pending_for(agent).cloned().collect();
        // A single call would be guessed to be the agent's, so another must not be overlooked.
        if found.len() < 2 {
            let read = self.read_spawns().ok_or(EvidenceRequest::Spawns)?;
            let unseen: Vec<_> =
                read.into_iter().filter(|spawn| self.may_be_of(spawn, agent)).collect();
            // Their hooks may be about to record them.
            let may_wait = !self.evidence.start_wait_is_over && !self.evidence.is_late;
            if found.len() == 1 && !found[0].is_of(agent) && !unseen.is_empty() && may_wait {
                return Err(EvidenceRequest::Start { waiting: None });
            }
            found.extend(unseen);
        }
        if let Some(own) = found.iter().position(|spawn| spawn.is_of(agent)) {
            found = vec![found.swap_remove(own)];
        }
        Ok(found)
    }

    fn pending_for(&self, agent: &SubagentRecord) -> impl Iterator<Item = &SpawnCall> {
        self.known.pending.iter().filter(|spawn| self.may_be_of(spawn, agent))
    }

    /// An agent that is older than a call does not come from it.
    fn may_be_of(&self, spawn: &SpawnCall, agent: &SubagentRecord) -> bool {
        let is_new = self.known.agent.is_none();
        spawn.could_be(agent) && (is_new || spawn.created_at <= agent.created_at)
    }

    /// Calls from the transcript that no hook saw; None if the transcript was not read.
    fn read_spawns(&self) -> Option<Vec<SpawnCall>> {
        let is_new = |spawn: &&SpawnCall| {
            !self.known.spawns.iter().any(|known| known.tool_use_id == spawn.tool_use_id)
        };
        // A line without a time is dated now.
        let dated = |spawn: &SpawnCall| {
            let or_now = |at| if at == Timestamp::default() { self.now } else { at };
            let (created_at, ended_at) = (or_now(spawn.created_at), spawn.ended_at.map(or_now));
            SpawnCall { created_at, ended_at, ..spawn.clone() }
        };
        let read = self.evidence.spawns.as_ref()?;
        Some(read.iter().filter(is_new).map(dated).collect())
    }

    /// Transcript lines are not read twice, so the calls are stored whatever the event is.
    pub(super) fn record_read_spawns(&mut self) {
        for spawn in self.read_spawns().unwrap_or_default() {
            self.change(HookRowChange::Spawn(spawn));
        }
    }

    /// Determines, once, which call spawned the agent and with it the role: with its first tool call, or
    /// at its end. The order of sources: a role that a person set, the agent type, the `[ROLE:x]` or the
    /// type of the spawning call, the type in the agent's file, the `[ROLE:x]` in its own transcript.
    pub(super) fn resolve_role(&mut self, agent: &mut SubagentRecord) -> EvaluationResult {
        self.resolve_role_by_type(agent);
        if agent.is_certain() || agent.checked {
            agent.checked = true;
            return Ok(());
        }
        let Some(meta) = &self.evidence.meta else {
            return Err(EvidenceRequest::Meta { agent_id: agent.agent_id.clone() });
        };
        let known = self.known;
        if let Some(meta) = meta {
            agent.parent_agent_id = meta.parent_agent_id.clone().or(agent.parent_agent_id.take());
            let by_id = |id: &String| known.spawns.iter().find(|spawn| spawn.tool_use_id == *id);
            // A teammate's file names no call, but its name is unique in the team.
            let named = known.pending.iter().find(|s| s.name.as_deref() == Some(&agent.agent_type));
            let spawn = meta.tool_use_id.as_ref().map_or(named, by_id);
            if let Some(spawn) = spawn {
                self.bind(agent, spawn, RoleConfidence::Exact);
                agent.checked = true;
                return Ok(());
            }
            if let Some(role) =
                meta.spawned_type.as_deref().and_then(|t| self.conventions.role_named(t))
            {
                agent.take_role(Some(role), RoleSource::AgentType);
                (agent.confidence, agent.checked) = (RoleConfidence::Exact, true);
                return Ok(());
            }
            // The guess was wrong if the file names another call.
            if let Some(id) = &meta.tool_use_id {
                self.unmatch(agent, id);
                agent.unbind();
                agent.tool_use_id = Some(id.clone());
            }
        }
        match &self.evidence.prompt_role {
            None => {
                return Err(EvidenceRequest::PromptRole { agent_id: Some(agent.agent_id.clone()) });
            }
            Some(PromptRole::Named(role)) => {
                agent.take_role(Some(role), RoleSource::TranscriptParse);
                (agent.confidence, agent.checked) = (RoleConfidence::Exact, true);
            }
            Some(PromptRole::NoTag) => agent.checked = meta.is_some(),
            // The next tool call tries again.
            Some(PromptRole::Unread) => self.resolve_role_by_read_call(agent)?,
        }
        Ok(())
    }

    /// The call in the agent's file was not seen by a hook, but the transcript may show it.
    fn resolve_role_by_read_call(&mut self, agent: &mut SubagentRecord) -> EvaluationResult {
        let Some(id) = &agent.tool_use_id else { return Ok(()) };
        let read = self.read_spawns().ok_or(EvidenceRequest::Spawns)?;
        if let Some(spawn) = read.iter().find(|spawn| spawn.tool_use_id == *id) {
            self.bind(agent, spawn, RoleConfidence::Exact);
            agent.checked = true;
        }
        Ok(())
    }

    /// An agent type that is a configured role takes precedence over any prompt.
    pub(super) fn resolve_role_by_type(&self, agent: &mut SubagentRecord) {
        if agent.role_source != Some(RoleSource::Manual)
            && let Some(role) = self.conventions.role_named(&agent.agent_type)
        {
            agent.take_role(Some(role), RoleSource::AgentType);
            agent.confidence = RoleConfidence::Exact;
        }
    }

    /// Binds the agent to the call. An earlier, different binding of either was wrong.
    pub(super) fn bind(
        &mut self,
        agent: &mut SubagentRecord,
        spawn: &SpawnCall,
        confidence: RoleConfidence,
    ) {
        self.unmatch(agent, &spawn.tool_use_id);
        if let Some(other) = &spawn.matched_agent_id
            && *other != agent.agent_id
        {
            self.change(HookRowChange::Unbind { agent_id: other.clone() });
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
        self.change(HookRowChange::Spawn(bound));
    }

    /// Frees the call that the agent was matched to before.
    fn unmatch(&mut self, agent: &mut SubagentRecord, tool_use_id: &str) {
        if let Some(other) = agent.tool_use_id.take_if(|id| id != tool_use_id) {
            let session_id = agent.session_id.clone();
            self.change(HookRowChange::Unmatch { session_id, tool_use_id: other });
        }
    }
}

impl SubagentRecord {
    /// Text that was written into the prompt was delivered with it.
    fn has_heard(&mut self, spawn: &SpawnCall, now: Timestamp) {
        if let Some(key) = &spawn.delivered {
            self.delivered = Some(key.clone());
            self.startup_processed = true;
            self.startup_processed_at.get_or_insert(now);
        }
    }

    /// Whether a call or role was found before.
    pub(super) fn is_matched(&self) -> bool {
        self.tool_use_id.is_some() || self.role.is_some()
    }

    /// Whether the spawning call is known by its id.
    pub(super) fn is_bound_exactly(&self) -> bool {
        self.tool_use_id.is_some() && self.confidence == RoleConfidence::Exact
    }
}

impl SpawnCall {
    /// A teammate starts under its name, other agents under the requested type.
    fn could_be(&self, agent: &SubagentRecord) -> bool {
        self.ended_at.is_none()
            && (self.matched_agent_id.is_none() || self.is_of(agent))
            && (self.name.as_deref() == Some(&agent.agent_type)
                || self.subagent_type == agent.agent_type)
    }

    /// Whether the agent is known to come from this call.
    pub(super) fn is_of(&self, agent: &SubagentRecord) -> bool {
        self.matched_agent_id.as_ref() == Some(&agent.agent_id)
    }

    /// Whether two calls are the same for an agent that comes from either.
    fn is_like(&self, other: &Self) -> bool {
        (&self.role, &self.delivered) == (&other.role, &other.delivered)
    }
}
