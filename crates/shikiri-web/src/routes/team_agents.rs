//! `/v1/tenants/{t}/projects/{p}/agents`

use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use shikiri_model::ids::{AgentId, ModelId};
use shikiri_model::key::SecretToken;
use shikiri_model::team::{AgentKind, AgentRank, SpawnPolicy};
use shikiri_teams::TeamAgentPatch;
use utoipa::ToSchema;

use crate::access_extractors::ActingApp;
use crate::json_extractor::{Json, some};
use crate::openapi::{FailureResponses, GuardedResponses};
use crate::path_items::{AgentItem, ProjectAccess, ProjectItemAccess};
use crate::problem_response::ProblemResponse;
use crate::query_extractor::{PageQuery, Query};
use crate::views::{AgentKindSchema, ListPage, RankSchema, SpawnSchema, TeamAgentJson};
use crate::web_state::SharedWebState;

/// An agent that is to work in a project.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewTeamAgent)]
pub(crate) struct NewTeamAgentBody {
    #[schema(value_type = String, pattern = "^[A-Za-z0-9_-]{1,100}$")]
    id: AgentId,
    /// 1 to 200 characters; its id, if left out.
    name: Option<String>,
    #[serde(default)]
    #[schema(value_type = AgentKindSchema)]
    kind: AgentKind,
    #[serde(default)]
    #[schema(value_type = RankSchema)]
    rank: AgentRank,
    /// What the agent is told of its part, up to 500 characters.
    role: Option<String>,
    /// What the agent logs in with, 1 to 1,000 characters; only a hash of it is kept.
    passkey: Option<String>,
    /// What the agent is started with, in place of the tenant's.
    #[schema(value_type = Option<String>)]
    model_id: Option<ModelId>,
    #[serde(default)]
    #[schema(value_type = SpawnSchema)]
    spawn: SpawnPolicy,
}

/// What is left out stays as it is.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = TeamAgentChange)]
pub(crate) struct TeamAgentChangeBody {
    /// 1 to 200 characters.
    name: Option<String>,
    #[schema(value_type = Option<RankSchema>)]
    rank: Option<AgentRank>,
    /// What the agent is told of its part, up to 500 characters; null for nothing.
    #[serde(default, deserialize_with = "some")]
    #[schema(value_type = Option<String>)]
    role: Option<Option<String>>,
    /// What the agent logs in with from now on; null if nobody is to log in as it. Sessions that
    /// are open go on.
    #[serde(default, deserialize_with = "some")]
    #[schema(value_type = Option<String>)]
    passkey: Option<Option<String>>,
    /// What the agent is started with; null for the tenant's.
    #[serde(default, deserialize_with = "some")]
    #[schema(value_type = Option<String>)]
    model_id: Option<Option<ModelId>>,
    #[schema(value_type = Option<SpawnSchema>)]
    spawn: Option<SpawnPolicy>,
}

/// Lets an agent work in a project, and makes it if the tenant has none of that id
#[utoipa::path(post, path = "/v1/tenants/{t}/projects/{p}/agents", tag = "teams",
    params(("t" = String, Path), ("p" = String, Path)), request_body = NewTeamAgentBody,
    responses((status = 201, description = "The agent", body = TeamAgentJson), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn add_agent(
    ProjectAccess { access, id: project }: ProjectAccess,
    ActingApp(app): ActingApp,
    Json(new): Json<NewTeamAgentBody>,
) -> Result<(StatusCode, axum::Json<TeamAgentJson>), ProblemResponse> {
    let new = shikiri_teams::NewTeamAgent {
        id: new.id,
        name: new.name,
        kind: new.kind,
        rank: new.rank,
        role: new.role,
        passkey: new.passkey.as_deref().map(SecretToken::from_caller),
        model_id: new.model_id,
        spawn: new.spawn,
    };
    let agent = app.teams.add_agent(&access.tenant, &project, new).await?;
    Ok((StatusCode::CREATED, axum::Json(agent.into())))
}

/// Lists the agents of a project in the order in which they joined
#[utoipa::path(get, path = "/v1/tenants/{t}/projects/{p}/agents", tag = "teams",
    params(("t" = String, Path), ("p" = String, Path), PageQuery),
    responses((status = 200, description = "A page of agents", body = ListPage<TeamAgentJson>), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn list_agents(
    ProjectAccess { access, id: project }: ProjectAccess,
    State(web): State<SharedWebState>,
    Query(paging): Query<PageQuery>,
) -> Result<axum::Json<ListPage<TeamAgentJson>>, ProblemResponse> {
    let (after, limit) = paging.position_and_limit()?;
    let page = web.app.teams.list_team_agents(&access.tenant, &project, after, limit).await?;
    Ok(axum::Json(ListPage::new(page)))
}

/// Shows an agent of a project
#[utoipa::path(get, path = "/v1/tenants/{t}/projects/{p}/agents/{agent}", tag = "teams",
    params(("t" = String, Path), ("p" = String, Path), ("agent" = String, Path)),
    responses((status = 200, description = "The agent", body = TeamAgentJson), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn show_agent(
    ProjectItemAccess { access, project, id }: ProjectItemAccess<AgentItem>,
    State(web): State<SharedWebState>,
) -> Result<axum::Json<TeamAgentJson>, ProblemResponse> {
    Ok(axum::Json(web.app.teams.agent_of(&access.tenant, &project, &id).await?.into()))
}

/// Changes an agent, in all its projects
#[utoipa::path(patch, path = "/v1/tenants/{t}/projects/{p}/agents/{agent}", tag = "teams",
    params(("t" = String, Path), ("p" = String, Path), ("agent" = String, Path)), request_body = TeamAgentChangeBody,
    responses((status = 200, description = "The agent", body = TeamAgentJson), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn change_agent(
    ProjectItemAccess { access, project, id }: ProjectItemAccess<AgentItem>,
    ActingApp(app): ActingApp,
    Json(change): Json<TeamAgentChangeBody>,
) -> Result<axum::Json<TeamAgentJson>, ProblemResponse> {
    let passkey = change.passkey.map(|new| new.as_deref().map(SecretToken::from_caller));
    let patch = TeamAgentPatch {
        name: change.name,
        rank: change.rank,
        role: change.role,
        passkey,
        model_id: change.model_id,
        spawn: change.spawn,
    };
    Ok(axum::Json(app.teams.change_agent(&access.tenant, &project, &id, patch).await?.into()))
}

/// Removes an agent from a project
///
/// Its sessions end, its dialogues are cancelled, its delegations fail and its open tasks are
/// blocked; all of them can still be read. An agent without another project is removed altogether.
#[utoipa::path(delete, path = "/v1/tenants/{t}/projects/{p}/agents/{agent}", tag = "teams",
    params(("t" = String, Path), ("p" = String, Path), ("agent" = String, Path)),
    responses((status = 204, description = "Removed"), GuardedResponses, FailureResponses), security(("key" = [])))]
pub(crate) async fn remove_agent(
    ProjectItemAccess { access, project, id }: ProjectItemAccess<AgentItem>,
    ActingApp(app): ActingApp,
) -> Result<StatusCode, ProblemResponse> {
    app.teams.remove_agent(&access.tenant, &project, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}
