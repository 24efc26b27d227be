//! The start and the end of subagents.

use crate::time::Timestamp;

use super::decide::{EvaluationResult, HookEvaluation};
use super::hook_rows::{HookRowChange, SpawnCall, SubagentRecord};
use super::role_source::{RoleConfidence, RoleSource};

/// The log's name for events of subagents.
const SUBAGENT_EVENT: &str = "subagent_event";

impl HookEvaluation<'_> {
    /// `SubagentStart`, also sent when an agent is woken or resumed.
    pub(super) fn start(&mut self) -> EvaluationResult {
        self.done.log.hook_name = SUBAGENT_EVENT.to_owned();
        let mut agent = self.caller();
        agent.resume(self.now);
        self.resolve_role_by_type(&mut agent);
        self.done.log.agent_id = Some(agent.agent_id.clone());
        // A repeated start has no new information: pending calls belong to other agents.
        if agent.is_certain() || agent.is_matched() {
            self.hear_prompt(&mut agent);
            self.deliver_at_start(&mut agent)?;
        } else {
            self.match_and_deliver(&mut agent)?;
        }
        self.change(HookRowChange::Subagent(agent));
        Ok(())
    }

    /// `SubagentStop`, the usual end.
    pub(super) fn stop(&mut self) -> EvaluationResult {
        self.done.log.hook_name = SUBAGENT_EVENT.to_owned();
        let found = match &self.payload.agent_id {
            Some(_) => self.known.agent.clone(),
            // One of the agents without a name.
            None => {
                let kind = self.payload.agent_type.as_deref();
                let is_it =
                    |a: &&SubagentRecord| a.is_unnamed() && Some(a.agent_type.as_str()) == kind;
                self.known.active.iter().find(is_it).cloned()
            }
        };
        let Some(mut agent) = found else {
            // A compaction sends the end of an agent that never started.
            self.done.log.result = "ignored";
            return Ok(());
        };
        if self.payload.agent_id.is_some() {
            self.resolve_role_at_end(&mut agent)?;
        }
        if let Some(ended_at) = agent.ended_at {
            // It went on after its end, because another hook had something to say.
            (agent.usage_complete, agent.resumed_at) = (false, Some(ended_at));
        }
        self.end(agent, "stopped")?;
        self.read_missing_usage()
    }

    /// `StopFailure`: the model API failed.
    pub(super) fn fail(&mut self) -> EvaluationResult {
        if self.payload.agent_id.is_none() {
            return self.read_session_usage();
        }
        let Some(mut agent) = self.known.agent.clone() else { return Ok(()) };
        self.resolve_role_at_end(&mut agent)?;
        self.end(agent, "failed")
    }

    /// Recording the end matters more than identifying the call.
    fn resolve_role_at_end(&mut self, agent: &mut SubagentRecord) -> EvaluationResult {
        if self.evidence.is_late { Ok(()) } else { self.resolve_role(agent) }
    }

    /// `PostToolUse` of the spawning tool names the subagent. A background subagent has only been
    /// launched.
    pub(super) fn on_spawn_returned(&mut self) -> EvaluationResult {
        let (Some(tool_use_id), Some(agent_id)) =
            (&self.payload.tool_use_id, self.payload.response("agentId"))
        else {
            return Ok(());
        };
        let known = self.known.agent.clone();
        let fresh = || SubagentRecord::new(agent_id, &self.payload.session_id, self.now);
        let mut agent = known.unwrap_or_else(fresh);
        if agent.agent_type == "unknown"
            && let Some(kind) =
                self.payload.response("agentType").or(self.payload.input("subagent_type"))
        {
            kind.clone_into(&mut agent.agent_type);
        }
        let mut spawn = self.spawn(tool_use_id);
        // An agent that is resumed by another call stays bound to the call that spawned it.
        if agent.is_bound_exactly() {
            spawn.matched_agent_id = Some(agent_id.to_owned());
        } else if !spawn.is_of(&agent) || !agent.is_certain() {
            self.resolve_role_by_type(&mut agent);
            self.bind(&mut agent, &spawn, RoleConfidence::Exact);
            spawn.matched_agent_id = Some(agent_id.to_owned());
        }
        self.done.log.agent_id = Some(agent_id.to_owned());
        let goes_on =
            matches!(self.payload.response("status"), Some("async_launched" | "teammate_spawned"));
        if goes_on {
            self.change(HookRowChange::Spawn(spawn));
            self.change(HookRowChange::Subagent(agent));
        } else {
            spawn.ended_at = Some(self.now);
            self.change(HookRowChange::Spawn(spawn));
            self.end(agent, "completed")?;
        }
        self.read_missing_usage()
    }

    /// `PostToolUseFailure` of the spawning tool: unknown type, interrupted, or the agent failed.
    pub(super) fn on_spawn_failed(&mut self) -> EvaluationResult {
        let Some(tool_use_id) = &self.payload.tool_use_id else { return Ok(()) };
        let mut spawn = self.spawn(tool_use_id);
        spawn.ended_at = Some(self.now);
        let agent = self.known.agent.clone().filter(|agent| spawn.is_of(agent));
        self.change(HookRowChange::Spawn(spawn));
        match agent {
            Some(agent) if agent.is_active() => self.end(agent, "failed"),
            _ => Ok(()),
        }
    }

    /// `Stop`: subagents that are not listed as background tasks have ended without an event, and
    /// spawn calls that did not start an agent were refused.
    pub(super) fn on_stop(&mut self) -> EvaluationResult {
        // Teammates and tmux panes are listed under their own ids.
        let background = self.payload.background.as_deref();
        let teammates = background.unwrap_or_default().iter().any(|task| task.kind != "subagent");
        self.end_calls(|spawn| {
            spawn.parent_agent_id.is_none() && !(teammates && spawn.name.is_some())
        });
        if let Some(background) = background {
            let gone: Vec<_> = self
                .known
                .active
                .iter()
                .filter(|agent| !background.iter().any(|task| task.id == agent.agent_id))
                .filter(|agent| !teammates || agent.is_spawned_exactly())
                .cloned()
                .collect();
            self.end_all(gone, "gone")?;
        }
        self.read_missing_usage()?;
        self.read_session_usage()
    }

    pub(super) fn end_session(&mut self) -> EvaluationResult {
        self.end_calls(|_| true);
        self.end_all(self.known.active.clone(), "session_end")?;
        self.read_missing_usage()?;
        self.read_session_usage()
    }

    /// Ends calls without a known subagent that will not start one any more.
    pub(super) fn end_calls(&mut self, is_over: impl Fn(&SpawnCall) -> bool) {
        for spawn in self.known.pending.iter().filter(|spawn| is_over(spawn)) {
            self.change(HookRowChange::Spawn(SpawnCall {
                ended_at: Some(self.now),
                ..spawn.clone()
            }));
        }
    }

    fn end_all(&mut self, agents: Vec<SubagentRecord>, reason: &str) -> EvaluationResult {
        if !agents.is_empty() {
            self.detail("ended", agents.len());
        }
        agents.into_iter().try_for_each(|agent| self.end(agent, reason))
    }

    /// Ends a subagent, with its usage if that can be found in time.
    fn end(&mut self, mut agent: SubagentRecord, reason: &str) -> EvaluationResult {
        self.read_usage(&mut agent)?;
        agent.end(reason, self.now);
        self.end_calls(|spawn| spawn.parent_agent_id.as_ref() == Some(&agent.agent_id));
        self.change(HookRowChange::Subagent(agent));
        Ok(())
    }

    /// The subagent that sent the event; a new record if it is unknown.
    pub(super) fn caller(&self) -> SubagentRecord {
        let unnamed = format!("{UNNAMED}{}", self.evidence.me);
        let id = self.payload.agent_id.as_deref().unwrap_or(&unnamed);
        let fresh = || SubagentRecord::new(id, &self.payload.session_id, self.now);
        let mut agent = self.known.agent.clone().unwrap_or_else(fresh);
        self.payload.session_id.clone_into(&mut agent.session_id);
        if let Some(kind) = &self.payload.agent_type {
            kind.clone_into(&mut agent.agent_type);
        }
        agent
    }

    /// The spawn call with this id, as stored or as the event has it.
    pub(super) fn spawn(&self, tool_use_id: &str) -> SpawnCall {
        let known = self.known.spawns.iter().find(|spawn| spawn.tool_use_id == tool_use_id);
        let told = || SpawnCall::from_call(self.payload, tool_use_id, self.now);
        known.cloned().unwrap_or_else(told)
    }
}

/// The id prefix of subagents that Claude Code does not name, followed by the process that noticed
/// them.
const UNNAMED: &str = "unnamed-";

impl SubagentRecord {
    pub(super) fn take_role(&mut self, role: Option<&str>, source: RoleSource) {
        self.role = role.map(str::to_owned);
        self.role_source = role.map(|_| source);
    }

    pub(super) fn is_unnamed(&self) -> bool {
        self.agent_id.starts_with(UNNAMED)
    }

    /// Whether its call is known for certain, so that it is listed by its own id.
    fn is_spawned_exactly(&self) -> bool {
        self.tool_use_id.is_some() && !self.agent_id.contains('-')
    }

    /// The claimant, while its claim to deliver the convention holds.
    pub(super) fn claimed_until(&self, now: Timestamp) -> Option<&str> {
        self.claim.as_ref().filter(|claim| claim.until > now).map(|claim| claim.by.as_str())
    }
}
