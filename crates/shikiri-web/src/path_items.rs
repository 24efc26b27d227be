//! Access to an item in the path: a run of a tenant, a task of a project. Unless stated otherwise,
//! the use case checks whether the item exists.

use std::str::FromStr;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use shikiri_model::ids::{
    AgentId, ConversationId, DelegationId, DialogueId, KeyId, ModelId, ProjectId, RunId, ServerId,
    TaskId,
};

use crate::access_extractors::{TenantAccess, TenantManagement, path_id};
use crate::problem_response::ProblemResponse;
use crate::web_state::SharedWebState;

/// An item whose id is in a path.
pub(crate) trait PathItem {
    type Id: FromStr + Send;
    /// The name of the route's parameter.
    const PARAMETER: &'static str;
    /// Its name in errors.
    const KIND: &'static str;
}

macro_rules! path_items {
    ($($item:ident: $id:ty = $parameter:literal, $kind:literal;)+) => {$(
        pub(crate) enum $item {}

        impl PathItem for $item {
            type Id = $id;
            const PARAMETER: &'static str = $parameter;
            const KIND: &'static str = $kind;
        }
    )+};
}

path_items! {
    AgentItem: AgentId = "agent", "agent";
    ConversationItem: ConversationId = "c", "conversation";
    DelegationItem: DelegationId = "delegation", "delegation";
    DialogueItem: DialogueId = "dialogue", "dialogue";
    ExecutionItem: RunId = "e", "execution";
    KeyItem: KeyId = "key", "key";
    ModelItem: ModelId = "m", "model";
    ProjectItem: ProjectId = "p", "project";
    RunItem: RunId = "r", "run";
    ServerItem: ServerId = "s", "mcp_server";
    SkillItem: String = "name", "skill";
    TaskItem: TaskId = "task", "task";
}

pub(crate) type ConversationAccess = ItemAccess<TenantAccess, ConversationItem>;
pub(crate) type ExecutionAccess = ItemAccess<TenantAccess, ExecutionItem>;
pub(crate) type KeyManagement = ItemAccess<TenantManagement, KeyItem>;
pub(crate) type ProjectAccess = ItemAccess<TenantAccess, ProjectItem>;
pub(crate) type RunAccess = ItemAccess<TenantAccess, RunItem>;
pub(crate) type ServerAccess = ItemAccess<TenantAccess, ServerItem>;
pub(crate) type SkillAccess = ItemAccess<TenantAccess, SkillItem>;

/// An access, and the id of the item in the path.
pub(crate) struct ItemAccess<A, I: PathItem> {
    pub(crate) access: A,
    pub(crate) id: I::Id,
}

impl<A, I> FromRequestParts<SharedWebState> for ItemAccess<A, I>
where
    A: FromRequestParts<SharedWebState, Rejection = ProblemResponse> + Send,
    I: PathItem,
{
    type Rejection = ProblemResponse;

    async fn from_request_parts(
        parts: &mut Parts,
        web: &SharedWebState,
    ) -> Result<Self, ProblemResponse> {
        let access = A::from_request_parts(parts, web).await?;
        Ok(Self { access, id: parse_path_id::<I>(parts).await? })
    }
}

/// An item of a project that exists.
pub(crate) struct ProjectItemAccess<I: PathItem> {
    pub(crate) access: TenantAccess,
    pub(crate) project: ProjectId,
    pub(crate) id: I::Id,
}

impl<I: PathItem> FromRequestParts<SharedWebState> for ProjectItemAccess<I> {
    type Rejection = ProblemResponse;

    async fn from_request_parts(
        parts: &mut Parts,
        web: &SharedWebState,
    ) -> Result<Self, ProblemResponse> {
        let ProjectAccess { access, id: project } =
            ProjectAccess::from_request_parts(parts, web).await?;
        // A missing project is reported before a missing item of it.
        web.app.teams.project(&access.tenant, &project).await?;
        Ok(Self { access, project, id: parse_path_id::<I>(parts).await? })
    }
}

/// Text that cannot be an id gets the same answer as an unknown id.
pub(crate) async fn parse_path_id<I: PathItem>(
    parts: &mut Parts,
) -> Result<I::Id, ProblemResponse> {
    let id = path_id(parts, I::PARAMETER).await;
    id.parse().map_err(|_| ProblemResponse::id_not_found(I::KIND, &id))
}
