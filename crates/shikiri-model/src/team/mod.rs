//! Teams: agents that work on tasks and talk to each other, without getting stuck.
//!
//! The server runs the talk, not the model: whose turn it is, how long it may last and that it
//! ends are decided here. A task session only states its intent, as a delegation; its agent's chat
//! session does the talking. Everything that is open has a time at which it is decided without
//! anybody's doing: a dialogue ends, a claim lapses, a delegation fails, a session expires.

mod agenda;
mod budget;
mod coordinator;
mod delegation;
mod dialogue;
mod limits;
mod message;
mod permission;
mod project;
mod refusal;
mod session;
mod task;
mod waiting;

pub use agenda::{Agenda, Errand};
pub use budget::Budget;
pub use coordinator::{Left, Next, Occupant, Seat, Verdict, is_reason, is_taken_by};
pub use delegation::{Claim, Delegation, DelegationStatus, Outcome, Sweep};
pub use dialogue::{
    Dialogue, DialogueState, End, EndReason, Opening, Said, Side, stream_of as dialogue_stream,
};
pub use limits::TeamLimits;
pub use message::{MAX_CONTENT, Message, check_content};
pub use permission::{Caller, Need, TOOLS, allows, check, need_of};
pub use project::{AgentKind, Membership, Project, Rank, Spawn, TeamAgent};
pub use refusal::{Refusal, RefusalCode};
pub use session::{AgentSession, Purpose};
pub use task::{Task, TaskStatus, given_up, next_task};
pub use waiting::{Arrival, Look, Stay, Utterance, Waiting, What};

use serde::{Deserialize, Serialize};

use crate::event::StreamId;
use crate::ids::{AgentId, ProjectId, TenantId};

/// An agent in a project: whom work, messages and sessions belong to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Place {
    pub project: ProjectId,
    pub agent: AgentId,
}

impl Place {
    pub fn new(project: &ProjectId, agent: &AgentId) -> Self {
        Self { project: project.clone(), agent: agent.clone() }
    }

    /// As records name it in the column that they are found by.
    pub fn key(&self) -> String {
        format!("{}/{}", self.project, self.agent)
    }

    /// What is written to when something changes for the agent, so that whoever waits looks again.
    /// It holds no events.
    pub fn bell(&self, tenant: &TenantId) -> StreamId {
        StreamId::new(format!("team/{tenant}/{}/{}", self.project, self.agent))
    }
}
