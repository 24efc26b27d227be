//! What commands about teams have in common: whose project.

use clap::Args;
use shikiri_app::App;
use shikiri_model::ids::{ProjectId, TenantId};

use super::{JsonArgument, TenantArgument};
use crate::exit::Failure;
use crate::output::note;

#[derive(Args, Clone)]
pub(super) struct ProjectArgument {
    /// The project; not needed where the tenant has only one
    #[arg(long, value_name = "ID")]
    project: Option<ProjectId>,
    #[command(flatten)]
    pub(super) tenant: TenantArgument,
    #[command(flatten)]
    pub(super) json: JsonArgument,
}

/// A project and whose it is.
pub(super) struct Where {
    pub(super) tenant: TenantId,
    pub(super) project: ProjectId,
}

impl ProjectArgument {
    pub(super) async fn find(&self, app: &App) -> Result<Where, Failure> {
        let tenant = self.tenant.id.clone();
        if let Some(project) = &self.project {
            app.project(&tenant, project).await?;
            return Ok(Where { tenant, project: project.clone() });
        }
        let (mut found, next) = app.list_projects(&tenant, None, 2).await?;
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

pub(super) fn tell_of_more(is_more: bool) {
    if is_more {
        note("there are more: raise --limit");
    }
}
