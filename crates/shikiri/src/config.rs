//! Configuration. A flag wins over the environment, that over `<root>/shikiri.toml` (its guarded
//! keys after trust), that over `$XDG_CONFIG_HOME/shikiri/config.toml`, and that over the default.
//! Each source becomes a layer of optional values; here they are laid over each other and checked,
//! and a complaint names the source.

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use shikiri_app::lane::LaneOptions;
use shikiri_model::team::TeamLimits;
use shikiri_sandbox::SandboxLimits;

use crate::config_browser::{BrowserSettings, has_display};
use crate::config_lanes::{Loose, Pages};
use crate::config_layers::{Layer, Origin, environment_layer, file_layer};
use crate::config_project::{find_root, project_layer, require_providers};
use crate::data_folder;
use crate::env_vars::{self, EnvVar};
use crate::exit::{Exit, Failure};
use crate::store_url::StoreUrl;
use crate::trust::{AskPerson, ConfigUse, ProjectTrust, ask_at_terminal};

pub const DEFAULT_LISTEN: &str = "127.0.0.1:7420";
const PROJECT_FILE: &str = "shikiri.toml";
const USER_FILE: &str = "shikiri/config.toml";
const DAY: Duration = Duration::from_secs(24 * 3_600);

/// What one source says; the keys of the configuration files.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    pub store: Option<String>,
    pub listen: Option<String>,
    pub allow_remote: Option<bool>,
    pub allowed_hosts: Option<Vec<String>>,
    pub metrics_public: Option<bool>,
    pub max_connections: Option<usize>,
    pub max_streams: Option<usize>,
    pub node_lease_seconds: Option<f64>,
    pub retention_days: Option<f64>,
    pub execution_timeout_seconds: Option<f64>,
    pub lock_wait_seconds: Option<f64>,
    pub lock_lease_seconds: Option<f64>,
    pub dialogue_pending_seconds: Option<f64>,
    pub dialogue_idle_seconds: Option<f64>,
    pub session_seconds: Option<f64>,
    pub chat_idle_seconds: Option<f64>,
    pub delegation_claim_seconds: Option<f64>,
    pub delegation_depth: Option<u32>,
    pub delegation_seconds: Option<f64>,
    pub spawn_guard_seconds: Option<f64>,
    pub max_spawns: Option<u32>,
    pub session_ttl_minutes: Option<Loose>,
    pub max_agents: Option<Loose>,
    pub max_questions: Option<u32>,
    pub max_queued_questions: Option<usize>,
    pub question_wait_seconds: Option<f64>,
    pub pages: Option<String>,
    pub claude_bin: Option<String>,
    pub engine_paths: Option<Vec<PathBuf>>,
    pub engine_memory_mb: Option<u64>,
    pub engine_processes: Option<u64>,
    pub engine_file_mb: Option<u64>,
    pub engine_open_files: Option<u64>,
    pub unconfined_engines: Option<bool>,
    pub browser_url: Option<String>,
    pub browser_allow_remote: Option<bool>,
    pub browser_headless: Option<bool>,
    pub chrome_bin: Option<String>,
    pub durability: Option<Durability>,
    pub postgres_connections: Option<u32>,
    pub log: Option<String>,
    pub log_format: Option<LogFormat>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

/// When a commit to the embedded store counts as done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    #[default]
    Full,
    Normal,
}

/// The settings that hold, all checked.
#[derive(Clone, Debug)]
pub struct Config {
    /// The project's folder.
    pub root: PathBuf,
    pub store: StoreUrl,
    pub listen: SocketAddr,
    pub allow_remote: bool,
    pub allowed_hosts: Vec<String>,
    pub metrics_public: bool,
    pub max_connections: Option<usize>,
    pub max_streams: Option<usize>,
    pub node_lease: Duration,
    pub retention: Duration,
    pub execution_timeout: Duration,
    pub lock_wait: Duration,
    pub lock_lease: Duration,
    pub team: TeamLimits,
    pub lanes: LaneOptions,
    pub pages: Pages,
    /// Where the Claude Code program is, if not in PATH.
    pub claude_bin: Option<PathBuf>,
    /// What Claude Code may read, besides its own folders and the system's programs.
    pub engine_paths: Vec<PathBuf>,
    /// What one run of Claude Code may use up.
    pub engine_limits: SandboxLimits,
    /// Engines may work for any tenant, however little this machine can confine them.
    pub unconfined_engines: bool,
    pub browser: BrowserSettings,
    pub durability: Durability,
    pub postgres_connections: Option<u32>,
    /// With the key that seals secrets, if not in the data folder.
    pub sealing_key_file: Option<PathBuf>,
    /// What to log; the command decides if nobody says.
    pub log: Option<String>,
    pub log_format: LogFormat,
    /// Whether the project's own files count.
    pub trust: ProjectTrust,
}

/// The process's surroundings, passed in so that tests can make them up.
pub struct Surroundings<'a> {
    pub variable: &'a dyn Fn(&str) -> Option<OsString>,
    pub current_folder: Option<PathBuf>,
    /// Whom to ask whether a project's files may be followed.
    pub ask: AskPerson,
}

