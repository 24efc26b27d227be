use serde::Serialize;
use serde_json::Value;
use shikiri_model::ids::{AgentId, ModelId, ProjectId, TaskId};
use shikiri_model::record::StoredDocument;
use shikiri_model::team::{
    AgentKind, AgentRank, Project, SpawnPolicy, TaskStatus, TeamAgent, TeamTask,
};
use shikiri_model::time::Timestamp;
use utoipa::ToSchema;

use super::words::{AgentKindSchema, RankSchema, SpawnSchema, TaskStatusSchema};

/// A place where agents work together.
#[derive(Serialize, ToSchema)]
#[schema(as = Project)]
pub struct ProjectJson {
    #[schema(value_type = String)]
    pub(crate) id: ProjectId,
    name: String,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
}

/// An agent of a team. Its passkey is never shown.
#[derive(Serialize, ToSchema)]
#[schema(as = TeamAgent)]
pub struct TeamAgentJson {
    #[schema(value_type = String)]
    id: AgentId,
    /// The same as `id`.
    #[schema(value_type = String)]
    agent_id: AgentId,
    name: String,
    #[schema(value_type = AgentKindSchema)]
    kind: AgentKind,
    #[schema(value_type = RankSchema)]
    rank: AgentRank,
    /// What the agent is told of its part.
    role: Option<String>,
    /// Without one nobody can log in as this agent.
    has_passkey: bool,
    #[schema(value_type = Option<String>)]
    model_id: Option<ModelId>,
    #[schema(value_type = SpawnSchema)]
    spawn: SpawnPolicy,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
}

/// Work that is assigned to an agent.
#[derive(Serialize, ToSchema)]
#[schema(as = Task)]
pub struct TaskJson {
    #[schema(value_type = String)]
    pub(crate) id: TaskId,
    /// The same as `id`.
    #[schema(value_type = String)]
    task_id: TaskId,
    #[schema(value_type = String)]
    project_id: ProjectId,
    title: String,
    description: String,
    #[schema(value_type = Option<String>)]
    assignee: Option<AgentId>,
    #[schema(value_type = Option<String>)]
    parent_id: Option<TaskId>,
    /// Higher comes first.
    priority: i32,
    #[schema(value_type = TaskStatusSchema)]
    status: TaskStatus,
    result: Option<Value>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
}

impl From<StoredDocument<Project>> for ProjectJson {
    fn from(stored: StoredDocument<Project>) -> Self {
        let Project { id, name, .. } = stored.value;
        Self { id, name, created_at: stored.created_at, updated_at: stored.updated_at }
    }
}

impl From<StoredDocument<TeamAgent>> for TeamAgentJson {
    fn from(stored: StoredDocument<TeamAgent>) -> Self {
        let agent = stored.value;
        Self {
            id: agent.id.clone(),
            agent_id: agent.id,
            name: agent.name,
            kind: agent.kind,
            rank: agent.rank,
            role: agent.role,
            has_passkey: agent.passkey.is_some(),
            model_id: agent.model_id,
            spawn: agent.spawn,
            created_at: stored.created_at,
            updated_at: stored.updated_at,
        }
    }
}

impl From<StoredDocument<TeamTask>> for TaskJson {
    fn from(stored: StoredDocument<TeamTask>) -> Self {
        let task = stored.value;
        Self {
            id: task.id.clone(),
            task_id: task.id,
            project_id: task.project,
            title: task.title,
            description: task.description,
            assignee: task.assignee,
            parent_id: task.parent_id,
            priority: task.priority,
            status: task.status,
            result: task.result,
            created_at: stored.created_at,
            updated_at: stored.updated_at,
        }
    }
}
