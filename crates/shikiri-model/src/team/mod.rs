//! Teams: agents that work on tasks and talk to each other, without getting stuck.
//!
//! The server runs the conversation, not the model: it decides whose turn it is, how long a
//! dialogue may last and that it ends. A task session only states its intent as a delegation, and
//! its agent's chat session does the talking. Everything that is open has a deadline at which it is
//! closed without a call: a dialogue ends, a claim lapses, a delegation fails, a session expires.

mod agent_session;
mod delegation;
mod dialogue;
mod inbox_item;
mod message_budget;
mod project;
mod spawn_queue;
mod spawn_slot;
mod team_budget;
mod team_cause;
mod team_limits;
mod team_message;
mod team_refusal;
mod team_task;
mod tool_permission;

pub use agent_session::{AgentSession, SessionPurpose};
pub use delegation::{
    Delegation, DelegationClaim, DelegationOutcome, DelegationStatus, DelegationSweep,
};
pub use dialogue::{
    Dialogue, DialogueEnd, DialogueEndReason, DialogueOpening, DialogueSide, DialogueState,
    DialogueTurnResult, stream_of as dialogue_stream,
};
pub use inbox_item::{
    DeliveryState, DialogueMessage, InboxAction, InboxItem, InboxItemKind, InboxRetention,
};
pub use message_budget::MessageBudget;
pub use project::{AgentKind, AgentRank, Project, ProjectMembership, SpawnPolicy, TeamAgent};
pub use spawn_queue::{SpawnQueue, SpawnTarget};
pub use spawn_slot::{
    AfterRunAction, RemainingWork, SpawnDecision, SpawnSlot, SpawnedRun, is_handled_by, is_reason,
};
pub use team_budget::TeamBudget;
pub use team_cause::{TeamCause, TeamCauseKind};
pub use team_limits::TeamLimits;
pub use team_message::{MAX_CONTENT, TeamMessage, check_content};
pub use team_refusal::{RefusalCode, TeamRefusal};
pub use team_task::{TaskStatus, TeamTask, next_task, tasks_to_abandon};
pub use tool_permission::{CallerSession, SessionRequirement, ToolPermission};

use serde::{Deserialize, Serialize};

use crate::event::StreamId;
use crate::ids::{AgentId, ProjectId, TenantId};

/// An agent in a project: the owner of work, messages and sessions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProjectMember {
    pub project: ProjectId,
    pub agent: AgentId,
}

impl ProjectMember {
    pub fn new(project: &ProjectId, agent: &AgentId) -> Self {
        Self { project: project.clone(), agent: agent.clone() }
    }

    /// The text in the columns that records are found by.
    pub fn key(&self) -> String {
        format!("{}/{}", self.project, self.agent)
    }

    /// The stream that is published to when something changes for the agent, so that waiting calls
    /// query again. It holds no events.
    pub fn wake_stream(&self, tenant: &TenantId) -> StreamId {
        StreamId::new(format!("team/{tenant}/{}/{}", self.project, self.agent))
    }
}
