//! The only file that names concrete types for the store and the agents. It opens the store and
//! initialises a new one (tenant `local`; for a server, the admin key).

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use shikiri_app::{App, AppOptions};
use shikiri_browser::{BrowserBridge, BrowserOptions};
use shikiri_engines::claude_code::ClaudeCodeEngine;
use shikiri_engines::claude_login::ClaudeLogin;
use shikiri_engines::messages::MessagesSamplingModel;
use shikiri_engines::native::NativeEngine;
use shikiri_executions::execution::{self, Engine, EngineRegistry};
use shikiri_executions::{EnvironmentVariables, ExecutionOptions};
use shikiri_host::SamplingModel;
use shikiri_lanes::{LaneRuntime, OfflinePages, PageDriver};
use shikiri_mcp::{McpExtras, McpOptions};
use shikiri_model::audit::{AuditActor, AuditOrigin};
use shikiri_model::confinement::ConfinementPolicy;
use shikiri_model::key::KeyScope;
use shikiri_runtime::RuntimeOptions;
use shikiri_runtime::run::DurableAgent;
use shikiri_runtime::sealing::{SealingError, SealingKeys};
use shikiri_sqlite::{DatabaseOptions, OpenError, SqliteDatabase};
use shikiri_store::postgres::{PostgresOptions, PostgresStore};
use shikiri_store::sqlite::{self, SqliteOptions, SqliteStore};
use shikiri_store::{Store, StoreError, SystemClock};
use shikiri_tenancy::{ConnectionOptions, Tenancy};

use crate::config::{Config, Durability, Pages};
use crate::exit::{Exit, Failure};
use crate::hook_files::HookDisk;
use crate::player::OfflineEngine;
use crate::store_url::StoreUrl;
use crate::trust::FileRequest;
use crate::{data_folder, trust_audit};

/// Where other programs keep the user's credentials.
const PRIVATE_HOME_FILES: [&str; 11] = [
    ".aws",
    // Not all of `.claude`, because the CLI itself may be installed there.
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
    pub agents: Vec<Arc<dyn DurableAgent>>,
    /// Replaces the default engines.
    pub engines: Option<Vec<Arc<dyn Engine>>>,
    /// Additional tools for MCP clients.
    pub extras: McpExtras,
    pub mcp: McpOptions,
}

/// What a normal server offers.
pub fn offer(config: &Config) -> Offer {
    let agents = if config.sample_agents { shikiri_agents::samples() } else { Vec::new() };
    Offer { agents, ..Offer::default() }
}

/// The environment variables of this process that are valid text.
fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// The part of this process's environment that engines may see.
pub fn engine_environment() -> BTreeMap<String, String> {
    execution::inherited_environment(environment())
}

/// What a process offers whose only engine is Claude Code with a person's own login.
pub fn offer_with_login(config: &Config, login: ClaudeLogin) -> Offer {
    let claude_code: Arc<dyn Engine> = Arc::new(claude_code(config).with_login(login));
    Offer { engines: Some(vec![claude_code]), ..offer(config) }
}

/// The engines of executions.
fn engines(config: &Config) -> Vec<Arc<dyn Engine>> {
    let claude_code = claude_code(config);
    let home = std::env::home_dir();
    vec![
        Arc::new(OfflineEngine),
        Arc::new(claude_code),
        Arc::new(NativeEngine::anthropic()),
        Arc::new(NativeEngine::bedrock().at_home(home)),
    ]
}

/// Claude Code with this configuration.
pub fn claude_code(config: &Config) -> ClaudeCodeEngine {
    ClaudeCodeEngine::new(config.claude_bin.clone())
        .with_data(config.data_folder())
        .at_home(std::env::home_dir())
        .with_limits(config.engine_limits)
        .with_readable(config.engine_paths.clone())
        .with_hidden([config.secret_places(), private_home_files()].concat())
}

/// Credentials of the operator. A run can read the CLI's folder, which may be the operator's home.
fn private_home_files() -> Vec<PathBuf> {
    let home = std::env::home_dir().into_iter();
    home.flat_map(|home| PRIVATE_HOME_FILES.map(|file| home.join(file))).collect()
}

/// The driver that asks providers. It starts no browser before the first question.
fn pages(config: &Config) -> Arc<dyn PageDriver> {
    match &config.pages {
        Pages::Browser => Arc::new(bridge(config)),
        Pages::Offline { sent_to } => Arc::new(OfflinePages::new(sent_to.clone())),
    }
}

/// The browser bridge, with our descriptions of the providers' pages or those of a trusted project
/// file.
pub fn bridge(config: &Config) -> BrowserBridge {
    let trust = config.trust.clone();
    BrowserBridge::new(browser(config)).with_description_check(Arc::new(move |text: &str| {
        trust.accepts(&FileRequest::providers(text)).unwrap_or(false)
    }))
}

/// The model that answers the sampling requests of servers.
pub fn speaker() -> Arc<dyn SamplingModel> {
    Arc::new(MessagesSamplingModel::at_home(std::env::home_dir()))
}

/// The browser in which providers are asked.
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

/// The person at the command line. The user id comes from the system, the name from the
/// environment.
pub fn person() -> AuditOrigin {
    let uid = rustix::process::getuid().as_raw();
    let user = match std::env::var("USER") {
        Ok(name) => format!("{name} (uid {uid})"),
        Err(_) => format!("uid {uid}"),
    };
    AuditOrigin { actor: AuditActor::Cli { user }, from: None }
}

