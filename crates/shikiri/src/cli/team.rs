//! What team commands share: the project and its owner.

use clap::Args;
use shikiri_app::App;
use shikiri_model::ids::{ProjectId, TenantId};

use super::id_argument::IdArgument;
use super::{JsonArgument, TenantArgument};
use crate::exit::Failure;

#[derive(Args, Clone)]
pub(super) struct ProjectArgument {
    /// The project; not needed where the tenant has only one
    #[arg(long, value_name = "ID")]
    project: Option<IdArgument<ProjectId>>,
    #[command(flatten)]
    pub(super) tenant: TenantArgument,
    #[command(flatten)]
    pub(super) json: JsonArgument,
}

/// A project and its tenant.
pub(super) struct Where {
    pub(super) tenant: TenantId,
    pub(super) project: ProjectId,
}

impl ProjectArgument {
    pub(super) async fn find(&self, app: &App) -> Result<Where, Failure> {
        let tenant = self.tenant.id.clone();
        if let Some(project) = &self.project {
            let project = project.resolve(app, &tenant).await?;
            app.teams.project(&tenant, &project).await?;
            return Ok(Where { tenant, project });
        }
        let (mut found, next) = app.teams.list_projects(&tenant, None, 2).await?;
        match found.pop() {
            Some(only) if found.is_empty() && next.is_none() => {
                Ok(Where { tenant, project: only.value.id })
            }
            Some(_) => {
                let what = format!("tenant {tenant} has several projects");
                let next = "name one with --project (`shikiri projects list` shows them)";
                Err(Failure::usage(what, next))
            }
            None => {
                let what = format!("tenant {tenant} has no project");
                Err(Failure::usage(what, "make one with `shikiri projects create ID`"))
            }
        }
    }
}
