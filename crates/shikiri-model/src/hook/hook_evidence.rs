//! Facts that a decision may need from outside the rows. Each is looked up at most once, and only
//! if it can change the outcome.

use super::hook_rows::SpawnCall;
use super::tool_targets::PathFacts;
use crate::time::Timestamp;

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
    /// Whether the session's transcript has the text that is to be told.
    pub is_heard: Option<bool>,
    /// What was spent, by the subagents whose transcripts were read; None is the session itself.
    pub usage: Vec<(Option<String>, TranscriptUsage)>,
    /// Claimants that were checked, and whether each is alive.
    pub claimants: Vec<(String, bool)>,
    /// How often the agents of other calls were waited for.
    pub start_waits: u32,
    /// They are not waited for any longer.
    pub start_wait_is_over: bool,
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

/// What a transcript says that its agent spent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TranscriptUsage {
    /// As JSON, one entry per model. None if the file has no answer, or cannot be read.
    pub usage: Option<String>,
    /// The file ends with the agent's last answer, so that nothing is missing.
    pub is_complete: bool,
    /// Where the file lies, as far as it was found.
    pub path: Option<String>,
}

/// A transcript whose usage is to be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageRequest {
    /// None: the session's own.
    pub agent_id: Option<String>,
    /// The file, if it was found before.
    pub path: Option<String>,
    /// The file is complete only with an answer from this time or later.
    pub answered_after: Option<Timestamp>,
    /// Older answers are those of the session that this one was forked from.
    pub counted_from: Option<Timestamp>,
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
    /// Whether the session's transcript has this text.
    Heard {
        text: String,
    },
    Usage(Vec<UsageRequest>),
    Claimant {
        by: String,
    },
    /// A moment later, the agent of another call may have started, or the hook of another call may
    /// have recorded it.
    Start {
        /// The call that waits. It is stored, so that it is not taken for one that no hook saw.
        waiting: Option<Box<SpawnCall>>,
    },
}

impl HookEvidence {
    /// Notes a wait for the agents of other calls, of which there are so many at most.
    pub fn note_start_wait(&mut self, most: u32) {
        self.start_waits += 1;
        self.start_wait_is_over = self.start_waits >= most;
    }

    /// The usage of a subagent, or of the session; None if it was not looked up.
    pub(super) fn usage_of(&self, agent_id: Option<&str>) -> Option<&TranscriptUsage> {
        let found = self.usage.iter().find(|(who, _)| who.as_deref() == agent_id);
        found.map(|(_, usage)| usage)
    }

    /// Whether a claimant is alive. One that cannot be checked counts as alive.
    pub(super) fn lives(&self, by: &str) -> Option<bool> {
        self.claimants.iter().find(|(who, _)| who == by).map(|(_, lives)| *lives)
    }
}
