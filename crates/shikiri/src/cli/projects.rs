//! `shikiri projects create|list|show|remove`.

use clap::Subcommand;
use shikiri_app::App;
use shikiri_model::ids::ProjectId;
use shikiri_model::record::StoredDocument;
use shikiri_model::team::Project;
use shikiri_web::views::ProjectJson;

use super::id_argument::IdArgument;
use super::parts::{all_pages, none_yet, print_id, print_page, print_record};
use super::{CommonArguments, TenantArgument};
use crate::exit::Failure;
use crate::output::Output;
use crate::table::TableColumn;
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
        common: CommonArguments,
    },
    /// Show projects, oldest first
    List {
        #[command(flatten)]
        common: CommonArguments,
    },
    /// Show one project
    Show {
        /// Its id, a unique ending of it, or @last for the newest
        project: IdArgument<ProjectId>,
        #[command(flatten)]
        common: CommonArguments,
    },
    /// Remove a project with its tasks, messages and dialogues, for good; its agents' sessions end
    Remove {
        /// Its id, a unique ending of it, or @last for the newest
        project: IdArgument<ProjectId>,
        #[command(flatten)]
        tenant: TenantArgument,
    },
}

impl Command {
    pub(super) fn access(&self) -> Access {
        match self {
            Self::Create { .. } | Self::Remove { .. } => Access::Write,
            Self::List { .. } | Self::Show { .. } => Access::Read,
        }
    }
}

pub(super) async fn run(app: &App, command: Command) -> Result<(), Failure> {
    match command {
        Command::Create { project, name, common } => {
            let made = app.teams.create_project(&common.tenant.id, project, name).await?;
            print_id::<ProjectJson, _>(made, common.json, |made| made.value.id.as_str())
        }
        Command::List { common } => {
            let all = all_pages(async |after| {
                app.teams.list_projects(&common.tenant.id, after, 100).await
            });
            let all = all.await?;
            let row = |stored: &StoredDocument<Project>| {
                let Project { id, name, .. } = &stored.value;
                vec![id.to_string(), stored.created_at.to_string(), short(name, 60)]
            };
            let columns =
                [TableColumn::id("id"), TableColumn::time("created"), TableColumn::text("name")];
            let empty = none_yet("projects", false, "projects create ID");
            print_page::<ProjectJson, _>((all, None), common.json, &columns, &empty, row)
        }
        Command::Remove { project, tenant } => {
            let project = project.resolve(app, &tenant.id).await?;
            app.teams.delete_project(&tenant.id, &project).await?;
            Output::stdout().line(&format!("project {project} is removed"))
        }
        Command::Show { project, common } => {
            let project = project.resolve(app, &common.tenant.id).await?;
            let stored = app.teams.project(&common.tenant.id, &project).await?;
            print_record::<ProjectJson, _>(stored, common.json, |stored| {
                vec![
                    ("project", stored.value.id.to_string()),
                    ("name", one_line(&stored.value.name)),
                    ("created", Output::stdout().time(stored.created_at)),
                ]
            })
        }
    }
}
