//! Projects, agents, and the membership of agents in projects.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::ProjectMember;
use crate::ids::{AgentId, ModelId, ProjectId, TenantId};
use crate::macros::document;
use crate::record::RecordColumns;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Project {
    pub id: ProjectId,
    pub tenant: TenantId,
    pub name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TeamAgent {
    pub id: AgentId,
    pub tenant: TenantId,
    pub name: String,
    pub kind: AgentKind,
    pub rank: AgentRank,
    /// The agent's role description.
    #[serde(default)]
    pub role: Option<String>,
    /// A slow hash of the passkey. Without one, the agent cannot log in.
    #[serde(default)]
    pub passkey: Option<String>,
    #[serde(default)]
    pub model_id: Option<ModelId>,
    pub spawn: SpawnPolicy,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentKind {
    #[default]
    Ai,
    Human,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentRank {
    Manager,
    #[default]
    Worker,
}

/// Whether the server starts the agent when it has work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpawnPolicy {
    Auto,
    #[default]
    Never,
}

impl TeamAgent {
    pub fn can_be_started(&self) -> bool {
        self.kind == AgentKind::Ai && self.spawn == SpawnPolicy::Auto
    }
}

/// The membership of an agent in a project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectMembership {
    /// Derived from project and agent, so that there is one record per pair.
    pub id: String,
    pub tenant: TenantId,
    pub place: ProjectMember,
}

impl ProjectMembership {
    pub fn new(tenant: TenantId, place: ProjectMember) -> Self {
        Self { id: Self::id_of(&place), tenant, place }
    }

    pub fn id_of(place: &ProjectMember) -> String {
        let digest = Sha256::digest(place.key().as_bytes());
        format!("mem_{}", hex::encode(&digest[..20]))
    }
}

document!(Project, "project", tenant, id);

document!(TeamAgent, "agent", tenant, id);

document!(ProjectMembership, "membership", tenant, id, |membership| {
    let parent = Some(membership.place.project.to_string());
    RecordColumns { parent, ..RecordColumns::default() }
});
