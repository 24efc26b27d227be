//! How subagents begin and end.

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
        self.done.log.agent_id = Some(agent.agent_id.clone());
        // A start that is told again says nothing new: what is pending by now is another's.
        if agent.is_certain() || agent.is_matched() {
            self.hear_prompt(&mut agent);
            self.deliver_at_start(&mut agent)?;
        } else {
            self.match_and_deliver(&mut agent)?;
        }
        self.change(Change::Subagent(agent));
        Ok(())
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
            self.identify_at_end(&mut agent)?;
        }
        self.end(agent, "stopped")
    }

    /// `StopFailure`: the model API failed.
    pub(super) fn fail(&mut self) -> Step {
        let Some(mut agent) = self.known.agent.clone() else { return Ok(()) };
        self.identify_at_end(&mut agent)?;
        self.end(agent, "failed")
    }

    /// That it has ended is more than where it came from.
    fn identify_at_end(&mut self, agent: &mut Subagent) -> Step {
        if self.evidence.is_late { Ok(()) } else { self.identify(agent) }
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
        // One that is resumed by another call stays what it was spawned as.
        if agent.is_bound_exactly() {
            spawn.matched_agent_id = Some(agent_id.to_owned());
        } else if !spawn.is_of(&agent) || !agent.is_certain() {
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
        let agent = self.known.agent.clone().filter(|agent| spawn.is_of(agent));
        self.change(Change::Spawn(spawn));
        match agent {
            Some(agent) if agent.is_active() => self.end(agent, "failed"),
            _ => Ok(()),
        }
    }

    /// `Stop`: whoever is not in the background any more has ended without a word, and what the main
    /// agent has called and did not start by now was refused.
    pub(super) fn idle(&mut self) -> Step {
        // A teammate or a tmux pane is listed under an id of its own.
        let background = self.payload.background.as_deref();
        let teammates = background.unwrap_or_default().iter().any(|task| task.kind != "subagent");
        self.end_calls(|spawn| {
            spawn.parent_agent_id.is_none() && !(teammates && spawn.name.is_some())
        });
        let Some(background) = background else { return Ok(()) };
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
        self.end_calls(|_| true);
        self.end_all(self.known.active.clone(), "session_end")
    }

    /// `SessionStart`.
    pub(super) fn begin_session(&mut self) -> Step {
        if let Some(source) = &self.payload.source {
            self.detail("source", source.as_str());
        }
        match self.payload.source.as_deref() {
            _ if self.payload.agent_id.is_some() => Ok(()),
            Some("compact") => self.forget_what_was_told(),
            // Whatever another process of this session has called, it is gone.
            _ => {
                self.end_calls(|_| true);
                Ok(())
            }
        }
    }

    /// After a compaction nobody remembers it. `PostCompact` tells that too, and is the only event
    /// of the two that Claude Code posts to a server.
    pub(super) fn forget_what_was_told(&mut self) -> Step {
        self.done.log.hook_name = "compact_detected".to_owned();
        let session_id = self.payload.session_id.clone();
        let status = "compact_expired";
        self.change(Change::ExpireMainMarks { session_id, status, at: self.now });
        Ok(())
    }

    /// Calls whose subagent is not known, and of which none will start any more.
    fn end_calls(&mut self, is_over: impl Fn(&Spawn) -> bool) {
        for spawn in self.known.pending.iter().filter(|spawn| is_over(spawn)) {
            self.change(Change::Spawn(Spawn { ended_at: Some(self.now), ..spawn.clone() }));
        }
    }

    fn end_all(&mut self, agents: Vec<Subagent>, reason: &str) -> Step {
        if !agents.is_empty() {
            self.detail("ended", agents.len());
        }
        agents.into_iter().try_for_each(|agent| self.end(agent, reason))
    }

    /// Ends one, with what it spent if that can be found in time.
    fn end(&mut self, mut agent: Subagent, reason: &str) -> Step {
        match self.evidence.usage_of(&agent.agent_id) {
            None if self.evidence.is_late => {}
            None => return Err(Want::Usage { agent_id: agent.agent_id }),
            Some(None) => {}
            Some(Some(usage)) => agent.usage = Some(usage.to_owned()),
        }
        agent.end(reason, self.now);
        self.end_calls(|spawn| spawn.parent_agent_id.as_ref() == Some(&agent.agent_id));
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
        self.is_bound_exactly()
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
