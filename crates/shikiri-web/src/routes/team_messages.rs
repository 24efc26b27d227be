//! `/v1/tenants/{t}/projects/{p}/messages`

use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use shikiri_model::ids::AgentId;
use utoipa::ToSchema;

use crate::json_extractor::Json;
use crate::openapi::{FailureResponses, GuardedResponses};
use crate::path_items::ProjectAccess;
use crate::problem_response::ProblemResponse;
use crate::query_extractor::{Query, list_query};
use crate::views::{ListPage, TeamMessageJson};
use crate::web_state::SharedWebState;

/// A message to an agent.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewTeamMessage)]
pub(crate) struct NewTeamMessageBody {
    /// Who says it: an agent of the project, such as a person.
    #[schema(value_type = String)]
    from_agent_id: AgentId,
    #[schema(value_type = String)]
    to_agent_id: AgentId,
    /// 1 to 4,000 characters.
    content: String,
}

list_query!(TeamMessagesQuery {
    /// Only messages from or to this agent.
    #[param(value_type = Option<String>)]
    agent_id: Option<AgentId>,
});

/// Sends a message on behalf of an agent of the project, such as a person
#[utoipa::path(post, path = "/v1/tenants/{t}/projects/{p}/messages", tag = "teams",
    params(("t" = String, Path), ("p" = String, Path)), request_body = NewTeamMessageBody,
    responses((status = 201, description = "The message", body = TeamMessageJson), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn post_message(
    ProjectAccess { access, id: project }: ProjectAccess,
    State(web): State<SharedWebState>,
    Json(new): Json<NewTeamMessageBody>,
) -> Result<(StatusCode, axum::Json<TeamMessageJson>), ProblemResponse> {
    let NewTeamMessageBody { from_agent_id, to_agent_id, content } = new;
    web.app.teams.project(&access.tenant, &project).await?;
    let app = &web.app;
    let posted = app
        .teams
        .post_message(&access.tenant, &project, &from_agent_id, &to_agent_id, &content)
        .await?;
    Ok((StatusCode::CREATED, axum::Json(posted.into())))
}

/// Lists the messages that were sent outside dialogues, oldest first
#[utoipa::path(get, path = "/v1/tenants/{t}/projects/{p}/messages", tag = "teams",
    params(("t" = String, Path), ("p" = String, Path), TeamMessagesQuery),
    responses((status = 200, description = "A page of messages", body = ListPage<TeamMessageJson>), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn list_team_messages(
    ProjectAccess { access, id: project }: ProjectAccess,
    State(web): State<SharedWebState>,
    Query(query): Query<TeamMessagesQuery>,
) -> Result<axum::Json<ListPage<TeamMessageJson>>, ProblemResponse> {
    let (after, limit) = query.position_and_limit()?;
    let agent = query.agent_id.as_ref();
    let page =
        web.app.teams.list_team_messages(&access.tenant, &project, agent, after, limit).await?;
    Ok(axum::Json(ListPage::new(page)))
}
