//! `shikiri status`: what waits for a person, what runs, and what it costs. Also what `shikiri`
//! without a command shows inside a project.
//!
//! [`Snapshot::take`] reads the store as other commands do; `json.rs` and `text/` show it, and
//! `watch.rs` shows it again after each change.

mod json;
mod server;
mod text;
mod today;
mod watch;

use std::ffi::OsString;

use clap::Args;
use shikiri_app::{App, StatusReport};
use shikiri_model::ids::TenantId;
use shikiri_model::run::NodeProcess;

use self::json::StatusJson;
pub(super) use self::server::{ServerFinding, ServerState};
use super::{CommonArguments, Global, open};
use crate::config::{Config, Settings, Surroundings};
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::store_url::StoreUrl;
use crate::wiring::Access;

/// The width of a page that is not for a terminal.
const PAGE_WIDTH: usize = 80;
/// Longer lines are hard to read, on any terminal.
const WIDEST: usize = 120;
const NARROWEST: usize = 40;

#[derive(Args)]
pub(super) struct Arguments {
    /// Show it again after each change, until Ctrl-C; with --json one line each time
    #[arg(long, short)]
    watch: bool,
    #[command(flatten)]
    common: CommonArguments,
}

/// The words of the command line. `shikiri` alone means `shikiri status` inside a project.
pub(super) fn with_default_command(words: Vec<OsString>) -> Vec<OsString> {
    match words.len() {
        1 if is_project_here() => [words, vec!["status".into()]].concat(),
        _ => words,
    }
}

/// Whether the current folder belongs to a project that has data.
fn is_project_here() -> bool {
    let config = Config::load_for(&[], Settings::default(), &Surroundings::of_process());
    config.is_ok_and(|config| {
        let has_store = match &config.store {
            StoreUrl::Sqlite(path) => path.is_file(),
            StoreUrl::Postgres(_) => true,
        };
        config.data_folder().is_dir() && has_store
    })
}

pub(super) async fn run(global: &Global, arguments: Arguments) -> Result<(), Failure> {
    let config = global.config()?;
    let Arguments { watch, common } = arguments;
    let app = open_if_there(&config).await?;
    if watch {
        return watch::run(&config, app, &common).await;
    }
    let snapshot = Snapshot::take(app.as_ref(), &config, &common.tenant.id).await?;
    if common.json.json {
        return Output::stdout().json(&StatusJson::of(&snapshot));
    }
    let output = Output::stdout();
    let page = text::lines(&snapshot, terminal_width(), output);
    page.iter().try_for_each(|line| output.line(line))
}

/// None if the project has no data yet. Nothing is created by looking.
async fn open_if_there(config: &Config) -> Result<Option<App>, Failure> {
    match open(config, Access::Read).await {
        Ok(app) => Ok(Some(app)),
        Err(Failure::Told { exit: Exit::NotFound, .. }) => Ok(None),
        Err(other) => Err(other),
    }
}

/// Everything that is shown, as it was at one moment.
struct Snapshot {
    project: String,
    tenant: TenantId,
    server: ServerFinding,
    /// None if there is no data yet.
    report: Option<StatusReport>,
}

impl Snapshot {
    async fn take(app: Option<&App>, config: &Config, tenant: &TenantId) -> Result<Self, Failure> {
        let report = match app {
            None => None,
            Some(app) => {
                let now = app.runtime.store().now().await?;
                Some(app.status(tenant, today::began_at(now)).await?)
            }
        };
        let nodes = report.iter().flat_map(|report| &report.nodes);
        let servers = nodes.filter(|node| node.node.process == NodeProcess::Server);
        let server = ServerFinding::look(config, &servers.collect::<Vec<_>>()).await;
        let project = config.root.display().to_string();
        Ok(Self { project, tenant: tenant.clone(), server, report })
    }
}

fn terminal_width() -> usize {
    let size = console::Term::stdout().size_checked();
    size.map_or(PAGE_WIDTH, |(_, width)| usize::from(width)).clamp(NARROWEST, WIDEST)
}
