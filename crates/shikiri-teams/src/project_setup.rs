//! Projects, agents and tasks: created, listed, read.

use shikiri_model::ids::{AgentId, DelegationId, DialogueId, ModelId, ProjectId, TaskId, TenantId};
use shikiri_model::key::SecretToken;
use shikiri_model::record::{
    Document, ExpectedVersion, RecordChange, RecordPosition, RecordQuery, StoredDocument,
};
use shikiri_model::team::{
    AgentKind, AgentRank, Delegation, DelegationStatus, Dialogue, DialogueState, InboxItemKind,
    Project, ProjectMember, ProjectMembership, RefusalCode, SpawnPolicy, TaskStatus, TeamAgent,
    TeamTask,
};
use shikiri_runtime::field_checks::check_text;
use shikiri_runtime::{AppError, entropy, transact};
use shikiri_store::{Commit, StoreExt};

use super::team_transaction::TeamTransaction;
use super::{TeamError, passkey};
use crate::Teams;

/// The declaration of an agent.
pub struct NewTeamAgent {
    pub id: AgentId,
    pub name: Option<String>,
    pub kind: AgentKind,
    pub rank: AgentRank,
    pub role: Option<String>,
    pub passkey: Option<SecretToken>,
    pub model_id: Option<ModelId>,
    pub spawn: SpawnPolicy,
}

pub struct NewTask {
    pub title: String,
    pub description: String,
    pub assignee: Option<AgentId>,
    pub parent_id: Option<TaskId>,
    pub priority: i32,
}

const MAX_NAME: usize = 200;
const MAX_TITLE: usize = 500;
const MAX_TEXT: usize = 100_000;
const MAX_PASSKEY: usize = 1_000;

pub(super) fn check_title(title: &str) -> Result<(), AppError> {
    check_text("title", title, MAX_TITLE)
}

pub(super) fn check_description(description: &str) -> Result<(), AppError> {
    if description.chars().count() <= MAX_TEXT {
        return Ok(());
    }
    Err(AppError::invalid("description", "must have at most 100,000 characters"))
}

pub(super) fn check_agent_name(name: &str) -> Result<(), AppError> {
    check_text("name", name, MAX_NAME)
}

pub(super) fn check_role(role: &str) -> Result<(), AppError> {
    check_text("role", role, MAX_TITLE)
}

pub(super) fn check_passkey(passkey: &SecretToken) -> Result<(), AppError> {
    let length = passkey.reveal().chars().count();
    if (1..=MAX_PASSKEY).contains(&length) {
        return Ok(());
    }
    Err(AppError::invalid("passkey", "must have 1 to 1,000 characters"))
}

impl Teams {
    pub async fn create_project(
        &self,
        tenant: &TenantId,
        id: Option<ProjectId>,
        name: Option<String>,
    ) -> Result<StoredDocument<Project>, AppError> {
        let id = match id {
            Some(id) => id,
            None => ProjectId::mint(self.runtime.store().now().await?, entropy()?),
        };
        let name = name.unwrap_or_else(|| id.to_string());
        check_text("name", &name, MAX_NAME)?;
        self.runtime.create_in_tenant(tenant, Project { id, tenant: tenant.clone(), name }).await
    }

    pub async fn project(
        &self,
        tenant: &TenantId,
        id: &ProjectId,
    ) -> Result<StoredDocument<Project>, AppError> {
        let found = self.runtime.store().load::<Project>(tenant, id.as_str()).await?;
        found.ok_or_else(|| AppError::not_found("project", id))
    }

    pub async fn list_projects(
        &self,
        tenant: &TenantId,
        after: Option<RecordPosition>,
        limit: u32,
    ) -> Result<(Vec<StoredDocument<Project>>, Option<RecordPosition>), AppError> {
        self.runtime.tenant(tenant).await?;
        let page = RecordQuery { after, limit, ..RecordQuery::of::<Project>(tenant) };
        self.runtime.list_records(page).await
    }

