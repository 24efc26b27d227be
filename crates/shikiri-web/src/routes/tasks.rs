//! `/v1/tenants/{t}/projects/{p}/tasks`

use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use shikiri_app::team::{self, TaskPatch};
use shikiri_model::ids::{AgentId, TaskId};
use shikiri_model::team::TaskStatus;
use utoipa::{IntoParams, ToSchema};

use super::created;
use crate::error::Problem;
use crate::json::{Json, some};
use crate::openapi::{Failures, Guarded};
use crate::query::{Paging, Query};
use crate::state::Shared;
use crate::team_access::{InProject, ProjectAccess};
use crate::views::{Page, TaskJson, TaskStatusJson};

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewTask {
    /// 1 to 500 characters on one line.
    title: String,
    /// Up to 100,000 characters.
    description: Option<String>,
    /// An agent of the project.
    #[schema(value_type = Option<String>)]
    assignee: Option<AgentId>,
    /// A task of the project that this is a part of.
    #[schema(value_type = Option<String>)]
    parent_id: Option<TaskId>,
    /// Higher comes first; 0, if left out.
    priority: Option<i32>,
}

/// What is left out stays as it is.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TaskChange {
    title: Option<String>,
    description: Option<String>,
    /// Null takes it away from whoever has it.
    #[serde(default, deserialize_with = "some")]
    #[schema(value_type = Option<String>)]
    assignee: Option<Option<AgentId>>,
    priority: Option<i32>,
    status: Option<TaskStatusJson>,
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct TasksQuery {
    /// Only tasks with this status.
    #[param(inline)]
    status: Option<TaskStatusJson>,
    /// At most this many items, 1 to 200. A page also ends after 4 MiB of them.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

/// Makes a task; the agent that it is assigned to finds it among its work
#[utoipa::path(post, path = "/v1/tenants/{t}/projects/{p}/tasks", tag = "teams",
    params(("t" = String, Path), ("p" = String, Path)), request_body = NewTask,
    responses((status = 201, description = "The new task", body = TaskJson), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn create_task(
    ProjectAccess { access, project }: ProjectAccess,
    State(web): State<Shared>,
    Json(new): Json<NewTask>,
) -> Result<Response, Problem> {
    let tenant = access.tenant;
    let new = team::NewTask {
        title: new.title,
        description: new.description.unwrap_or_default(),
        assignee: new.assignee,
        parent_id: new.parent_id,
        priority: new.priority.unwrap_or_default(),
    };
    let made = TaskJson::from(web.app.create_task(&tenant, &project, new).await?);
    Ok(created(&format!("/v1/tenants/{tenant}/projects/{project}/tasks/{}", made.id), &made))
}

/// Lists the tasks of a project, oldest first
#[utoipa::path(get, path = "/v1/tenants/{t}/projects/{p}/tasks", tag = "teams",
    params(("t" = String, Path), ("p" = String, Path), TasksQuery),
    responses((status = 200, description = "A page of tasks", body = Page<TaskJson>), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn list_tasks(
    ProjectAccess { access, project }: ProjectAccess,
    State(web): State<Shared>,
    Query(query): Query<TasksQuery>,
) -> Result<axum::Json<Page<TaskJson>>, Problem> {
    let (after, limit) = Paging { limit: query.limit, cursor: query.cursor }.read()?;
    let status = query.status.map(TaskStatus::from);
    let page = web.app.list_tasks(&access.tenant, &project, status, after, limit).await?;
    Ok(axum::Json(Page::new(page)))
}

/// Shows a task
#[utoipa::path(get, path = "/v1/tenants/{t}/projects/{p}/tasks/{task}", tag = "teams",
    params(("t" = String, Path), ("p" = String, Path), ("task" = String, Path)),
    responses((status = 200, description = "The task", body = TaskJson), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn show_task(
    InProject { access, project, id }: InProject<TaskId>,
    State(web): State<Shared>,
) -> Result<axum::Json<TaskJson>, Problem> {
    Ok(axum::Json(web.app.task(&access.tenant, &project, &id).await?.into()))
}

/// Changes a task; one that is assigned anew starts over with its new agent
#[utoipa::path(patch, path = "/v1/tenants/{t}/projects/{p}/tasks/{task}", tag = "teams",
    params(("t" = String, Path), ("p" = String, Path), ("task" = String, Path)), request_body = TaskChange,
    responses((status = 200, description = "The task", body = TaskJson), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn change_task(
    InProject { access, project, id }: InProject<TaskId>,
    State(web): State<Shared>,
    Json(change): Json<TaskChange>,
) -> Result<axum::Json<TaskJson>, Problem> {
    let patch = TaskPatch {
        title: change.title,
        description: change.description,
        assignee: change.assignee,
        priority: change.priority,
        status: change.status.map(TaskStatus::from),
    };
    let changed = web.app.change_task(&access.tenant, &project, &id, &patch).await?;
    Ok(axum::Json(changed.into()))
}
