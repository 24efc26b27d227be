//! Delivers conventions to an agent when it is about to use a tool, each of them once.

use std::time::Duration;

use serde_json::Value;

use super::conventions::{ConventionDelivery, SelectedConvention};
use super::decide::{EvaluationResult, HookEvaluation};
use super::hook_evidence::EvidenceRequest;
use super::hook_rows::{
    DeliveryClaim, HookRowChange, SessionMark, SessionMarkKey, SpawnCall, SubagentRecord,
};
use super::role_source::{RoleConfidence, RoleSource};
use super::tool_rules::RuleSubject;

/// The longest run of a hook. Other hooks leave a claimant this long to deliver.
const CLAIM: Duration = Duration::from_secs(2);

/// The name of the first text in the log and in marks.
pub(super) const STARTUP: &str = "session_startup";
/// The mark of a session with a workflow whose agents may have roles.
pub(super) const WORKFLOW_ROLES: &str = "workflow_roles";
/// How long a call whose agent has not started is taken to be about to start it.
const START: Duration = Duration::from_secs(2);
/// The mark of a session whose Claude Code names the calling agent.
const NAMES_AGENTS: &str = "names_agents";

impl HookEvaluation<'_> {
    /// `PreToolUse`.
    pub(super) fn before_tool(&mut self) -> EvaluationResult {
        let is_mcp =
            self.payload.tool_name.as_deref().is_some_and(|name| name.starts_with("mcp__"));
        if is_mcp {
            self.done.log.tool_use_id.clone_from(&self.payload.tool_use_id);
        }
        if let Some(name) = &self.payload.tool_name {
            self.detail("tool", name.as_str());
        }
        if self.payload.agent_id.is_some() {
            self.before_subagents_tool()
        } else if let Some(kind) = &self.payload.agent_type {
            self.before_own_sessions_tool(kind)
        } else if self.is_main_agents()? {
            self.before_main_agents_tool()
        } else {
            self.before_unnamed_agents_tool()
        }
    }

    fn before_subagents_tool(&mut self) -> EvaluationResult {
        let mut agent = self.caller();
        if !agent.is_active() {
            agent.resume(self.now);
        }
        self.resolve_role(&mut agent)?;
        let who = RuleSubject::subagent(&agent);
        if !self.is_refused(&who)? {
            let chosen = self.conventions.for_subagent(agent.role.as_deref(), &agent.agent_type);
            if let Some(chosen) = chosen
                && (self.claim(&mut agent, &chosen)? || self.reminds(&agent, &who, &chosen)?)
            {
                self.deliver_convention(&chosen);
            }
            self.say_rules(&who)?;
            self.record_spawn()?;
        }
        if self.known.agent.as_ref() != Some(&agent) {
            if !self.known.agent.as_ref().is_some_and(|known| known.checked) {
                self.mark(NAMES_AGENTS, "active", 0);
            }
            self.change(HookRowChange::Subagent(agent));
        }
        Ok(())
    }

    /// Whether a call without an agent name is the main agent's. A Claude Code whose subagents can
    /// spawn others names them.
    fn is_main_agents(&mut self) -> Result<bool, EvidenceRequest> {
        let spawns = self.payload.is_spawn_call() || self.payload.is_workflow_call();
        Ok(self.known.active.is_empty() || spawns || self.names_agents()?)
    }

    /// An older Claude Code does not name the calling agent. An agent that still lacks its
    /// convention is taken as the caller. If several roles are possible, the default text is given.
    fn before_unnamed_agents_tool(&mut self) -> EvaluationResult {
        let active = &self.known.active;
        let mut waiting = active.iter().filter(|agent| !agent.startup_processed);
        let (first, others) = (waiting.next(), waiting.count());
        let alike = active.iter().all(|agent| {
            let same =
                |a: &SubagentRecord| (&a.role, &a.agent_type) == (&agent.role, &agent.agent_type);
            first.is_some_and(same) && !agent.is_bound_exactly()
        });
        let known = first.filter(|_| alike);
        let role = known.and_then(|agent| agent.role.clone());
        let kind = known.map_or("", |agent| agent.agent_type.as_str());
        let who = RuleSubject::session(role.clone(), kind);
        if self.is_refused(&who)? {
            return Ok(());
        }
        if let Some(mut agent) = first.cloned() {
            self.done.log.agent_id = Some(agent.agent_id.clone());
            // The called server acts for this caller, so a guess must not be logged for it.
            self.done.log.tool_use_id = None;
            if !agent.is_certain() && others == 0 {
                agent.confidence = RoleConfidence::Unique;
            } else if !agent.is_certain() {
                (agent.confidence, agent.role_source) =
                    (RoleConfidence::Fifo, Some(RoleSource::Fifo));
            }
            let kind = kind.to_owned();
            if let Some(chosen) = self.conventions.for_subagent(role.as_deref(), &kind)
                && self.claim(&mut agent, &chosen)?
            {
                self.deliver_convention(&chosen);
            }
            self.change(HookRowChange::Subagent(agent));
        }
        self.say_rules(&who)
    }

    /// Delivers what a start event can deliver. Texts that are delivered by a denial wait for a
    /// tool call.
    pub(super) fn deliver_at_start(&mut self, agent: &mut SubagentRecord) -> EvaluationResult {
        let chosen = self.conventions.for_subagent(agent.role.as_deref(), &agent.agent_type);
        if let Some(chosen) = chosen
            && chosen.convention.delivery != ConventionDelivery::Block
            && self.claim(agent, &chosen)?
        {
            self.deliver_convention(&chosen);
            self.done.log.hook_name = "subagent_event".to_owned();
        }
        Ok(())
    }

    /// Claims the delivery of this text. Returns true if this process should deliver it now.
    fn claim(
        &mut self,
        agent: &mut SubagentRecord,
        chosen: &SelectedConvention<'_>,
    ) -> Result<bool, EvidenceRequest> {
        if !chosen.has_text() || agent.delivered.as_ref() == Some(&chosen.key) {
            return Ok(false);
        }
        if let Some(by) = agent.claimed_until(self.now)
            && !self.is_claimant_dead(by)?
        {
            return Ok(false);
        }
        agent.claim = Some(DeliveryClaim { by: self.evidence.me.clone(), until: self.now + CLAIM });
        let (agent_id, key) = (agent.agent_id.clone(), chosen.key.clone());
        self.done.confirm.push(HookRowChange::Delivered { agent_id, key, at: self.now });
        Ok(true)
    }

    /// Claims a reminder. Returns true if the agent had the text and used enough tokens since.
    fn reminds(
        &mut self,
        agent: &SubagentRecord,
        who: &RuleSubject,
        chosen: &SelectedConvention<'_>,
    ) -> Result<bool, EvidenceRequest> {
        let Some(threshold) = chosen.convention.token_threshold.filter(|_| chosen.has_text())
        else {
            return Ok(false);
        };
        if agent.delivered.as_ref() != Some(&chosen.key) {
            return Ok(false);
        }
        // Its first text came at its start, with an empty context.
        let name = who.mark(STARTUP);
        let Some(tokens) = self.due_since(&name, Some(0), Some(threshold))? else {
            return Ok(false);
        };
        self.claim_mark(&name, tokens);
        Ok(true)
    }

    /// Whether a claimant ended without delivering.
    fn is_claimant_dead(&self, by: &str) -> Result<bool, EvidenceRequest> {
        match self.evidence.lives(by) {
            _ if by == self.evidence.me => Ok(true),
            Some(lives) => Ok(!lives),
            None => Err(EvidenceRequest::Claimant { by: by.to_owned() }),
        }
    }

    pub(super) fn deliver_convention(&mut self, chosen: &SelectedConvention<'_>) {
        self.done.log.hook_name = STARTUP.to_owned();
        self.detail("convention", chosen.key.as_str());
        let text = chosen.convention.text.trim();
        if chosen.convention.delivery == ConventionDelivery::Block {
            self.deny(text);
        } else {
            self.say(text);
        }
    }

    /// Whether this Claude Code names agents. If it does, a call without a name is the main
    /// agent's.
    fn names_agents(&mut self) -> Result<bool, EvidenceRequest> {
        if self.known.marks.iter().any(|mark| mark.key.hook_name == NAMES_AGENTS) {
            return Ok(true);
        }
        match self.evidence.names_agents {
            None => Err(EvidenceRequest::NamesAgents),
            Some(Some(true)) => {
                self.mark(NAMES_AGENTS, "active", 0);
                Ok(true)
            }
            Some(_) => Ok(false),
        }
    }

    /// Whether the text with this name is due, and the token count at which it is given.
    pub(super) fn due(
        &self,
        name: &str,
        threshold: Option<u64>,
    ) -> Result<Option<u64>, EvidenceRequest> {
        self.due_since(name, None, threshold)
    }

    /// Like `due`, with the token count of the last delivery for the case that no mark has one.
    fn due_since(
        &self,
        name: &str,
        unmarked: Option<u64>,
        threshold: Option<u64>,
    ) -> Result<Option<u64>, EvidenceRequest> {
        let mark = self.known.marks.iter().find(|mark| mark.key.hook_name == name);
        let told_at = match mark {
            Some(mark) if mark.status == "active" => Some(mark.last_tokens),
            Some(mark) => match mark.status.strip_prefix(CLAIMED) {
                Some(by) if mark.created_at + CLAIM > self.now && !self.is_claimant_dead(by)? => {
                    return Ok(None);
                }
                _ => None,
            },
            None => unmarked,
        };
        let Some(threshold) = threshold else { return Ok(told_at.is_none().then_some(0)) };
        let tokens = match self.evidence.tokens {
            None => {
                return Err(EvidenceRequest::Tokens { agent_id: self.payload.agent_id.clone() });
            }
            Some(tokens) => tokens.unwrap_or(0),
        };
        let is_due = told_at.is_none_or(|then| tokens.saturating_sub(then) >= threshold);
        Ok(is_due.then_some(tokens))
    }

    /// Claims a mark now, and confirms it after the answer was written.
    pub(super) fn claim_mark(&mut self, name: &str, tokens: u64) {
        self.mark(name, &format!("{CLAIMED}{}", self.evidence.me), tokens);
        if let Some(HookRowChange::Mark(claimed)) = self.done.changes.last() {
            let told = SessionMark { status: "active".to_owned(), ..claimed.clone() };
            self.done.confirm.push(HookRowChange::Mark(told));
        }
    }

    pub(super) fn mark(&mut self, name: &str, status: &str, last_tokens: u64) {
        let key = SessionMarkKey {
            session_id: self.payload.session_id.clone(),
            hook_name: name.to_owned(),
        };
        let (created_at, status) = (self.now, status.to_owned());
        self.change(HookRowChange::Mark(SessionMark {
            key,
            created_at,
            last_tokens,
            status,
            expired_at: None,
        }));
    }

    /// Records a call that is about to spawn a subagent, and may add a text to its prompt.
    pub(super) fn record_spawn(&mut self) -> EvaluationResult {
        if self.done.answer.deny.is_some() {
            return Ok(());
        }
        if self.payload.is_workflow_call() && self.payload.may_name_roles() {
            self.mark(WORKFLOW_ROLES, "active", 0);
        }
        if !self.payload.is_spawn_call() {
            return Ok(());
        }
        let Some(tool_use_id) = &self.payload.tool_use_id else { return Ok(()) };
        let mut spawn = self.spawn(tool_use_id);
        if self.evidence.start_waits > 0 {
            spawn.ended_at = None;
        }
        let chosen = self.text_of_call(&spawn).filter(SelectedConvention::has_text);
        if let Some(chosen) = chosen
            && self.goes_into_prompt(&spawn, &chosen)?
            && let Some(prompt) = self.payload.input("prompt")
        {
            let mut input = self.payload.tool_input.clone();
            let text = format!("{}\n\n{prompt}", chosen.convention.text.trim());
            input.insert("prompt".to_owned(), Value::String(text));
            self.done.answer.input = Some(input);
            self.done.log.result = "injected";
            self.detail("spawn_convention", chosen.key.as_str());
            let mut told = spawn.clone();
            told.delivered = Some(chosen.key);
            self.done.confirm.push(HookRowChange::Spawn(told));
        }
        self.change(HookRowChange::Spawn(spawn));
        Ok(())
    }

    /// Whether the text is written into the prompt, where it reaches the right agent also if that
    /// agent uses no tool. The start of an agent does not show its call, so this is done while other
    /// calls of its type with another text are pending. The first of them was answered before the
    /// others were known: they wait until its agent has started, which then is the only one that it
    /// can be.
    fn goes_into_prompt(
        &self,
        spawn: &SpawnCall,
        chosen: &SelectedConvention<'_>,
    ) -> Result<bool, EvidenceRequest> {
        match chosen.convention.delivery {
            ConventionDelivery::Prompt => return Ok(true),
            ConventionDelivery::Block => return Ok(false),
            ConventionDelivery::Context => {}
        }
        let differs = |other: &&SpawnCall| {
            other.tool_use_id != spawn.tool_use_id
                && other.subagent_type == spawn.subagent_type
                && self.text_of_call(other).is_none_or(|text| text.key != chosen.key)
        };
        let mut others = self.known.pending.iter().filter(differs);
        let about_to_start =
            |other: &SpawnCall| other.delivered.is_none() && other.created_at + START > self.now;
        if !self.evidence.start_wait_is_over
            && !self.evidence.is_late
            && others.clone().any(about_to_start)
        {
            // As long as it is ended, no agent is taken to come from it.
            let call = SpawnCall { ended_at: Some(self.now), ..spawn.clone() };
            return Err(EvidenceRequest::Start { waiting: Some(Box::new(call)) });
        }
        Ok(self.evidence.start_waits > 0 || others.next().is_some())
    }
}

impl<'a> HookEvaluation<'a> {
    /// The text for the agent of a call.
    pub(super) fn text_of_call(&self, spawn: &SpawnCall) -> Option<SelectedConvention<'a>> {
        let kind = spawn.subagent_type.as_str();
        let role = self.conventions.role_named(kind).or(spawn.role.as_deref());
        self.conventions.for_subagent(role, kind)
    }
}

const CLAIMED: &str = "claimed ";

impl SessionMark {
    /// Whether this claimant is delivering it.
    pub fn is_claimed_by(&self, who: &str) -> bool {
        self.status.strip_prefix(CLAIMED) == Some(who)
    }
}
