//! `/v1/tenants/{t}/projects/{p}/agents`

use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use shikiri_app::team;
use shikiri_model::ids::{AgentId, ModelId};
use shikiri_model::key::Secret;
use utoipa::ToSchema;

use crate::access::ActingApp;
use crate::error::Problem;
use crate::json::Json;
use crate::openapi::{Failures, Guarded};
use crate::query::{Paging, Query};
use crate::state::Shared;
use crate::team_access::ProjectAccess;
use crate::views::{AgentKindJson, Page, RankJson, SpawnJson, TeamAgentJson};

/// An agent that is to work in a project.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewTeamAgent {
    #[schema(value_type = String, pattern = "^[A-Za-z0-9_-]{1,100}$")]
    id: AgentId,
    /// 1 to 200 characters; its id, if left out.
    name: Option<String>,
    #[serde(default)]
    kind: AgentKindJson,
    #[serde(default)]
    rank: RankJson,
    /// What the agent is told of its part, up to 500 characters.
    role: Option<String>,
    /// What the agent logs in with, 1 to 1,000 characters; only a hash of it is kept.
    passkey: Option<String>,
    /// What the agent is started with, in place of the tenant's.
    #[schema(value_type = Option<String>)]
    model_id: Option<ModelId>,
    #[serde(default)]
    spawn: SpawnJson,
}

/// Lets an agent work in a project, and makes it if the tenant has none of that id
#[utoipa::path(post, path = "/v1/tenants/{t}/projects/{p}/agents", tag = "teams",
    params(("t" = String, Path), ("p" = String, Path)), request_body = NewTeamAgent,
    responses((status = 201, description = "The agent", body = TeamAgentJson), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn add_agent(
    ProjectAccess { access, project }: ProjectAccess,
    ActingApp(app): ActingApp,
    Json(new): Json<NewTeamAgent>,
) -> Result<(StatusCode, axum::Json<TeamAgentJson>), Problem> {
    let new = team::NewAgent {
        id: new.id,
        name: new.name,
        kind: new.kind.into(),
        rank: new.rank.into(),
        role: new.role,
        passkey: new.passkey.as_deref().map(Secret::from_caller),
        model_id: new.model_id,
        spawn: new.spawn.into(),
    };
    let agent = app.add_agent(&access.tenant, &project, new).await?;
    Ok((StatusCode::CREATED, axum::Json(agent.into())))
}

/// Lists the agents of a project in the order in which they joined
#[utoipa::path(get, path = "/v1/tenants/{t}/projects/{p}/agents", tag = "teams",
    params(("t" = String, Path), ("p" = String, Path), Paging),
    responses((status = 200, description = "A page of agents", body = Page<TeamAgentJson>), Guarded, Failures), security(("key" = [])))]
pub(crate) async fn list_agents(
    ProjectAccess { access, project }: ProjectAccess,
    State(web): State<Shared>,
    Query(paging): Query<Paging>,
) -> Result<axum::Json<Page<TeamAgentJson>>, Problem> {
    let (after, limit) = paging.read()?;
    let page = web.app.list_team_agents(&access.tenant, &project, after, limit).await?;
    Ok(axum::Json(Page::new(page)))
}