    /// Adds an agent to a project, and creates it if the tenant has none of that name. An existing
    /// agent stays unchanged; if a passkey is given, it must match.
    pub async fn add_agent(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
        new: NewTeamAgent,
    ) -> Result<StoredDocument<TeamAgent>, AppError> {
        self.project(tenant, project).await?;
        check_agent_name(new.name.as_deref().unwrap_or("x"))?;
        if let Some(role) = &new.role {
            check_role(role)?;
        }
        if let Some(passkey) = &new.passkey {
            check_passkey(passkey)?;
        }
        if let Some(model) = &new.model_id {
            self.tenancy.check_model_id(model.as_str()).await?;
        }
        let member = ProjectMember::new(project, &new.id);
        let membership = ProjectMembership::new(tenant.clone(), member);
        let join = RecordChange::put(&membership, ExpectedVersion::New)?;
        if let Some(agent) = self.runtime.store().load::<TeamAgent>(tenant, new.id.as_str()).await?
        {
            if let Some(passkey) = &new.passkey
                && !passkey::verify_passkey(passkey, agent.value.passkey.as_deref()).await?
            {
                return Err(AppError::Exists { kind: "agent", id: new.id.to_string() });
            }
            let mut commit = Commit::new().record(join);
            commit.appends.extend(self.runtime.audit(None, Some(&membership))?);
            match self.runtime.commit_in_tenant(tenant, commit).await {
                Ok(_) => return Ok(agent),
                Err(refused) => match AppError::from(refused) {
                    AppError::Exists { .. } => {
                        let (kind, id) = ("agent", new.id.to_string());
                        return Err(AppError::Exists { kind, id });
                    }
                    other => return Err(other),
                },
            }
        }
        let passkey = match &new.passkey {
            Some(passkey) => Some(passkey::hash(passkey).await?),
            None => None,
        };
        let agent = TeamAgent {
            name: new.name.unwrap_or_else(|| new.id.to_string()),
            id: new.id,
            tenant: tenant.clone(),
            kind: new.kind,
            rank: new.rank,
            role: new.role,
            passkey,
            model_id: new.model_id,
            spawn: new.spawn,
        };
        let make = RecordChange::put(&agent, ExpectedVersion::New)?;
        let mut commit = Commit::new().record(make).record(join);
        commit.appends.extend(self.runtime.audit(None, Some(&agent))?);
        let at = self.runtime.commit_in_tenant(tenant, commit).await?.at;
        Ok(StoredDocument { version: 1, attempts: 0, created_at: at, updated_at: at, value: agent })
    }

    pub async fn team_agent(
        &self,
        tenant: &TenantId,
        id: &AgentId,
    ) -> Result<StoredDocument<TeamAgent>, AppError> {
        let found = self.runtime.store().load::<TeamAgent>(tenant, id.as_str()).await?;
        found.ok_or_else(|| AppError::not_found("agent", id))
    }

    /// Checks that an agent belongs to a project.
    pub(super) async fn membership(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
        agent: &AgentId,
    ) -> Result<StoredDocument<ProjectMembership>, TeamError> {
        let id = ProjectMembership::id_of(&ProjectMember::new(project, agent));
        if let Some(found) = self.runtime.store().load::<ProjectMembership>(tenant, &id).await? {
            return Ok(found);
        }
        self.project(tenant, project).await?;
        let is_known =
            self.runtime.store().load::<TeamAgent>(tenant, agent.as_str()).await?.is_some();
        let code = if is_known { RefusalCode::NotInProject } else { RefusalCode::AgentNotFound };
        Err(code.because(format!("project {project} has no agent {agent}")).into())
    }

    /// The agents of a project, in the order in which they joined.
    pub async fn list_team_agents(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
        after: Option<RecordPosition>,
        limit: u32,
    ) -> Result<(Vec<StoredDocument<TeamAgent>>, Option<RecordPosition>), AppError> {
        let members =
            self.of_project::<ProjectMembership>(tenant, project, None, after, limit).await?;
        let mut agents = Vec::new();
        for member in members.0 {
            match self.team_agent(tenant, &member.value.place.agent).await {
                Ok(agent) => agents.push(agent),
                // It was removed after the page was read.
                Err(AppError::NotFound { .. }) => {}
                Err(other) => return Err(other),
            }
        }
        Ok((agents, members.1))
    }

