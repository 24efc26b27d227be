//! `/v1/tenants/{t}/projects/{p}/messages`

use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use shikiri_model::ids::AgentId;
use utoipa::{IntoParams, ToSchema};

use crate::error::Problem;
use crate::json::Json;
use crate::openapi::{Failures, Guarded};
use crate::query::{Paging, Query};
use crate::state::Shared;
use crate::team_access::ProjectAccess;
use crate::views::{Page, TeamMessageJson};

/// A message to an agent.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewTeamMessage {
    /// Who says it: an agent of the project, such as a person.
    #[schema(value_type = String)]
    from_agent_id: AgentId,
    #[schema(value_type = String)]
    to_agent_id: AgentId,
    /// 1 to 4,000 characters.
    content: String,
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct TeamMessagesQuery {
    /// Only messages from or to this agent.
    #[param(value_type = Option<String>)]
    agent_id: Option<AgentId>,
    /// At most this many items, 1 to 200. A page also ends after 4 MiB of them.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

/// Sends a message on behalf of an agent of the project, such as a person
#[utoipa::path(post, path = "/v1/tenants/{t}/projects/{p}/messages", tag = "teams",
    params(("t" = String, Path), ("p" = String, Path)), request_body = NewTeamMessage,
    responses((status = 201, description = "The message", body = TeamMessageJson), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn post_message(
    ProjectAccess { access, project }: ProjectAccess,
    State(web): State<Shared>,
    Json(new): Json<NewTeamMessage>,
) -> Result<(StatusCode, axum::Json<TeamMessageJson>), Problem> {
    let NewTeamMessage { from_agent_id, to_agent_id, content } = new;
    web.app.project(&access.tenant, &project).await?;
    let app = &web.app;
    let posted =
        app.post_message(&access.tenant, &project, &from_agent_id, &to_agent_id, &content).await?;
    Ok((StatusCode::CREATED, axum::Json(posted.into())))
}

/// Lists the messages that were sent outside dialogues, oldest first
#[utoipa::path(get, path = "/v1/tenants/{t}/projects/{p}/messages", tag = "teams",
    params(("t" = String, Path), ("p" = String, Path), TeamMessagesQuery),
    responses((status = 200, description = "A page of messages", body = Page<TeamMessageJson>), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn list_team_messages(
    ProjectAccess { access, project }: ProjectAccess,
    State(web): State<Shared>,
    Query(query): Query<TeamMessagesQuery>,
) -> Result<axum::Json<Page<TeamMessageJson>>, Problem> {
    let (after, limit) = Paging { limit: query.limit, cursor: query.cursor }.read()?;
    let agent = query.agent_id.as_ref();
    let page = web.app.list_team_messages(&access.tenant, &project, agent, after, limit).await?;
    Ok(axum::Json(Page::new(page)))
}
