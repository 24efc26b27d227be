//! `/v1/tenants/{t}/projects/{p}/tasks`

use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use shikiri_model::ids::{AgentId, TaskId};
use shikiri_model::team::TaskStatus;
use shikiri_teams::TaskPatch;
use utoipa::ToSchema;

use super::created;
use crate::json_extractor::{Json, some};
use crate::openapi::{FailureResponses, GuardedResponses};
use crate::path_items::{ProjectAccess, ProjectItemAccess, TaskItem};
use crate::problem_response::ProblemResponse;
use crate::query_extractor::{Query, list_query};
use crate::views::{ListPage, TaskJson, TaskStatusSchema};
use crate::web_state::SharedWebState;

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewTask)]
pub(crate) struct NewTaskBody {
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
#[schema(as = TaskChange)]
pub(crate) struct TaskChangeBody {
    title: Option<String>,
    description: Option<String>,
    /// Null takes it away from whoever has it.
    #[serde(default, deserialize_with = "some")]
    #[schema(value_type = Option<String>)]
    assignee: Option<Option<AgentId>>,
    priority: Option<i32>,
    #[schema(value_type = Option<TaskStatusSchema>)]
    status: Option<TaskStatus>,
}

list_query!(TasksQuery {
    /// Only tasks with this status.
    #[param(inline, value_type = Option<TaskStatusSchema>)]
    status: Option<TaskStatus>,
});

/// Makes a task; the agent that it is assigned to finds it among its work
#[utoipa::path(post, path = "/v1/tenants/{t}/projects/{p}/tasks", tag = "teams",
    params(("t" = String, Path), ("p" = String, Path)), request_body = NewTaskBody,
    responses((status = 201, description = "The new task", body = TaskJson), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn create_task(
    ProjectAccess { access, id: project }: ProjectAccess,
    State(web): State<SharedWebState>,
    Json(new): Json<NewTaskBody>,
) -> Result<Response, ProblemResponse> {
    let tenant = access.tenant;
    let new = shikiri_teams::NewTask {
        title: new.title,
        description: new.description.unwrap_or_default(),
        assignee: new.assignee,
        parent_id: new.parent_id,
        priority: new.priority.unwrap_or_default(),
    };
    let made = TaskJson::from(web.app.teams.create_task(&tenant, &project, new).await?);
    Ok(created(&format!("/v1/tenants/{tenant}/projects/{project}/tasks/{}", made.id), &made))
}

/// Lists the tasks of a project, oldest first
#[utoipa::path(get, path = "/v1/tenants/{t}/projects/{p}/tasks", tag = "teams",
    params(("t" = String, Path), ("p" = String, Path), TasksQuery),
    responses((status = 200, description = "A page of tasks", body = ListPage<TaskJson>), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn list_tasks(
    ProjectAccess { access, id: project }: ProjectAccess,
    State(web): State<SharedWebState>,
    Query(query): Query<TasksQuery>,
) -> Result<axum::Json<ListPage<TaskJson>>, ProblemResponse> {
    let (after, limit) = query.position_and_limit()?;
    let status = query.status;
    let page = web.app.teams.list_tasks(&access.tenant, &project, status, after, limit).await?;
    Ok(axum::Json(ListPage::new(page)))
}

/// Shows a task
#[utoipa::path(get, path = "/v1/tenants/{t}/projects/{p}/tasks/{task}", tag = "teams",
    params(("t" = String, Path), ("p" = String, Path), ("task" = String, Path)),
    responses((status = 200, description = "The task", body = TaskJson), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn show_task(
    ProjectItemAccess { access, project, id }: ProjectItemAccess<TaskItem>,
    State(web): State<SharedWebState>,
) -> Result<axum::Json<TaskJson>, ProblemResponse> {
    Ok(axum::Json(web.app.teams.task(&access.tenant, &project, &id).await?.into()))
}

/// Changes a task; one that is assigned anew starts over with its new agent
#[utoipa::path(patch, path = "/v1/tenants/{t}/projects/{p}/tasks/{task}", tag = "teams",
    params(("t" = String, Path), ("p" = String, Path), ("task" = String, Path)), request_body = TaskChangeBody,
    responses((status = 200, description = "The task", body = TaskJson), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn change_task(
    ProjectItemAccess { access, project, id }: ProjectItemAccess<TaskItem>,
    State(web): State<SharedWebState>,
    Json(change): Json<TaskChangeBody>,
) -> Result<axum::Json<TaskJson>, ProblemResponse> {
    let patch = TaskPatch {
        title: change.title,
        description: change.description,
        assignee: change.assignee,
        priority: change.priority,
        status: change.status,
    };
    let changed = web.app.teams.change_task(&access.tenant, &project, &id, &patch).await?;
    Ok(axum::Json(changed.into()))
}
