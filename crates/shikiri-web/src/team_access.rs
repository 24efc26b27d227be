//! As in `access`, with a project in the path and maybe something of it. Whether those exist is for
//! the use case to find out.

use std::str::FromStr;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use shikiri_model::ids::{DelegationId, DialogueId, ProjectId, TaskId};

use crate::access::{TenantAccess, path_id};
use crate::error::Problem;
use crate::state::Shared;

pub(crate) struct ProjectAccess {
    pub(crate) access: TenantAccess,
    pub(crate) project: ProjectId,
}

/// Something of a project.
pub(crate) struct InProject<T> {
    pub(crate) access: TenantAccess,
    pub(crate) project: ProjectId,
    pub(crate) id: T,
}

/// An id that stands in a path below a project.
pub(crate) trait PathId: FromStr {
    const PARAMETER: &'static str;
    const KIND: &'static str;
}

impl PathId for TaskId {
    const PARAMETER: &'static str = "task";
    const KIND: &'static str = "task";
}

impl PathId for DelegationId {
    const PARAMETER: &'static str = "delegation";
    const KIND: &'static str = "delegation";
}

impl PathId for DialogueId {
    const PARAMETER: &'static str = "dialogue";
    const KIND: &'static str = "dialogue";
}

impl FromRequestParts<Shared> for ProjectAccess {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, web: &Shared) -> Result<Self, Problem> {
        let access = TenantAccess::from_request_parts(parts, web).await?;
        let id = path_id(parts, "p").await;
        let project = id.parse().map_err(|_| Problem::missing("project", &id))?;
        Ok(Self { access, project })
    }
}

impl<T: PathId> FromRequestParts<Shared> for InProject<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, web: &Shared) -> Result<Self, Problem> {
        let ProjectAccess { access, project } =
            ProjectAccess::from_request_parts(parts, web).await?;
        let id = path_id(parts, T::PARAMETER).await;
        // A project that is not there is told before what it would hold.
        web.app.project(&access.tenant, &project).await?;
        let id = id.parse().map_err(|_| Problem::missing(T::KIND, &id))?;
        Ok(Self { access, project, id })
    }
}
