//! The one file that names concrete types: which store, which agents. It opens the store and
//! brings a fresh one to life (tenant `local`; for a server, the admin key).

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use shikiri_app::execution::{self, Engine, Engines};
use shikiri_app::host::Speaker;
use shikiri_app::lane::{OfflinePages, PageDriver};
use shikiri_app::run::Agent;
use shikiri_app::sealing::{SealingError, SealingKeys};
use shikiri_app::{App, AppOptions, Environment};
use shikiri_browser::{Bridge, BrowserOptions};
use shikiri_engines::claude_code::ClaudeCode;
use shikiri_engines::claude_login::ClaudeLogin;
use shikiri_engines::messages::Messages;
use shikiri_engines::native::Native;
use shikiri_mcp::{Extras, McpOptions};
use shikiri_model::audit::{Actor, AuditOrigin};
use shikiri_model::confinement::ConfinementPolicy;
use shikiri_model::key::KeyScope;
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
use crate::trust::FileRequest;
use crate::trust_audit;

/// Where people's own programs keep credentials.
const PRIVATE_HOME_FILES: [&str; 11] = [
    ".aws",
    // Not all of `.claude`: the CLI itself may be installed there.
    ".claude.json",
    ".claude/.credentials.json",
    ".config/gcloud",
    ".config/gh",
    ".docker",
    ".git-credentials",
    ".gnupg",
    ".kube",
    ".netrc",
    ".ssh",
];

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

/// The offer of a process whose only engine is Claude Code with a person's own login.
pub fn offer_with_login(config: &Config, login: ClaudeLogin) -> Offer {
    let claude_code: Arc<dyn Engine> = Arc::new(claude_code(config).with_login(login));
    Offer { engines: Some(vec![claude_code]), ..offer() }
}

/// What executions run on.
fn engines(config: &Config) -> Vec<Arc<dyn Engine>> {
    let claude_code = claude_code(config);
    let home = std::env::home_dir();
    vec![
        Arc::new(OfflineEngine),
        Arc::new(claude_code),
        Arc::new(Native::anthropic()),
        Arc::new(Native::bedrock().at_home(home)),
    ]
}

/// Claude Code as this configuration wants it run.
pub fn claude_code(config: &Config) -> ClaudeCode {
    ClaudeCode::new(config.claude_bin.clone())
        .with_data(config.data_folder())
        .at_home(std::env::home_dir())
        .with_limits(config.engine_limits)
        .with_readable(config.engine_paths.clone())
        .with_hidden([config.secret_places(), private_home_files()].concat())
}

/// Credentials of whoever runs this. A run can read the folder of the CLI, which may be their home.
fn private_home_files() -> Vec<PathBuf> {
    let home = std::env::home_dir().into_iter();
    home.flat_map(|home| PRIVATE_HOME_FILES.map(|file| home.join(file))).collect()
}

/// Who puts questions to the providers' pages. No browser is started before the first.
fn pages(config: &Config) -> Arc<dyn PageDriver> {
    match &config.pages {
        Pages::Browser => Arc::new(bridge(config)),
        Pages::Offline { sent_to } => Arc::new(OfflinePages::new(sent_to.clone())),
    }
}

/// What puts questions to providers' pages, as they are described by us or by a file of the project
/// that somebody agreed to.
pub fn bridge(config: &Config) -> Bridge {
    let trust = config.trust.clone();
    Bridge::new(browser(config)).with_description_check(Arc::new(move |text: &str| {
        trust.accepts(&FileRequest::providers(text)).unwrap_or(false)
    }))
}

/// Who has models speak for the servers that a host calls.
pub fn speaker() -> Arc<dyn Speaker> {
    Arc::new(Messages::at_home(std::env::home_dir()))
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

/// The person at the command line. The number is the system's word, the name the person's own.
pub fn person() -> AuditOrigin {
    let uid = rustix::process::getuid().as_raw();
    let user = match std::env::var("USER") {
        Ok(name) => format!("{name} (uid {uid})"),
        Err(_) => format!("uid {uid}"),
    };
    AuditOrigin { actor: Actor::Cli { user }, from: None }
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
    trust_audit::record(config, config.trust.take_acts()).await;
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
        confinement_policy: ConfinementPolicy {
            is_remote: config.allow_remote || !config.listen.ip().is_loopback(),
            accepts_unconfined: config.unconfined_engines,
        },
        ..AppOptions::default()
    };
    let engines = offer.engines.clone().unwrap_or_else(|| engines(config));
    let app = App::new(store, offer.agents.clone(), options)
        .with_engines(Engines::new(engines))
        .with_pages(pages(config))
        .with_sealing(Arc::new(SealingKeys::new(config.sealing_key())))
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

/// Has this node's sealing key be the store's, and everything secret in it sealed.
pub async fn ensure_sealed(app: &App) -> Result<(), Failure> {
    app.ensure_sealed().await.map_err(not_sealed)
}

pub fn not_sealed(error: SealingError) -> Failure {
    match error {
        SealingError::Store(error) => error.into(),
        error if error.is_about_the_key() => Failure::told(Exit::Refused, error),
        error => Failure::told(Exit::Failed, error),
    }
}

/// Has the key in the data folder open everything. Only a server needs it: commands work on the
/// store itself.
pub async fn ensure_admin_key(app: &App, config: &Config) -> Result<(), Failure> {
    let path = config.key_file();
    if data_folder::read_key(&path)?.is_none() {
        let _lock = lock_data_folder(config).await?;
        if data_folder::read_key(&path)?.is_none() {
            make_admin_key(app, config, &path).await?;
        }
    }
    // Another process may have been first: the file decides, not what we made.
    let secret = data_folder::read_key(&path)?.ok_or_else(|| {
        let what = format!("{} disappeared while it was made", path.display());
        Failure::new(Exit::Failed, what, "start again")
    })?;
    match app.key_of(&secret).await? {
        Some(key) if key.scope == KeyScope::Admin => Ok(()),
        // The store that knew it was damaged, and this one was made in its place.
        None if is_replacement(config) && app.count_other_admin_keys(&secret).await? == 0 => {
            Ok(app.ensure_admin_key(&secret).await?)
        }
        _ => Err(data_folder::unknown_key(&path)),
    }
}

/// The store knows a key before its file is there: a file whose key the store does not know was
/// put there by somebody else.
async fn make_admin_key(app: &App, config: &Config, path: &Path) -> Result<(), Failure> {
    let secret = App::mint_secret()?;
    // On PostgreSQL, other nodes have folders and keys of their own.
    let is_embedded = matches!(config.store, StoreUrl::Sqlite(_));
    let others = if is_embedded { app.count_other_admin_keys(&secret).await? } else { 0 };
    app.ensure_admin_key(&secret).await?;
    if !data_folder::make_admin_key(path, &secret)? {
        return Ok(app.revoke_admin_key(&secret).await?);
    }
    if others > 0 {
        tracing::warn!(
            "{} was missing and has been made anew; the admin key that it held still opens \
             everything: run `shikiri keys rotate-admin` to end it",
            path.display()
        );
    }
    Ok(())
}

async fn lock_data_folder(config: &Config) -> Result<File, Failure> {
    let folder = config.data_folder();
    loop {
        if let Some(lock) = data_folder::try_lock(&folder)? {
            return Ok(lock);
        }
        // It is held for one commit.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Whether a damaged store was set aside beside this one.
fn is_replacement(config: &Config) -> bool {
    match &config.store {
        StoreUrl::Sqlite(path) => !data_folder::damaged_copies(path).is_empty(),
        StoreUrl::Postgres(_) => false,
    }
}