impl Surroundings<'_> {
    pub fn of_process() -> Self {
        Self {
            variable: &|name| std::env::var_os(name),
            current_folder: std::env::current_dir().ok(),
            ask: ask_at_terminal,
        }
    }

    /// An empty variable counts as none.
    pub fn get(&self, variable: EnvVar) -> Option<OsString> {
        (self.variable)(variable.name).filter(|value| !value.is_empty())
    }
}

impl Config {
    /// For a command that may use all of it.
    pub fn load(flags: Settings, surroundings: &Surroundings<'_>) -> Result<Self, Failure> {
        Self::load_for(ConfigUse::ALL, flags, surroundings)
    }

    /// For a command that uses these parts. Fails if they would come from a project's files that
    /// nobody agreed to; what is not used does not come from there either.
    pub fn load_for(
        uses: &[ConfigUse],
        flags: Settings,
        surroundings: &Surroundings<'_>,
    ) -> Result<Self, Failure> {
        Self::load_at(project_root(surroundings)?, uses, flags, surroundings)
    }

    /// The same for the project in this folder.
    pub(crate) fn load_at(
        root: PathBuf,
        uses: &[ConfigUse],
        flags: Settings,
        surroundings: &Surroundings<'_>,
    ) -> Result<Self, Failure> {
        let trust = ProjectTrust::new(&root, surroundings)?;
        let current = surroundings.current_folder.clone().unwrap_or_else(|| root.clone());
        // From the environment alone: a project's file must not say where keys lie.
        let sealing_key = surroundings.get(env_vars::SEALING_KEY_FILE);
        let sealing_key = sealing_key.map(|path| current.join(path));
        let mut layers = vec![
            Layer { origin: Origin::Flag, settings: flags, folder: current.clone() },
            environment_layer(surroundings, current)?,
        ];
        layers.extend(project_layer(&root.join(PROJECT_FILE), &root, &layers, uses, &trust)?);
        if let Some(folder) = user_folder(surroundings) {
            layers.extend(file_layer(&folder.join(USER_FILE))?);
        }
        let config = Self::resolve(root, &Layers(layers), has_display(surroundings), trust)?;
        if !uses.is_empty() {
            data_folder::check(&config.root)?;
        }
        if uses.contains(&ConfigUse::Browser) && config.pages == Pages::Browser {
            require_providers(&config.trust)?;
        }
        Ok(Self { sealing_key_file: sealing_key, ..config })
    }

    fn resolve(
        root: PathBuf,
        layers: &Layers,
        has_display: bool,
        trust: ProjectTrust,
    ) -> Result<Self, Failure> {
        Ok(Self {
            store: layers.store(&root)?,
            listen: layers.listen()?,
            allow_remote: layers.plain(|s| s.allow_remote).unwrap_or(false),
            allowed_hosts: layers.plain(|s| s.allowed_hosts.clone()).unwrap_or_default(),
            metrics_public: layers.plain(|s| s.metrics_public).unwrap_or(false),
            max_connections: layers.count("max_connections", |s| s.max_connections)?,
            max_streams: layers.count("max_streams", |s| s.max_streams)?,
            node_lease: layers
                .seconds("node_lease_seconds", |s| s.node_lease_seconds)?
                .unwrap_or(Duration::from_secs(15)),
            retention: layers
                .span("retention_days", |s| s.retention_days, DAY)?
                .unwrap_or(30 * DAY),
            execution_timeout: layers
                .seconds("execution_timeout_seconds", |s| s.execution_timeout_seconds)?
                .unwrap_or(Duration::from_secs(300)),
            lock_wait: layers
                .seconds("lock_wait_seconds", |s| s.lock_wait_seconds)?
                .unwrap_or(Duration::from_secs(5)),
            lock_lease: layers
                .seconds("lock_lease_seconds", |s| s.lock_lease_seconds)?
                .unwrap_or(Duration::from_secs(600)),
            team: layers.team()?,
            lanes: layers.lanes(&root)?,
            pages: layers.pages()?,
            claude_bin: layers
                .find(|s| s.claude_bin.clone())
                .map(|(path, layer)| layer.folder.join(path)),
            engine_paths: layers
                .find(|s| s.engine_paths.clone())
                .map(|(paths, layer)| paths.iter().map(|path| layer.folder.join(path)).collect())
                .unwrap_or_default(),
            engine_limits: layers.engine_limits(),
            unconfined_engines: layers.unconfined_engines(),
            browser: layers.browser(has_display),
            durability: layers.plain(|s| s.durability).unwrap_or_default(),
            postgres_connections: layers.plain(|s| s.postgres_connections),
            sealing_key_file: None,
            log: layers.plain(|s| s.log.clone()),
            log_format: layers.plain(|s| s.log_format).unwrap_or_default(),
            trust,
            root,
        })
    }

    /// Where this project's data lies.
    pub fn data_folder(&self) -> PathBuf {
        self.root.join(".shikiri")
    }

