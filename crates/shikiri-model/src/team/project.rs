//! Projects, the agents of a tenant, and who works where.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::Place;
use crate::ids::{AgentId, ModelId, ProjectId, TenantId};
use crate::record::{Columns, Document};

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
    pub rank: Rank,
    /// What the agent is told of its part.
    #[serde(default)]
    pub role: Option<String>,
    /// A slow hash; without one nobody can log in as this agent.
    #[serde(default)]
    pub passkey: Option<String>,
    #[serde(default)]
    pub model_id: Option<ModelId>,
    pub spawn: Spawn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentKind {
    Ai,
    Human,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rank {
    Manager,
    #[default]
    Worker,
}

/// Whether the server starts the agent when there is work for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spawn {
    Auto,
    #[default]
    Never,
}

impl TeamAgent {
    pub fn can_be_started(&self) -> bool {
        self.kind == AgentKind::Ai && self.spawn == Spawn::Auto
    }
}

/// That an agent works in a project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// Made of the two that it joins, so that there is one.
    pub id: String,
    pub tenant: TenantId,
    pub place: Place,
}

impl Membership {
    pub fn new(tenant: TenantId, place: Place) -> Self {
        Self { id: Self::id_of(&place), tenant, place }
    }

    pub fn id_of(place: &Place) -> String {
        let digest = Sha256::digest(place.key().as_bytes());
        let hex: String = digest.iter().take(20).map(|byte| format!("{byte:02x}")).collect();
        format!("mem_{hex}")
    }
}

impl Document for Project {
    const KIND: &'static str = "project";

    fn tenant(&self) -> TenantId {
        self.tenant.clone()
    }

    fn id(&self) -> &str {
        self.id.as_str()
    }

    fn columns(&self) -> Columns {
        Columns::default()
    }
}

impl Document for TeamAgent {
    const KIND: &'static str = "agent";

    fn tenant(&self) -> TenantId {
        self.tenant.clone()
    }

    fn id(&self) -> &str {
        self.id.as_str()
    }

    fn columns(&self) -> Columns {
        Columns::default()
    }
}

impl Document for Membership {
    const KIND: &'static str = "membership";

    fn tenant(&self) -> TenantId {
        self.tenant.clone()
    }

    fn id(&self) -> &str {
        &self.id
    }

    fn columns(&self) -> Columns {
        let parent = Some(self.place.project.to_string());
        Columns { parent, ..Columns::default() }
    }
}
