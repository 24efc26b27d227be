//! `shikiri delegations list|show`.

use clap::{Subcommand, ValueEnum};
use shikiri_app::App;
use shikiri_model::ids::{DelegationId, DialogueId, TaskId};
use shikiri_model::record::Stored;
use shikiri_model::team::{Delegation, DelegationStatus};
use shikiri_web::views::{DelegationJson, Page};

use super::JsonArgument;
use super::parts::{or_none, sheet};
use super::team::{ProjectArgument, tell_of_more};
use crate::exit::Failure;
use crate::output::Output;
use crate::text::short;

#[derive(Subcommand)]
pub(super) enum Command {
    /// Show delegations, oldest first
    List {
        #[arg(long)]
        status: Option<Status>,
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
        #[command(flatten)]
        project: ProjectArgument,
    },
    /// Show one delegation
    Show {
        delegation: DelegationId,
        #[command(flatten)]
        project: ProjectArgument,
    },
}

#[derive(Clone, Copy, ValueEnum)]
pub(super) enum Status {
    Pending,
    Processing,
    Completed,
    Failed,
}

impl From<Status> for DelegationStatus {
    fn from(status: Status) -> Self {
        match status {
            Status::Pending => Self::Pending,
            Status::Processing => Self::Processing,
            Status::Completed => Self::Completed,
            Status::Failed => Self::Failed,
        }
    }
}

pub(super) async fn run(app: &App, command: Command) -> Result<(), Failure> {
    match command {
        Command::List { status, limit, project } => {
            list(app, status.map(DelegationStatus::from), limit, &project).await
        }
        Command::Show { delegation, project } => {
            let found = project.find(app).await?;
            let stored = app.find_delegation(&found.tenant, &found.project, &delegation).await?;
            show(stored, project.json)
        }
    }
}

async fn list(
    app: &App,
    status: Option<DelegationStatus>,
    limit: u32,
    project: &ProjectArgument,
) -> Result<(), Failure> {
    let found = project.find(app).await?;
    let page = app.list_delegations(&found.tenant, &found.project, status, None, limit).await?;
    let output = Output::stdout();
    if project.json.json {
        return output.json(&Page::<DelegationJson>::new(page));
    }
    let row = |stored: &Stored<Delegation>| {
        let delegation = &stored.value;
        vec![
            delegation.id.to_string(),
            delegation.status.as_str().to_owned(),
            delegation.agent.to_string(),
            delegation.target.to_string(),
            short(&delegation.purpose, 60),
        ]
    };
    let rows: Vec<_> = page.0.iter().map(row).collect();
    output.table(&["id", "status", "agent", "target", "purpose"], &rows)?;
    tell_of_more(page.1.is_some());
    Ok(())
}

fn show(stored: Stored<Delegation>, json: JsonArgument) -> Result<(), Failure> {
    if json.json {
        return Output::stdout().json(&DelegationJson::from(stored));
    }
    let delegation = &stored.value;
    let result = delegation.result.as_ref().map(|result| short(&result.to_string(), 200));
    sheet(&[
        ("delegation", delegation.id.to_string()),
        ("status", delegation.status.as_str().to_owned()),
        ("agent", delegation.agent.to_string()),
        ("target", delegation.target.to_string()),
        ("purpose", short(&delegation.purpose, 200)),
        ("context", short(delegation.context.as_deref().unwrap_or("none"), 200)),
        ("task", or_none(delegation.task.as_ref().map(TaskId::as_str))),
        ("dialogue", or_none(delegation.dialogue.as_ref().map(DialogueId::as_str))),
        ("attempts", delegation.attempts.to_string()),
        ("result", or_none(result.as_deref())),
        ("created", stored.created_at.to_string()),
        ("processed", delegation.processed_at.map_or("no".to_owned(), |at| at.to_string())),
    ])
}