    /// What only the server itself may read: its data, and files that may hold passwords.
    pub fn secret_places(&self) -> Vec<PathBuf> {
        let mut places = vec![self.data_folder(), self.root.join(PROJECT_FILE)];
        places.extend(self.sealing_key_file.clone());
        if let StoreUrl::Sqlite(path) = &self.store {
            places.extend(["", "-wal", "-shm"].map(|end| {
                let mut file = path.clone().into_os_string();
                file.push(end);
                file.into()
            }));
        }
        places
    }

    /// Where the key lies that seals secrets.
    pub fn sealing_key(&self) -> PathBuf {
        self.sealing_key_file.clone().unwrap_or_else(|| self.data_folder().join("sealing.key"))
    }

    pub fn key_file(&self) -> PathBuf {
        self.data_folder().join("admin.key")
    }
}

/// Strongest first.
pub(crate) struct Layers(pub(crate) Vec<Layer>);

impl Layers {
    pub(crate) fn find<T>(&self, value: impl Fn(&Settings) -> Option<T>) -> Option<(T, &Layer)> {
        self.0.iter().find_map(|layer| Some((value(&layer.settings)?, layer)))
    }

    pub(crate) fn plain<T>(&self, value: impl Fn(&Settings) -> Option<T>) -> Option<T> {
        self.find(value).map(|(value, _)| value)
    }

    fn store(&self, root: &Path) -> Result<StoreUrl, Failure> {
        match self.find(|s| s.store.clone()) {
            Some((url, layer)) => StoreUrl::parse(&url, &layer.folder, &layer.origin.name("store")),
            None => Ok(StoreUrl::Sqlite(root.join(".shikiri").join("state.db"))),
        }
    }

    fn listen(&self) -> Result<SocketAddr, Failure> {
        let (text, name) = match self.find(|s| s.listen.clone()) {
            Some((text, layer)) => (text, layer.origin.name("listen")),
            None => (DEFAULT_LISTEN.to_owned(), String::new()),
        };
        let numeric = match text.strip_prefix("localhost:") {
            Some(port) => format!("127.0.0.1:{port}"),
            None => text.clone(),
        };
        numeric.parse().map_err(|_| {
            let what = format!("{name}: {text:?} is not an address");
            Failure::usage(what, "write it as IP:PORT, such as 127.0.0.1:7420")
        })
    }

    pub(crate) fn count<T: Default + PartialEq>(
        &self,
        key: &str,
        value: impl Fn(&Settings) -> Option<T>,
    ) -> Result<Option<T>, Failure> {
        match self.find(value) {
            Some((count, layer)) if count == T::default() => {
                Err(Failure::usage(format!("{}: is 0", layer.origin.name(key)), "allow at least 1"))
            }
            found => Ok(found.map(|(count, _)| count)),
        }
    }

    pub(crate) fn seconds(
        &self,
        key: &str,
        value: impl Fn(&Settings) -> Option<f64>,
    ) -> Result<Option<Duration>, Failure> {
        self.span(key, value, Duration::from_secs(1))
    }

    /// A number of units as a time between a fifth of a second and a century.
    fn span(
        &self,
        key: &str,
        value: impl Fn(&Settings) -> Option<f64>,
        unit: Duration,
    ) -> Result<Option<Duration>, Failure> {
        let Some((number, layer)) = self.find(value) else { return Ok(None) };
        let allowed = Duration::from_millis(200)..=36_525 * DAY;
        match Duration::try_from_secs_f64(number * unit.as_secs_f64()) {
            Ok(span) if allowed.contains(&span) => Ok(Some(span)),
            _ => {
                let what = format!("{}: {number} is out of range", layer.origin.name(key));
                Err(Failure::usage(what, "write a time from 0.2 seconds to 100 years"))
            }
        }
    }
}

pub(crate) fn project_root(surroundings: &Surroundings<'_>) -> Result<PathBuf, Failure> {
    let current = surroundings.current_folder.as_deref();
    match surroundings.get(env_vars::CLAUDE_PROJECT_DIR) {
        Some(named) => {
            let root = current.unwrap_or(Path::new("/")).join(named);
            let what = |why: &str| format!("CLAUDE_PROJECT_DIR: {} {why}", root.display());
            let next = "name the project's folder, or unset it";
            match root.metadata() {
                Ok(found) if found.is_dir() => Ok(root),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    let what = what("may not be looked at by this user");
                    Err(Failure::new(Exit::Unavailable, what, "change its permissions"))
                }
                Ok(_) => Err(Failure::usage(what("is not a folder"), next)),
                Err(_) => Err(Failure::usage(what("is not there"), next)),
            }
        }
        None => find_root(surroundings).ok_or_else(|| {
            Failure::usage(
                "the current folder is gone",
                "go to a folder, or set CLAUDE_PROJECT_DIR",
            )
        }),
    }
}

fn user_folder(surroundings: &Surroundings<'_>) -> Option<PathBuf> {
    // As the XDG specification has it: a relative path is ignored.
    let named = surroundings.get(env_vars::XDG_CONFIG_HOME).map(PathBuf::from);
    let home = surroundings.get(env_vars::HOME).map(|home| PathBuf::from(home).join(".config"));
    named.filter(|folder| folder.is_absolute()).or(home)
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
