//! The one file that names concrete types: which store, which agents. It opens the store and
//! brings a fresh one to life (tenant `local`; for a server, the admin key).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use shikiri_app::execution::{self, Engine, Engines};
use shikiri_app::host::Speaker;
use shikiri_app::lane::{OfflinePages, PageDriver};
use shikiri_app::run::Agent;
use shikiri_app::{App, AppOptions, Environment};
use shikiri_browser::{Bridge, BrowserOptions};
use shikiri_engines::claude_code::ClaudeCode;
use shikiri_engines::messages::Messages;
use shikiri_engines::native::Native;
use shikiri_mcp::{Extras, McpOptions};
use shikiri_sqlite::{Database, OpenError, OpenOptions};
use shikiri_store::postgres::{PostgresOptions, PostgresStore};
use shikiri_store::sqlite::{self, SqliteOptions, SqliteStore};
use shikiri_store::{Store, StoreError, SystemClock};

use crate::config::{Config, Durability};
use crate::config_lanes::Pages;
use crate::data_folder;
use crate::exit::{Exit, Failure};
use crate::hook_files::HookDisk;
use crate::player::OfflineEngine;
use crate::store_url::StoreUrl;

/// What a server offers its callers.
#[derive(Default)]
pub struct Offer {
    pub agents: Vec<Arc<dyn Agent>>,
    /// In place of the plain ones.
    pub engines: Option<Vec<Arc<dyn Engine>>>,
    /// To MCP clients, beyond the agents.
    pub extras: Extras,
    pub mcp: McpOptions,
}

/// The offer of a plain server.
pub fn offer() -> Offer {
    Offer { agents: agents(), ..Offer::default() }
}

pub fn agents() -> Vec<Arc<dyn Agent>> {
    let mut agents = shikiri_app::agents::samples();
    agents.extend(shikiri_app::lane::agents());
    agents
}

/// This process's variables that are text.
fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// What engines may see of this process's environment.
pub fn engine_environment() -> BTreeMap<String, String> {
    execution::inherited(environment())
}

/// What executions run on.
fn engines(config: &Config) -> Vec<Arc<dyn Engine>> {
    let claude_code = ClaudeCode::new(config.claude_bin.clone())
        .with_readable(config.engine_paths.clone())
        .with_hidden(config.secret_places());
    let home = std::env::home_dir();
    vec![
        Arc::new(OfflineEngine),
        Arc::new(claude_code),
        Arc::new(Native::anthropic()),
        Arc::new(Native::bedrock().at_home(home)),
    ]
}

/// Who puts questions to the providers' pages. No browser is started before the first.
fn pages(config: &Config) -> Arc<dyn PageDriver> {
    match &config.pages {
        Pages::Browser => Arc::new(Bridge::new(browser(config))),
        Pages::Offline { sent_to } => Arc::new(OfflinePages::new(sent_to.clone())),
    }
}

/// Who has models speak for the servers that a host calls.
pub fn speaker() -> Arc<dyn Speaker> {
    Arc::new(Messages)
}

/// Which browser that is done in.
pub fn browser(config: &Config) -> BrowserOptions {
    BrowserOptions {
        folder: config.data_folder(),
        url: config.browser.url.clone(),
        allow_remote: config.browser.allow_remote,
        chrome_bin: config.browser.chrome_bin.clone(),
        is_headless: config.browser.is_headless,
        keeper: None,
    }
}

/// What somebody wants with the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To look: nothing is made or migrated, and what is missing is told.
    Read,
    /// To work: what is missing is made.
    Write,
}

/// Everything a command or a server works with.
pub async fn open_app(config: &Config, offer: &Offer, access: Access) -> Result<App, Failure> {
    if access == Access::Write {
        data_folder::prepare(&config.data_folder())?;
    }
    let store = open_store(config, access).await?;
    let options = AppOptions {
        node_lease: config.node_lease,
        retention: config.retention,
        execution_timeout: config.execution_timeout,
        lock_wait: config.lock_wait,
        lock_lease: config.lock_lease,
        team: config.team.clone(),
        lanes: config.lanes.clone(),
        data: Some(config.data_folder()),
        engine_env: Environment(engine_environment()),
        ..AppOptions::default()
    };
    let engines = offer.engines.clone().unwrap_or_else(|| engines(config));
    let app = App::new(store, offer.agents.clone(), options)
        .with_engines(Engines::new(engines))
        .with_pages(pages(config))
        .with_hook_files(Arc::new(HookDisk::new(config.root.clone())));
    if access == Access::Write {
        // It looks first: a command that changes something else does not write this.
        app.ensure_local_tenant().await?;
    }
    Ok(app)
}

pub async fn open_store(config: &Config, access: Access) -> Result<Arc<dyn Store>, Failure> {
    config.store.check()?;
    match &config.store {
        StoreUrl::Sqlite(path) => {
            let path = path.clone();
            let durability = match config.durability {
                Durability::Full => sqlite::Durability::Full,
                Durability::Normal => sqlite::Durability::Normal,
            };
            let options = SqliteOptions { clock: Arc::new(SystemClock), durability };
            let opening = tokio::task::spawn_blocking(move || {
                // Kept open meanwhile, so that what was found stays where it is.
                let _found = match access {
                    Access::Read => Some(look(&path)?),
                    Access::Write => None,
                };
                SqliteStore::open(&path, options).map_err(not_opened)
            });
            let opened = opening.await.map_err(|error| Failure::told(Exit::Failed, error))?;
            Ok(Arc::new(opened?))
        }
        StoreUrl::Postgres(url) => {
            let mut options = PostgresOptions::default();
            if let Some(connections) = config.postgres_connections {
                options.max_connections = connections;
            }
            let connected = match access {
                Access::Read => PostgresStore::connect_current(url, options).await,
                Access::Write => PostgresStore::connect(url, options).await,
            };
            Ok(Arc::new(connected.map_err(not_opened)?))
        }
    }
}

/// A store that cannot be opened is unavailable, whatever the reason; the message has the next
/// step.
fn not_opened(error: StoreError) -> Failure {
    Failure::told(Exit::Unavailable, error)
}

/// The file of an embedded store, if it is there and its schema is ours.
fn look(path: &Path) -> Result<Database, Failure> {
    Database::open_reader(path, &OpenOptions::default()).map_err(|error| match error {
        OpenError::Missing(_) => {
            Failure::new(Exit::NotFound, "no data here", "start with `shikiri serve`")
        }
        error => Failure::told(Exit::Unavailable, error),
    })
}

/// Has the key in the data folder open everything. Only a server needs it: commands work on the
/// store itself.
pub async fn ensure_admin_key(app: &App, config: &Config) -> Result<(), Failure> {
    let path = config.key_file();
    let key = data_folder::admin_key(&path, || Ok(App::mint_secret()?))?;
    // On PostgreSQL, other nodes have folders and keys of their own.
    let is_embedded = matches!(config.store, StoreUrl::Sqlite(_));
    if key.is_new && is_embedded && app.count_other_admin_keys(&key.secret).await? > 0 {
        tracing::warn!(
            "{} was missing and has been made anew; the admin key that it held still opens \
             everything: run `shikiri keys rotate-admin` to end it",
            path.display()
        );
    }
    Ok(app.ensure_admin_key(&key.secret).await?)
}
