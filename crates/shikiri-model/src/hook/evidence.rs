//! What a decision may want to know from outside the rows. Each is looked up at most once, and only
//! when it can change the outcome.

use super::registry::Spawn;

/// What was found out so far. `None` is not asked yet; `Some(None)` is asked, and not to be had.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    /// Who decides: this process.
    pub me: String,
    /// The project's folder.
    pub project: Option<String>,
    /// What Claude Code wrote about the subagent.
    pub meta: Option<Option<Meta>>,
    /// Calls that were read from the session's transcript.
    pub spawns: Option<Vec<Spawn>>,
    /// What the subagent's prompt says of its role.
    pub prompt_role: Option<PromptRole>,
    /// Whether this Claude Code says who calls.
    pub names_agents: Option<Option<bool>>,
    /// How many tokens the caller's context has.
    pub tokens: Option<Option<u64>>,
    /// Subagents that were looked at, and what each spent, as JSON.
    pub usage: Vec<(String, Option<String>)>,
    /// Claimants that were looked at, and whether each still lives.
    pub claimants: Vec<(String, bool)>,
    /// There is no time left to look anything up: what can be done without is not wanted any more.
    pub is_late: bool,
}

/// What a prompt says of its agent's role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PromptRole {
    /// Nobody could read it: perhaps it is not written yet.
    Unread,
    /// It names none.
    Unnamed,
    Named(String),
}

/// The `.meta.json` beside a subagent's transcript.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    pub tool_use_id: Option<String>,
    /// What a teammate was spawned as.
    pub spawned_type: Option<String>,
    pub parent_agent_id: Option<String>,
}

/// What should be looked up before the decision is asked for again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Want {
    Meta {
        agent_id: String,
    },
    /// Calls in the session's transcript that were not read before.
    Spawns,
    /// Of the subagent, or of the session itself.
    PromptRole {
        agent_id: Option<String>,
    },
    NamesAgents,
    Tokens {
        agent_id: Option<String>,
    },
    Usage {
        agent_id: String,
    },
    Claimant {
        by: String,
    },
}

impl Evidence {
    /// What a subagent spent; none if nobody looked yet.
    pub(super) fn usage_of(&self, agent_id: &str) -> Option<Option<&str>> {
        let found = self.usage.iter().find(|(who, _)| who == agent_id);
        found.map(|(_, usage)| usage.as_deref())
    }

    /// Whether somebody who claimed is still there: who cannot be asked is.
    pub(super) fn lives(&self, by: &str) -> Option<bool> {
        self.claimants.iter().find(|(who, _)| who == by).map(|(_, lives)| *lives)
    }
}
