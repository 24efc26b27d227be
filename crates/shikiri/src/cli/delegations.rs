//! `shikiri delegations list|show`.

use clap::Subcommand;
use shikiri_app::App;
use shikiri_model::ids::{DelegationId, DialogueId, TaskId};
use shikiri_model::record::StoredDocument;
use shikiri_model::team::{Delegation, DelegationStatus};
use shikiri_web::views::DelegationJson;

use super::JsonArgument;
use super::id_argument::IdArgument;
use super::parts::{or_none, print_page, print_record, word};
use super::team::ProjectArgument;
use crate::exit::Failure;
use crate::output::Output;
use crate::table::TableColumn;
use crate::text::short;

#[derive(Subcommand)]
pub(super) enum Command {
    /// Show delegations, oldest first
    List {
        /// Only those with this status
        #[arg(long, value_parser = word::<DelegationStatus>())]
        status: Option<DelegationStatus>,
        /// Show at most this many
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
        #[command(flatten)]
        project: ProjectArgument,
    },
    /// Show one delegation
    Show {
        /// Its id, a unique ending of it, or @last for the newest
        delegation: IdArgument<DelegationId>,
        #[command(flatten)]
        project: ProjectArgument,
    },
}

pub(super) async fn run(app: &App, command: Command) -> Result<(), Failure> {
    match command {
        Command::List { status, limit, project } => list(app, status, limit, &project).await,
        Command::Show { delegation, project } => {
            let found = project.find(app).await?;
            let delegation = delegation.resolve_in(app, &found).await?;
            let stored =
                app.teams.find_delegation(&found.tenant, &found.project, &delegation).await?;
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
    let page =
        app.teams.list_delegations(&found.tenant, &found.project, status, None, limit).await?;
    let row = |stored: &StoredDocument<Delegation>| {
        let delegation = &stored.value;
        vec![
            delegation.id.to_string(),
            delegation.status.as_str().to_owned(),
            delegation.agent.to_string(),
            delegation.target.to_string(),
            short(&delegation.purpose, 60),
        ]
    };
    let columns = [
        TableColumn::id("id"),
        TableColumn::state("status"),
        TableColumn::text("agent"),
        TableColumn::text("target"),
        TableColumn::text("purpose"),
    ];
    print_page::<DelegationJson, _>(
        page,
        project.json,
        &columns,
        "No delegations like that. Agents make them with the tool delegate_to_chat_session.",
        row,
    )
}

fn show(stored: StoredDocument<Delegation>, json: JsonArgument) -> Result<(), Failure> {
    print_record::<DelegationJson, _>(stored, json, |stored| {
        let delegation = &stored.value;
        let result = delegation.result.as_ref().map(|result| short(&result.to_string(), 200));
        vec![
            ("delegation", delegation.id.to_string()),
            ("status", Output::stdout().state(delegation.status.as_str())),
            ("agent", delegation.agent.to_string()),
            ("target", delegation.target.to_string()),
            ("purpose", short(&delegation.purpose, 200)),
            ("context", short(delegation.context.as_deref().unwrap_or("none"), 200)),
            ("task", or_none(delegation.task.as_ref().map(TaskId::as_str))),
            ("dialogue", or_none(delegation.dialogue.as_ref().map(DialogueId::as_str))),
            ("attempts", delegation.attempts.to_string()),
            ("result", or_none(result.as_deref())),
            ("created", Output::stdout().time(stored.created_at)),
            (
                "processed",
                delegation.processed_at.map_or("no".to_owned(), |at| Output::stdout().time(at)),
            ),
        ]
    })
}