/// How a command uses the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read only: creates and migrates nothing, and reports what is missing.
    Read,
    /// Creates what is missing.
    Write,
}

/// Opens everything that a command or a server works with.
pub async fn open_app(config: &Config, offer: &Offer, access: Access) -> Result<App, Failure> {
    trust_audit::record(config, config.trust.take_acts()).await;
    if access == Access::Write {
        data_folder::prepare(&config.data_folder())?;
    }
    let store = open_store(config, access).await?;
    let options = AppOptions {
        runtime: RuntimeOptions { data: Some(config.data_folder()), ..config.runtime.clone() },
        connections: ConnectionOptions::default(),
        executions: ExecutionOptions {
            engine_env: EnvironmentVariables(engine_environment()),
            confinement_policy: ConfinementPolicy {
                is_remote: config.allow_remote || !config.listen.ip().is_loopback(),
                accepts_unconfined: config.unconfined_engines,
            },
            ..config.executions.clone()
        },
        team: config.team.clone(),
        lanes: config.lanes.clone(),
    };
    let engines = offer.engines.clone().unwrap_or_else(|| engines(config));
    let lanes = Arc::new(LaneRuntime::new(pages(config), config.lanes.clone()));
    let agents = [offer.agents.clone(), shikiri_lanes::agents(&lanes)].concat();
    let app = App::new(store, agents, options)
        .with_engines(EngineRegistry::new(engines))
        .with_lanes(lanes)
        .with_sealing(Arc::new(SealingKeys::new(config.sealing_key())))
        .with_hook_files(Arc::new(HookDisk::new(config.root.clone())));
    if access == Access::Write {
        // Reads first, so that a command for something else does not write this.
        app.tenancy.ensure_local_tenant().await?;
    }
    Ok(app)
}

pub async fn open_store(config: &Config, access: Access) -> Result<Arc<dyn Store>, Failure> {
    config.store.check()?;
    match &config.store {
        StoreUrl::Sqlite(path) => {
            let path = path.clone();
            let durability = match config.durability {
                Durability::Full => sqlite::SqliteDurability::Full,
                Durability::Normal => sqlite::SqliteDurability::Normal,
            };
            let options = SqliteOptions { clock: Arc::new(SystemClock), durability };
            let opening = tokio::task::spawn_blocking(move || {
                // Kept open, so that the inspected file stays the same.
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

/// A store that cannot be opened is unavailable, for whatever reason. The message names the next
/// step.
fn not_opened(error: StoreError) -> Failure {
    Failure::told(Exit::Unavailable, error)
}

/// Opens an embedded store's file if it exists and has our schema.
fn look(path: &Path) -> Result<SqliteDatabase, Failure> {
    SqliteDatabase::open_reader(path, &DatabaseOptions::default()).map_err(|error| match error {
        OpenError::Missing(_) => {
            Failure::new(Exit::NotFound, "no data here", "start with `shikiri serve`")
        }
        error => Failure::told(Exit::Unavailable, error),
    })
}

/// Makes this node's sealing key the store's, and seals all secrets in it.
pub async fn ensure_sealed(app: &App) -> Result<(), Failure> {
    app.runtime.ensure_sealed().await.map_err(not_sealed)
}

pub fn not_sealed(error: SealingError) -> Failure {
    match error {
        SealingError::Store(error) => error.into(),
        error if error.is_about_the_key() => Failure::told(Exit::Refused, error),
        error => Failure::told(Exit::Failed, error),
    }
}

/// Makes the key in the data folder the admin key. Only a server needs it: commands use the store
/// directly.
pub async fn ensure_admin_key(app: &App, config: &Config) -> Result<(), Failure> {
    let path = config.key_file();
    if data_folder::read_key(&path)?.is_none() {
        let _lock = lock_data_folder(config).await?;
        if data_folder::read_key(&path)?.is_none() {
            make_admin_key(app, config, &path).await?;
        }
    }
    // Another process may have been first: the key in the file counts, not ours.
    let secret = data_folder::read_key(&path)?.ok_or_else(|| {
        let what = format!("{} disappeared while it was made", path.display());
        Failure::new(Exit::Failed, what, "start again")
    })?;
    match app.tenancy.key_of(&secret).await? {
        Some(key) if key.scope == KeyScope::Admin => Ok(()),
        // The key belongs to a damaged store, which this one replaces.
        None if is_replacement(config)
            && app.tenancy.count_other_admin_keys(&secret).await? == 0 =>
        {
            Ok(app.tenancy.ensure_admin_key(&secret).await?)
        }
        _ => Err(data_folder::unknown_key(&path)),
    }
}

/// The store knows a key before its file exists. So a file with an unknown key comes from another
/// user.
async fn make_admin_key(app: &App, config: &Config, path: &Path) -> Result<(), Failure> {
    let secret = Tenancy::mint_secret()?;
    // On PostgreSQL, other nodes have their own folders and keys.
    let is_embedded = matches!(config.store, StoreUrl::Sqlite(_));
    let others = if is_embedded { app.tenancy.count_other_admin_keys(&secret).await? } else { 0 };
    app.tenancy.ensure_admin_key(&secret).await?;
    if !data_folder::make_admin_key(path, &secret)? {
        return Ok(app.tenancy.revoke_admin_key(&secret).await?);
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
        // The lock is held for one commit.
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
