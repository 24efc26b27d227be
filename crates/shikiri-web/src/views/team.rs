use serde::{Deserialize, Serialize};
use serde_json::Value;
use shikiri_model::ids::{AgentId, ModelId, ProjectId, TaskId};
use shikiri_model::record::Stored;
use shikiri_model::team::{AgentKind, Project, Rank, Spawn, Task, TaskStatus, TeamAgent};
use shikiri_model::time::Timestamp;
use utoipa::ToSchema;

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
    kind: AgentKindJson,
    rank: RankJson,
    /// What the agent is told of its part.
    role: Option<String>,
    /// Without one nobody can log in as this agent.
    has_passkey: bool,
    #[schema(value_type = Option<String>)]
    model_id: Option<ModelId>,
    spawn: SpawnJson,
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
    status: TaskStatusJson,
    result: Option<Value>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
}

#[derive(Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = AgentKind)]
pub enum AgentKindJson {
    #[default]
    Ai,
    Human,
}

#[derive(Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = Rank)]
pub enum RankJson {
    Manager,
    #[default]
    Worker,
}

/// Whether the server starts the agent when there is work for it.
#[derive(Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = Spawn)]
pub enum SpawnJson {
    Auto,
    #[default]
    Never,
}

#[derive(Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = TaskStatus)]
pub enum TaskStatusJson {
    Todo,
    InProgress,
    Blocked,
    Done,
}

impl From<Stored<Project>> for ProjectJson {
    fn from(stored: Stored<Project>) -> Self {
        let Project { id, name, .. } = stored.value;
        Self { id, name, created_at: stored.created_at, updated_at: stored.updated_at }
    }
}

impl From<Stored<TeamAgent>> for TeamAgentJson {
    fn from(stored: Stored<TeamAgent>) -> Self {
        let agent = stored.value;
        Self {
            id: agent.id.clone(),
            agent_id: agent.id,
            name: agent.name,
            kind: match agent.kind {
                AgentKind::Ai => AgentKindJson::Ai,
                AgentKind::Human => AgentKindJson::Human,
            },
            rank: match agent.rank {
                Rank::Manager => RankJson::Manager,
                Rank::Worker => RankJson::Worker,
            },
            role: agent.role,
            has_passkey: agent.passkey.is_some(),
            model_id: agent.model_id,
            spawn: match agent.spawn {
                Spawn::Auto => SpawnJson::Auto,
                Spawn::Never => SpawnJson::Never,
            },
            created_at: stored.created_at,
            updated_at: stored.updated_at,
        }
    }
}

impl From<Stored<Task>> for TaskJson {
    fn from(stored: Stored<Task>) -> Self {
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
            status: match task.status {
                TaskStatus::Todo => TaskStatusJson::Todo,
                TaskStatus::InProgress => TaskStatusJson::InProgress,
                TaskStatus::Blocked => TaskStatusJson::Blocked,
                TaskStatus::Done => TaskStatusJson::Done,
            },
            result: task.result,
            created_at: stored.created_at,
            updated_at: stored.updated_at,
        }
    }
}

impl From<AgentKindJson> for AgentKind {
    fn from(kind: AgentKindJson) -> Self {
        match kind {
            AgentKindJson::Ai => Self::Ai,
            AgentKindJson::Human => Self::Human,
        }
    }
}

impl From<RankJson> for Rank {
    fn from(rank: RankJson) -> Self {
        match rank {
            RankJson::Manager => Self::Manager,
            RankJson::Worker => Self::Worker,
        }
    }
}

impl From<SpawnJson> for Spawn {
    fn from(spawn: SpawnJson) -> Self {
        match spawn {
            SpawnJson::Auto => Self::Auto,
            SpawnJson::Never => Self::Never,
        }
    }
}

impl From<TaskStatusJson> for TaskStatus {
    fn from(status: TaskStatusJson) -> Self {
        match status {
            TaskStatusJson::Todo => Self::Todo,
            TaskStatusJson::InProgress => Self::InProgress,
            TaskStatusJson::Blocked => Self::Blocked,
            TaskStatusJson::Done => Self::Done,
        }
    }
}