    pub async fn create_task(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
        new: NewTask,
    ) -> Result<StoredDocument<TeamTask>, TeamError> {
        self.project(tenant, project).await?;
        check_title(&new.title)?;
        check_description(&new.description)?;
        if let Some(parent) = &new.parent_id {
            self.task(tenant, project, parent).await?;
        }
        transact("team", &new.title, || self.try_create_task(tenant, project, &new)).await
    }

    async fn try_create_task(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
        new: &NewTask,
    ) -> Result<Option<StoredDocument<TeamTask>>, TeamError> {
        let mut transaction = TeamTransaction::for_active(self, tenant).await?;
        let task = TeamTask {
            id: TaskId::mint(transaction.now, entropy()?),
            tenant: tenant.clone(),
            project: project.clone(),
            title: new.title.clone(),
            description: new.description.clone(),
            assignee: new.assignee.clone(),
            parent_id: new.parent_id.clone(),
            priority: new.priority,
            status: TaskStatus::Todo,
            session: None,
            result: None,
            given_at: Some(transaction.now),
        };
        if let Some(assignee) = &new.assignee {
            let mut membership = self.membership(tenant, project, assignee).await?;
            let cause = task.cause(transaction.now);
            transaction.set_off(self, &mut membership, Some(&cause))?;
            let member = ProjectMember::new(project, assignee);
            transaction.add_inbox_item(self, member, InboxItemKind::Task(task.id.clone())).await?;
        }
        transaction.add(&task)?;
        transaction.try_create(self, task).await
    }

    pub async fn task(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
        id: &TaskId,
    ) -> Result<StoredDocument<TeamTask>, AppError> {
        let found = self.runtime.store().load::<TeamTask>(tenant, id.as_str()).await?;
        let found = found.filter(|task| task.value.project == *project);
        found.ok_or_else(|| AppError::not_found("task", id))
    }

    pub async fn list_tasks(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
        status: Option<TaskStatus>,
        after: Option<RecordPosition>,
        limit: u32,
    ) -> Result<(Vec<StoredDocument<TeamTask>>, Option<RecordPosition>), AppError> {
        let state = status.map(|status| status.as_str().to_owned());
        self.of_project(tenant, project, state, after, limit).await
    }

    pub async fn list_delegations(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
        status: Option<DelegationStatus>,
        after: Option<RecordPosition>,
        limit: u32,
    ) -> Result<(Vec<StoredDocument<Delegation>>, Option<RecordPosition>), AppError> {
        let state = status.map(|status| status.as_str().to_owned());
        self.of_project(tenant, project, state, after, limit).await
    }

    pub async fn find_delegation(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
        id: &DelegationId,
    ) -> Result<StoredDocument<Delegation>, AppError> {
        let found = self.runtime.store().load::<Delegation>(tenant, id.as_str()).await?;
        let found = found.filter(|one| one.value.project == *project);
        found.ok_or_else(|| AppError::not_found("delegation", id))
    }

    pub async fn list_dialogues(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
        state: Option<DialogueState>,
        after: Option<RecordPosition>,
        limit: u32,
    ) -> Result<(Vec<StoredDocument<Dialogue>>, Option<RecordPosition>), AppError> {
        let state = state.map(|state| state.as_str().to_owned());
        self.of_project(tenant, project, state, after, limit).await
    }

    /// A dialogue of any project of the tenant.
    pub async fn find_dialogue(
        &self,
        tenant: &TenantId,
        id: &DialogueId,
    ) -> Result<StoredDocument<Dialogue>, AppError> {
        let found = self.runtime.store().load::<Dialogue>(tenant, id.as_str()).await?;
        found.ok_or_else(|| AppError::not_found("dialogue", id))
    }

    async fn of_project<T: Document>(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
        state: Option<String>,
        after: Option<RecordPosition>,
        limit: u32,
    ) -> Result<(Vec<StoredDocument<T>>, Option<RecordPosition>), AppError> {
        self.project(tenant, project).await?;
        self.runtime
            .list_records(RecordQuery {
                parent: Some(project.to_string()),
                state,
                after,
                limit,
                ..RecordQuery::of::<T>(tenant)
            })
            .await
    }
}
