//! Facts that a decision may need from outside the rows. Each is looked up at most once, and only
//! if it can change the outcome.

use super::hook_rows::SpawnCall;
use super::tool_targets::PathFacts;

/// The facts that were looked up. `None`: not looked up yet. `Some(None)`: looked up and not
/// available.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HookEvidence {
    /// The id of the process that decides.
    pub me: String,
    /// The project's folder.
    pub project: Option<String>,
    /// Where the paths of the call lead.
    pub paths: PathFacts,
    /// Why the rows cannot be read or written. Then the decision is made without them.
    pub store_problem: Option<String>,
    /// The file that Claude Code wrote about the subagent.
    pub meta: Option<Option<SubagentMeta>>,
    /// Spawn calls that were read from the session's transcript.
    pub spawns: Option<Vec<SpawnCall>>,
    /// The role in the subagent's prompt.
    pub prompt_role: Option<PromptRole>,
    /// Whether this Claude Code names the calling agent.
    pub names_agents: Option<Option<bool>>,
    /// The number of tokens in the caller's context.
    pub tokens: Option<Option<u64>>,
    /// Subagents whose usage was looked up, with the usage as JSON.
    pub usage: Vec<(String, Option<String>)>,
    /// Claimants that were checked, and whether each is alive.
    pub claimants: Vec<(String, bool)>,
    /// The deadline is near. Evidence that the decision can do without is not looked up any more.
    pub is_late: bool,
}

/// The role in an agent's prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PromptRole {
    /// The prompt could not be read. It may not be written yet.
    Unread,
    /// The prompt names no role.
    NoTag,
    Named(String),
}

/// The `.meta.json` beside a subagent's transcript.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubagentMeta {
    pub tool_use_id: Option<String>,
    /// The agent type that a teammate was spawned with.
    pub spawned_type: Option<String>,
    pub parent_agent_id: Option<String>,
}

/// A fact to look up before the decision is asked for again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvidenceRequest {
    Meta {
        agent_id: String,
    },
    /// Calls in the session's transcript that were not read before.
    Spawns,
    /// The role in the prompt of the subagent or of the session itself.
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

impl HookEvidence {
    /// The usage of a subagent; None if it was not looked up.
    pub(super) fn usage_of(&self, agent_id: &str) -> Option<Option<&str>> {
        let found = self.usage.iter().find(|(who, _)| who == agent_id);
        found.map(|(_, usage)| usage.as_deref())
    }

    /// Whether a claimant is alive. One that cannot be checked counts as alive.
    pub(super) fn lives(&self, by: &str) -> Option<bool> {
        self.claimants.iter().find(|(who, _)| who == by).map(|(_, lives)| *lives)
    }
}
