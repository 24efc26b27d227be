//! What an agent is told when it is about to use a tool, and that it is told once.

use std::time::Duration;

use serde_json::Value;

use super::conventions::{Chosen, Delivery};
use super::decide::{Step, Turn};
use super::evidence::{PromptRole, Want};
use super::registry::{Change, Claim, Mark, MarkKey, Spawn, Subagent, SubagentState};
use super::role::{Confidence, RoleSource};
use super::rules::Who;

/// How long a hook takes at most, and so how long others leave it to deliver.
const CLAIM: Duration = Duration::from_secs(2);

/// What the log and the marks call the text that is given first.
const STARTUP: &str = "session_startup";
/// The mark of a session whose Claude Code says who calls.
const NAMES_AGENTS: &str = "names_agents";

impl Turn<'_> {
    /// `PreToolUse`.
    pub(super) fn before_tool(&mut self) -> Step {
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
            self.before_somebodys_tool()
        }
    }

    fn before_subagents_tool(&mut self) -> Step {
        let mut agent = self.caller();
        agent.state = SubagentState::Active;
        (agent.ended_at, agent.end_reason) = (None, None);
        self.identify(&mut agent)?;
        let who = Who::subagent(&agent);
        if !self.is_refused(&who)? {
            let chosen = self.conventions.for_subagent(agent.role.as_deref(), &agent.agent_type);
            if let Some(chosen) = chosen
                && (self.claim(&mut agent, &chosen)? || self.reminds(&agent, &who, &chosen)?)
            {
                self.give(&chosen);
            }
            self.say_rules(&who)?;
            self.record_spawn();
        }
        if self.known.agent.as_ref() != Some(&agent) {
            if !self.known.agent.as_ref().is_some_and(|known| known.checked) {
                self.mark(NAMES_AGENTS, "active", 0);
            }
            self.change(Change::Subagent(agent));
        }
        Ok(())
    }

    /// A teammate in a pane of its own, or a session that was started as an agent.
    fn before_own_sessions_tool(&mut self, kind: &str) -> Step {
        let role = match self.conventions.role_named(kind) {
            Some(role) => Some(role.to_owned()),
            None => match &self.evidence.prompt_role {
                None => return Err(Want::PromptRole { agent_id: None }),
                Some(PromptRole::Named(role)) => Some(role.clone()),
                Some(PromptRole::Unread | PromptRole::Unnamed) => None,
            },
        };
        let chosen = self.conventions.for_subagent(role.as_deref(), kind);
        self.before_sessions_tool(&Who::session(role, kind), chosen)
    }

    fn before_main_agents_tool(&mut self) -> Step {
        self.before_sessions_tool(&Who::main(), self.conventions.for_main())
    }

    fn before_sessions_tool(&mut self, who: &Who, chosen: Option<Chosen<'_>>) -> Step {
        if self.is_refused(who)? {
            return Ok(());
        }
        if let Some(chosen) = chosen.filter(Chosen::speaks)
            && let Some(tokens) = self.due(STARTUP, chosen.convention.token_threshold)?
        {
            self.tell(STARTUP, tokens);
            self.give(&chosen);
        }
        self.say_rules(who)?;
        self.record_spawn();
        Ok(())
    }

    /// Whether a call that names nobody is the main agent's. A Claude Code whose subagents can spawn
    /// others names them.
    fn is_main_agents(&mut self) -> Result<bool, Want> {
        Ok(self.known.active.is_empty() || self.payload.spawns() || self.names_agents()?)
    }

    /// An older Claude Code does not say which of its agents calls: one that waits for its
    /// convention is taken to be it. Where it could be another with another role, that of none is
    /// given.
    fn before_somebodys_tool(&mut self) -> Step {
        let active = &self.known.active;
        let mut waiting = active.iter().filter(|agent| !agent.startup_processed);
        let (first, others) = (waiting.next(), waiting.count());
        let alike = active.iter().all(|agent| {
            let same = |a: &Subagent| (&a.role, &a.agent_type) == (&agent.role, &agent.agent_type);
            first.is_some_and(same) && !agent.is_in_background()
        });
        let known = first.filter(|_| alike);
        let role = known.and_then(|agent| agent.role.clone());
        let kind = known.map_or("", |agent| agent.agent_type.as_str());
        let who = Who::session(role.clone(), kind);
        if self.is_refused(&who)? {
            return Ok(());
        }
        if let Some(mut agent) = first.cloned() {
            self.done.log.agent_id = Some(agent.agent_id.clone());
            // The server that is called acts on who called: a guess is not for it.
            self.done.log.tool_use_id = None;
            if !agent.is_certain() && others == 0 {
                agent.confidence = Confidence::Unique;
            } else if !agent.is_certain() {
                (agent.confidence, agent.role_source) = (Confidence::Fifo, Some(RoleSource::Fifo));
            }
            let kind = kind.to_owned();
            if let Some(chosen) = self.conventions.for_subagent(role.as_deref(), &kind)
                && self.claim(&mut agent, &chosen)?
            {
                self.give(&chosen);
            }
            self.change(Change::Subagent(agent));
        }
        self.say_rules(&who)
    }

    /// What a start can tell: what is to be denied waits for a tool call.
    pub(super) fn deliver_at_start(&mut self, agent: &mut Subagent) -> Step {
        let chosen = self.conventions.for_subagent(agent.role.as_deref(), &agent.agent_type);
        if let Some(chosen) = chosen
            && chosen.convention.delivery != Delivery::Block
            && self.claim(agent, &chosen)?
        {
            self.give(&chosen);
            self.done.log.hook_name = "subagent_event".to_owned();
        }
        Ok(())
    }

    /// True if this text is to be given to the agent now, by us.
    fn claim(&mut self, agent: &mut Subagent, chosen: &Chosen<'_>) -> Result<bool, Want> {
        if !chosen.speaks() || agent.delivered.as_ref() == Some(&chosen.key) {
            return Ok(false);
        }
        if let Some(by) = agent.claimed_until(self.now)
            && !self.is_gone(by)?
        {
            return Ok(false);
        }
        agent.claim = Some(Claim { by: self.evidence.me.clone(), until: self.now + CLAIM });
        let (agent_id, key) = (agent.agent_id.clone(), chosen.key.clone());
        self.done.confirm.push(Change::Delivered { agent_id, key, at: self.now });
        Ok(true)
    }

    /// True if the agent has heard this, and so much since that it is to be told again, by us.
    fn reminds(&mut self, agent: &Subagent, who: &Who, chosen: &Chosen<'_>) -> Result<bool, Want> {
        let Some(threshold) = chosen.convention.token_threshold.filter(|_| chosen.speaks()) else {
            return Ok(false);
        };
        if agent.delivered.as_ref() != Some(&chosen.key) {
            return Ok(false);
        }
        // Its first text came at its start, when it had heard nothing else.
        let name = who.mark(STARTUP);
        let Some(tokens) = self.due_since(&name, Some(0), Some(threshold))? else {
            return Ok(false);
        };
        self.tell(&name, tokens);
        Ok(true)
    }

    /// Whether a claimant has ended without delivering.
    fn is_gone(&self, by: &str) -> Result<bool, Want> {
        match self.evidence.lives(by) {
            _ if by == self.evidence.me => Ok(true),
            Some(lives) => Ok(!lives),
            None => Err(Want::Claimant { by: by.to_owned() }),
        }
    }

    fn give(&mut self, chosen: &Chosen<'_>) {
        self.done.log.hook_name = STARTUP.to_owned();
        self.detail("convention", chosen.key.as_str());
        let text = chosen.convention.text.trim();
        if chosen.convention.delivery == Delivery::Block {
            self.deny(text);
        } else {
            self.say(text);
        }
    }

    /// Whether this Claude Code names agents: then a call that names none is the main agent's.
    fn names_agents(&mut self) -> Result<bool, Want> {
        if self.known.marks.iter().any(|mark| mark.key.hook_name == NAMES_AGENTS) {
            return Ok(true);
        }
        match self.evidence.names_agents {
            None => Err(Want::NamesAgents),
            Some(Some(true)) => {
                self.mark(NAMES_AGENTS, "active", 0);
                Ok(true)
            }
            Some(_) => Ok(false),
        }
    }

    /// Whether something is to be told under this name, and at how many tokens that is.
    pub(super) fn due(&self, name: &str, threshold: Option<u64>) -> Result<Option<u64>, Want> {
        self.due_since(name, None, threshold)
    }

    /// The same, of what was told at so many tokens if no mark says otherwise.
    fn due_since(
        &self,
        name: &str,
        unmarked: Option<u64>,
        threshold: Option<u64>,
    ) -> Result<Option<u64>, Want> {
        let mark = self.known.marks.iter().find(|mark| mark.key.hook_name == name);
        let told_at = match mark {
            Some(mark) if mark.status == "active" => Some(mark.last_tokens),
            Some(mark) => match mark.status.strip_prefix(CLAIMED) {
                Some(by) if mark.created_at + CLAIM > self.now && !self.is_gone(by)? => {
                    return Ok(None);
                }
                _ => None,
            },
            None => unmarked,
        };
        let Some(threshold) = threshold else { return Ok(told_at.is_none().then_some(0)) };
        let tokens = match self.evidence.tokens {
            None => return Err(Want::Tokens { agent_id: self.payload.agent_id.clone() }),
            Some(tokens) => tokens.unwrap_or(0),
        };
        let is_due = told_at.is_none_or(|then| tokens.saturating_sub(then) >= threshold);
        Ok(is_due.then_some(tokens))
    }

    /// It is being told, and when the answer is out it has been.
    pub(super) fn tell(&mut self, name: &str, tokens: u64) {
        self.mark(name, &format!("{CLAIMED}{}", self.evidence.me), tokens);
        if let Some(Change::Mark(claimed)) = self.done.changes.last() {
            let told = Mark { status: "active".to_owned(), ..claimed.clone() };
            self.done.confirm.push(Change::Mark(told));
        }
    }

    fn mark(&mut self, name: &str, status: &str, last_tokens: u64) {
        let key =
            MarkKey { session_id: self.payload.session_id.clone(), hook_name: name.to_owned() };
        let (created_at, status) = (self.now, status.to_owned());
        self.change(Change::Mark(Mark { key, created_at, last_tokens, status, expired_at: None }));
    }

    /// Remembers a call that is about to spawn a subagent, and may write into its prompt.
    fn record_spawn(&mut self) {
        if !self.payload.spawns() || self.done.answer.deny.is_some() {
            return;
        }
        let Some(tool_use_id) = &self.payload.tool_use_id else { return };
        let spawn = self.spawn(tool_use_id);
        let kind = spawn.subagent_type.as_str();
        let role = self.conventions.role_named(kind).or(spawn.role.as_deref());
        let chosen = self.conventions.for_subagent(role, kind);
        if let Some(chosen) = chosen.filter(Chosen::speaks)
            && self.goes_into_prompt(&spawn, &chosen)
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
            self.done.confirm.push(Change::Spawn(told));
        }
        self.change(Change::Spawn(spawn));
    }

    /// Where calls of one type with different texts are under way, nobody can tell at the start of
    /// an agent which it comes from. The prompt gets to the right one.
    fn goes_into_prompt(&self, spawn: &Spawn, chosen: &Chosen<'_>) -> bool {
        let kind = spawn.subagent_type.as_str();
        let is_for = |role: Option<&str>| {
            self.conventions.for_subagent(role, kind).is_some_and(|it| it.key == chosen.key)
        };
        match chosen.convention.delivery {
            Delivery::Prompt => true,
            // In doubt everybody is told this anyway.
            Delivery::Context if is_for(None) => false,
            Delivery::Context => self.known.pending.iter().any(|other| {
                let is_other = other.tool_use_id != spawn.tool_use_id;
                is_other && other.subagent_type == kind && !is_for(other.role.as_deref())
            }),
            Delivery::Block => false,
        }
    }
}

const CLAIMED: &str = "claimed ";

impl Mark {
    /// It is being told, by this one.
    pub fn is_claimed_by(&self, who: &str) -> bool {
        self.status.strip_prefix(CLAIMED) == Some(who)
    }
}
