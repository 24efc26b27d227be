//! `shikiri messages send|list|show`.

use clap::Subcommand;
use shikiri_app::App;
use shikiri_model::ids::{AgentId, MessageId};
use shikiri_model::record::StoredDocument;
use shikiri_model::team::TeamMessage;
use shikiri_web::views::TeamMessageJson;

use super::id_argument::IdArgument;
use super::parts::{none_yet, print_id, print_page};
use super::team::ProjectArgument;
use crate::exit::Failure;
use crate::output::Output;
use crate::table::TableColumn;
use crate::text::{safe_text, short};
use crate::wiring::Access;

#[derive(Subcommand)]
pub(super) enum Command {
    /// Send a message on behalf of an agent of the project, such as a person, and print its id
    #[command(visible_alias = "create")]
    Send {
        /// The agent that sends it
        #[arg(long, value_name = "AGENT")]
        from: AgentId,
        /// The agent that receives it
        #[arg(long, value_name = "AGENT")]
        to: AgentId,
        /// 1 to 4,000 characters
        content: String,
        #[command(flatten)]
        project: ProjectArgument,
    },
    /// Show one message
    Show {
        /// Its id, a unique ending of it, or @last for the newest
        id: IdArgument<MessageId>,
        #[command(flatten)]
        project: ProjectArgument,
    },
    /// Show messages that were sent outside dialogues, oldest first
    List {
        /// Only those from or to this agent
        #[arg(long, value_name = "ID")]
        agent: Option<AgentId>,
        /// Show at most this many
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
        #[command(flatten)]
        project: ProjectArgument,
    },
}

impl Command {
    pub(super) fn access(&self) -> Access {
        match self {
            Self::Send { .. } => Access::Write,
            Self::Show { .. } | Self::List { .. } => Access::Read,
        }
    }
}

pub(super) async fn run(app: &App, command: Command) -> Result<(), Failure> {
    match command {
        Command::Send { from, to, content, project } => {
            let found = project.find(app).await?;
            let sent =
                app.teams.post_message(&found.tenant, &found.project, &from, &to, &content).await?;
            print_id::<TeamMessageJson, _>(sent, project.json, |sent| sent.value.id.as_str())
        }
        Command::Show { id, project } => show(app, &id, &project).await,
        Command::List { agent, limit, project } => list(app, agent.as_ref(), limit, &project).await,
    }
}

async fn show(
    app: &App,
    id: &IdArgument<MessageId>,
    project: &ProjectArgument,
) -> Result<(), Failure> {
    let found = project.find(app).await?;
    let id = id.resolve_in(app, &found).await?;
    let stored = app.teams.team_message(&found.tenant, &found.project, &id).await?;
    let output = Output::stdout();
    if project.json.json {
        return output.json(&TeamMessageJson::from(stored));
    }
    let message = &stored.value;
    let state = message
        .read_at
        .map_or_else(|| "unread".to_owned(), |at| format!("read at {}", output.time(at)));
    let at = output.time(stored.created_at);
    output.line(&format!("{at} from {} to {}, {state}", message.from, message.to))?;
    output.line(&safe_text(&message.content))
}

async fn list(
    app: &App,
    agent: Option<&AgentId>,
    limit: u32,
    project: &ProjectArgument,
) -> Result<(), Failure> {
    let found = project.find(app).await?;
    let page =
        app.teams.list_team_messages(&found.tenant, &found.project, agent, None, limit).await?;
    let row = |stored: &StoredDocument<TeamMessage>| {
        let message = &stored.value;
        let state = if message.read_at.is_some() { "read" } else { "unread" };
        vec![
            stored.created_at.to_string(),
            message.from.to_string(),
            message.to.to_string(),
            state.to_owned(),
            short(&message.content, 80),
        ]
    };
    let columns = [
        TableColumn::time("at"),
        TableColumn::text("from"),
        TableColumn::text("to"),
        TableColumn::state("state"),
        TableColumn::text("content"),
    ];
    print_page::<TeamMessageJson, _>(
        page,
        project.json,
        &columns,
        &none_yet("messages", agent.is_some(), "messages send --from ID --to ID \"Hello\""),
        row,
    )
}
