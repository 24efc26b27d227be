//! Changes of an agent: its name, role and rank, its passkey, its model, and whether it is started.

use shikiri_model::ids::{AgentId, ModelId, ProjectId, TenantId};
use shikiri_model::key::SecretToken;
use shikiri_model::record::StoredDocument;
use shikiri_model::team::{
    AgentRank, InboxItem, InboxItemKind, ProjectMember, ProjectMembership, SessionPurpose,
    SpawnPolicy, TeamAgent, TeamMessage,
};
use shikiri_runtime::field_checks::set;
use shikiri_runtime::{AppError, transact};
use shikiri_store::StoreExt;

use super::project_setup::{check_agent_name, check_passkey, check_role};
use super::team_transaction::TeamTransaction;
use super::{TeamError, passkey};
use crate::Teams;

/// The changes to an agent. Absent fields stay as they are; `Some(None)` empties a field.
#[derive(Clone, Default)]
pub struct TeamAgentPatch {
    pub name: Option<String>,
    pub rank: Option<AgentRank>,
    pub role: Option<Option<String>>,
    /// Without a passkey nobody can log in as the agent. Sessions that are open go on.
    pub passkey: Option<Option<SecretToken>>,
    pub model_id: Option<Option<ModelId>>,
    pub spawn: Option<SpawnPolicy>,
}

impl Teams {
    /// An agent of a project.
    pub async fn agent_of(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
        agent: &AgentId,
    ) -> Result<StoredDocument<TeamAgent>, AppError> {
        self.project(tenant, project).await?;
        let id = ProjectMembership::id_of(&ProjectMember::new(project, agent));
        if self.runtime.store().load::<ProjectMembership>(tenant, &id).await?.is_none() {
            return Err(AppError::not_found("agent", agent));
        }
        self.team_agent(tenant, agent).await
    }

    /// Changes an agent of a project. It is the tenant's, so the change holds in its other projects
    /// too.
    pub async fn change_agent(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
        agent: &AgentId,
        patch: TeamAgentPatch,
    ) -> Result<StoredDocument<TeamAgent>, TeamError> {
        self.agent_of(tenant, project, agent).await?;
        if let Some(name) = &patch.name {
            check_agent_name(name)?;
        }
        if let Some(Some(role)) = &patch.role {
            check_role(role)?;
        }
        if let Some(Some(model)) = &patch.model_id {
            self.tenancy.check_model_id(model.as_str()).await?;
        }
        let passkey = match &patch.passkey {
            Some(Some(passkey)) => {
                check_passkey(passkey)?;
                Some(Some(passkey::hash(passkey).await?))
            }
            Some(None) => Some(None),
            None => None,
        };
        let changed = self
            .runtime
            .update::<TeamAgent>(tenant, agent.as_str(), |agent| {
                set(&mut agent.name, patch.name.as_ref());
                set(&mut agent.rank, patch.rank.as_ref());
                set(&mut agent.role, patch.role.as_ref());
                set(&mut agent.passkey, passkey.as_ref());
                set(&mut agent.model_id, patch.model_id.as_ref());
                set(&mut agent.spawn, patch.spawn.as_ref());
                Ok(())
            })
            .await?;
        if patch.spawn.is_some() && changed.value.can_be_started() {
            self.start_for_waiting(tenant, agent).await?;
        }
        Ok(changed)
    }

    /// Has the coordinator look at what waits for an agent that may be started from now on.
    async fn start_for_waiting(&self, tenant: &TenantId, agent: &AgentId) -> Result<(), TeamError> {
        for member in self.memberships_of(tenant, agent).await? {
            for purpose in [SessionPurpose::Task, SessionPurpose::Chat] {
                for item in self.inbox_items(tenant, &member, purpose).await? {
                    let id = item.value.id.as_str();
                    transact("team", id, || self.try_make_due(tenant, id)).await?;
                }
            }
        }
        Ok(())
    }

    async fn try_make_due(&self, tenant: &TenantId, id: &str) -> Result<Option<()>, TeamError> {
        let Some(mut item) = self.runtime.store().load::<InboxItem>(tenant, id).await? else {
            return Ok(Some(()));
        };
        let is_for_agent = match &item.value.what {
            InboxItemKind::Message(id) => {
                let found = self.runtime.store().load::<TeamMessage>(tenant, id.as_str()).await?;
                found.is_some_and(|message| !message.value.is_notice)
            }
            // Nobody is started for these: they wait for a session.
            InboxItemKind::Ended { .. } | InboxItemKind::Outcome(_) => false,
            _ => true,
        };
        if item.value.due_at.is_some() || !is_for_agent {
            return Ok(Some(()));
        }
        let mut transaction = TeamTransaction::begin(self, tenant).await?;
        item.value.due_at = Some(transaction.now);
        transaction.put(&item)?;
        transaction.try_commit(self, ()).await
    }
}
