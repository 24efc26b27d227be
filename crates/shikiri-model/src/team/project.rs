//! Projects, agents, and the membership of agents in projects.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::ProjectMember;
use super::team_cause::TeamCause;
use crate::ids::{AgentId, ModelId, ProjectId, TenantId};
use crate::macros::document;
use crate::record::RecordColumns;
use crate::time::Timestamp;

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
    /// The newest cause that reached the agent's inbox. What the agent does of its own accord
    /// follows from it, in whatever session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<TeamCause>,
}

impl ProjectMembership {
    pub fn new(tenant: TenantId, place: ProjectMember) -> Self {
        Self { id: Self::id_of(&place), tenant, place, cause: None }
    }

    /// What the agent's own actions follow from now. `longest` is how long a chain may be that no
    /// person set off.
    pub fn cause(&self, longest: Duration, now: Timestamp) -> Option<&TeamCause> {
        self.cause.as_ref().filter(|cause| !cause.has_lapsed(longest, now))
    }

    /// Records the cause of something in the agent's inbox. Returns true if it is the newest one.
    pub fn set_off(&mut self, cause: &TeamCause, longest: Duration, now: Timestamp) -> bool {
        let is_newest = self.cause(longest, now).is_none_or(|known| known.at < cause.at);
        if is_newest {
            self.cause = Some(cause.clone());
        }
        is_newest
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::team::TeamCauseKind;

    #[test]
    fn the_newest_cause_counts_and_an_agents_own_one_lapses() {
        let hour = Duration::from_secs(3_600);
        let at = |seconds: i64| Timestamp::from_millis(seconds * 1_000);
        let place = ProjectMember::new(&"p".parse().unwrap(), &"a".parse().unwrap());
        let mut member = ProjectMembership::new(TenantId::local(), place);
        assert_eq!(member.cause(hour, at(0)), None);
        let own = TeamCause::new(TeamCauseKind::Message, "msg_2", at(2));
        let posted = TeamCause::new(TeamCauseKind::Posted, "msg_1", at(1));
        assert!(member.set_off(&posted, hour, at(1)));
        assert!(member.set_off(&own, hour, at(2)));
        assert!(!member.set_off(&posted, hour, at(3)), "an older one comes late");
        assert_eq!(member.cause(hour, at(3)), Some(&own));
        assert_eq!(member.cause(hour, at(3_602)), None);
        assert!(member.set_off(&posted, hour, at(3_602)));
        assert_eq!(member.cause(hour, at(999_999)), Some(&posted), "a person's never does");
    }
}
