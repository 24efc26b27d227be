//! `shikiri lanes list|show|import|export|clean`.

use std::path::PathBuf;

use clap::Subcommand;
use shikiri_app::App;
use shikiri_model::ids::TenantId;
use shikiri_model::lane::Lane;
use shikiri_model::record::StoredDocument;
use shikiri_web::views::LaneJson;

use super::id_argument::find_lane;
use super::parts::{all_pages, or_none, print_page, print_record};
use super::{CommonArguments, JsonArgument, TenantArgument};
use crate::exit::{Exit, Failure};
use crate::lane_files::read_named;
use crate::output::{Output, note};
use crate::owner_file::write_for_owner;
use crate::table::TableColumn;
use crate::text::one_line;
use crate::wiring::Access;

#[derive(Subcommand)]
pub(super) enum Command {
    /// Show the lanes: whose they are, when they were last used, where their chats are
    List {
        /// Ended ones too, whose chats are remembered
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        common: CommonArguments,
    },
    /// Show one lane
    Show {
        /// Its name, such as claude-code-12345
        name: String,
        #[command(flatten)]
        common: CommonArguments,
    },
    /// Take in a sessions.json of version 1 or 2, whole or not at all; the file stays as it is
    Import {
        /// The sessions.json to read
        file: PathBuf,
        #[command(flatten)]
        common: CommonArguments,
    },
    /// Write the lanes as a sessions.json of version 2
    Export {
        /// Where to [default: standard output]
        file: Option<PathBuf>,
        #[command(flatten)]
        tenant: TenantArgument,
    },
    /// End the lanes whose time is over, now
    Clean,
}

impl Command {
    pub(super) fn access(&self) -> Access {
        match self {
            Self::List { .. } | Self::Show { .. } | Self::Export { .. } => Access::Read,
            Self::Import { .. } | Self::Clean => Access::Write,
        }
    }
}

pub(super) async fn run(app: &App, command: Command) -> Result<(), Failure> {
    let output = Output::stdout();
    match command {
        Command::List { all, common } => list(app, &common.tenant.id, all, common.json).await,
        Command::Show { name, common } => show(app, &common.tenant.id, &name, common.json).await,
        Command::Import { file, common } => {
            let imported = app.lanes.import_lanes(&common.tenant.id, &read_named(&file)?).await?;
            for url in &imported.left_out {
                note(&format!("shikiri: left out, because it is no chat: {}", one_line(url)));
            }
            if common.json.json {
                return output.json(&serde_json::json!({
                    "version": imported.version,
                    "imported": imported.lanes,
                    "known": imported.known,
                    "left_out": imported.left_out,
                }));
            }
            let (new, known) = (imported.lanes.len(), imported.known.len());
            output.line(&format!("{new} lanes imported, {known} were here already"))
        }
        Command::Export { file, tenant } => {
            let exported = app.lanes.export_lanes(&tenant.id).await?;
            match file {
                None => output.json(&exported),
                Some(file) => {
                    let text = format!("{exported:#}\n");
                    write_for_owner(&file, text.as_bytes()).map_err(|error| {
                        let what = format!("cannot write {}: {error}", file.display());
                        Failure::new(Exit::Failed, what, "name another file")
                    })
                }
            }
        }
        Command::Clean => {
            let ended = app.lanes.clean_lanes().await?;
            output.line(&format!("{ended} lanes have ended"))
        }
    }
}

async fn list(app: &App, tenant: &TenantId, all: bool, json: JsonArgument) -> Result<(), Failure> {
    let lanes =
        all_pages(async |after| app.lanes.list_lanes(tenant, all, after, 200).await).await?;
    let row = |stored: &StoredDocument<Lane>| {
        let lane = &stored.value;
        let chats = lane.threads.iter().filter(|(_, thread)| thread.url.is_some());
        let chats: Vec<&str> = chats.map(|(provider, _)| provider.as_str()).collect();
        vec![
            one_line(&lane.name),
            one_line(&lane.agent),
            if lane.is_ended { "ended" } else { "open" }.to_owned(),
            lane.last_access.to_string(),
            chats.join(", "),
        ]
    };
    let columns = [
        TableColumn::text("lane"),
        TableColumn::text("agent"),
        TableColumn::state("state"),
        TableColumn::time("last access"),
        TableColumn::text("chats").minor(),
    ];
    print_page::<LaneJson, _>(
        (lanes, None),
        json,
        &columns,
        "No lanes like that. One opens with an agent's first question to a provider.",
        row,
    )
}

async fn show(app: &App, tenant: &TenantId, name: &str, json: JsonArgument) -> Result<(), Failure> {
    print_record::<LaneJson, _>(find_lane(app, tenant, name).await?, json, |stored| {
        let lane = &stored.value;
        let declared = if lane.is_declared { " (declared)" } else { "" };
        let mut lines = vec![
            ("lane", one_line(&lane.name)),
            ("agent", format!("{}{declared}", one_line(&lane.agent))),
            ("subagent", or_none(lane.subagent.as_deref())),
            ("state", Output::stdout().state(if lane.is_ended { "ended" } else { "open" })),
            ("last access", Output::stdout().time(lane.last_access)),
            ("ends at", Output::stdout().time(lane.ends_at())),
        ];
        for (provider, thread) in &lane.threads {
            lines.push((provider.as_str(), or_none(thread.url.as_deref())));
        }
        lines
    })
}
