//! `shikiri projects create|list|show`.

use clap::Subcommand;
use shikiri_app::App;
use shikiri_model::ids::ProjectId;
use shikiri_model::record::Stored;
use shikiri_model::team::Project;
use shikiri_web::views::{Page, ProjectJson};

use super::parts::{all_pages, sheet};
use super::{JsonArgument, TenantArgument};
use crate::exit::Failure;
use crate::output::Output;
use crate::text::{one_line, short};
use crate::wiring::Access;

#[derive(Subcommand)]
pub(super) enum Command {
    /// Make a project and print its id
    Create {
        /// 1 to 100 letters, digits, `_` or `-`; made up, if left out
        project: Option<ProjectId>,
        /// What people call it; its id, if left out
        #[arg(long, value_name = "TEXT")]
        name: Option<String>,
        #[command(flatten)]
        tenant: TenantArgument,
        #[command(flatten)]
        json: JsonArgument,
    },
    /// Show projects, oldest first
    List {
        #[command(flatten)]
        tenant: TenantArgument,
        #[command(flatten)]
        json: JsonArgument,
    },
    /// Show one project
    Show {
        project: ProjectId,
        #[command(flatten)]
        tenant: TenantArgument,
        #[command(flatten)]
        json: JsonArgument,
    },
}

impl Command {
    pub(super) fn access(&self) -> Access {
        match self {
            Self::Create { .. } => Access::Write,
            Self::List { .. } | Self::Show { .. } => Access::Read,
        }
    }
}

pub(super) async fn run(app: &App, command: Command) -> Result<(), Failure> {
    let output = Output::stdout();
    match command {
        Command::Create { project, name, tenant, json } => {
            let made = app.create_project(&tenant.id, project, name).await?;
            if json.json {
                return output.json(&ProjectJson::from(made));
            }
            // Alone on stdout, so that a script can take it.
            output.line(made.value.id.as_str())
        }
        Command::List { tenant, json } => {
            let all = all_pages(async |after| app.list_projects(&tenant.id, after, 100).await);
            let all = all.await?;
            if json.json {
                return output.json(&Page::<ProjectJson>::new((all, None)));
            }
            let row = |stored: &Stored<Project>| {
                let Project { id, name, .. } = &stored.value;
                vec![id.to_string(), stored.created_at.to_string(), short(name, 60)]
            };
            output.table(&["id", "created", "name"], &all.iter().map(row).collect::<Vec<_>>())
        }
        Command::Show { project, tenant, json } => {
            let stored = app.project(&tenant.id, &project).await?;
            if json.json {
                return output.json(&ProjectJson::from(stored));
            }
            sheet(&[
                ("project", stored.value.id.to_string()),
                ("name", one_line(&stored.value.name)),
                ("created", stored.created_at.to_string()),
            ])
        }
    }
}
