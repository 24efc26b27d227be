//! Configuration. A flag wins over the environment, that over `<root>/shikiri.toml` (its guarded
//! keys after trust), that over `$XDG_CONFIG_HOME/shikiri/config.toml`, and that over the default.
//! Each source becomes a layer of optional values. Here the layers are merged and checked; errors
//! name the source.

mod browser;
mod flags;
mod kinds;
pub(crate) mod layers;
mod pages;
mod project;
mod settings;
pub mod table;
mod written;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use shikiri_hook::configured_store::{PROJECT_FILE, USER_FILE, user_folder};
use shikiri_hook::hook_project::ProjectFolders;

use crate::data_folder;
use crate::env_vars::{self, EnvVar};
use crate::exit::{Exit, Failure};
use crate::store_url::StoreUrl;
use crate::trust::{AskPerson, ConfigUse, ProjectTrust, ask_at_terminal};

pub use browser::BrowserSettings;
use browser::has_display;
pub use flags::{BrowserFlags, GlobalFlags, ServeFlags};
use layers::{Layer, Layers, Origin, environment_layer, file_layer};
pub use pages::Pages;
use project::{project_layer, require_providers};
pub use settings::{Config, Settings};
use table::Setting;
pub(crate) use written::parse_switch;

pub(crate) const DAY: Duration = Duration::from_secs(24 * 3_600);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    Text,
    Json,
}

/// When a commit to the embedded store counts as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    Full,
    Normal,
}

/// The process's environment, passed in so that tests can replace it.
pub struct Surroundings<'a> {
    pub variable: &'a dyn Fn(&str) -> Option<OsString>,
    pub current_folder: Option<PathBuf>,
    /// Asks a person whether a project's files may be followed.
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

    /// An empty variable counts as unset.
    pub fn get(&self, variable: EnvVar) -> Option<OsString> {
        self.variable(variable.name)
    }

    fn variable(&self, name: &str) -> Option<OsString> {
        (self.variable)(name).filter(|value| !value.is_empty())
    }
}

impl Config {
    /// For a command that may use every setting.
    pub fn load(flags: Settings, surroundings: &Surroundings<'_>) -> Result<Self, Failure> {
        Self::load_for(ConfigUse::ALL, flags, surroundings)
    }

    /// For a command that uses these parts. Fails if they would come from project files that no
    /// person agreed to. Unused parts are not taken from such files either.
    pub fn load_for(
        uses: &[ConfigUse],
        flags: Settings,
        surroundings: &Surroundings<'_>,
    ) -> Result<Self, Failure> {
        let ProjectFolders { root, checkout } = project_folders(surroundings)?;
        Ok(Self { checkout, ..Self::load_at(root, uses, flags, surroundings)? })
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
        // From the environment alone: a project's file must not decide where keys are.
        let sealing_key = surroundings.get(env_vars::SEALING_KEY_FILE);
        let sealing_key = sealing_key.map(|path| current.join(path));
        let mut layers = vec![
            Layer { origin: Origin::Flag, settings: flags, folder: current.clone() },
            environment_layer(surroundings, current)?,
        ];
        layers.extend(project_layer(&root.join(PROJECT_FILE), &root, &layers, uses, &trust)?);
        if let Some(folder) = user_folder(&|name| surroundings.variable(name)) {
            layers.extend(file_layer(&folder.join(USER_FILE))?);
        }
        let layers = Layers(layers);
        let mut config = Self::defaults(root, has_display(surroundings), trust);
        for setting in Setting::all() {
            (setting.apply)(setting, &layers, &mut config)?;
        }
        if !uses.is_empty() {
            data_folder::check(&config.root)?;
        }
        if uses.contains(&ConfigUse::Browser) && config.pages == Pages::Browser {
            require_providers(&config.trust)?;
        }
        Ok(Self { sealing_key_file: sealing_key, ..config })
    }

    /// The defaults that the help mentions.
    fn for_help() -> Self {
        Self::defaults(PathBuf::new(), true, ProjectTrust::of_no_project())
    }

    /// The project's data folder.
    pub fn data_folder(&self) -> PathBuf {
        self.root.join(".shikiri")
    }

    /// Paths that only the server may read: its data, and files that may hold passwords.
    pub fn secret_places(&self) -> Vec<PathBuf> {
        let mut paths = vec![self.data_folder(), self.root.join(PROJECT_FILE)];
        paths.extend(self.sealing_key_file.clone());
        if let StoreUrl::Sqlite(path) = &self.store {
            paths.extend(["", "-wal", "-shm"].map(|end| {
                let mut file = path.clone().into_os_string();
                file.push(end);
                file.into()
            }));
        }
        paths
    }

    /// The path of the key that seals secrets.
    pub fn sealing_key(&self) -> PathBuf {
        self.sealing_key_file.clone().unwrap_or_else(|| self.data_folder().join("sealing.key"))
    }

    pub fn key_file(&self) -> PathBuf {
        self.data_folder().join("admin.key")
    }
}

pub(crate) fn project_root(surroundings: &Surroundings<'_>) -> Result<PathBuf, Failure> {
    Ok(project_folders(surroundings)?.root)
}

/// The folders of the project that is named, otherwise of the one around the current folder.
pub(crate) fn project_folders(surroundings: &Surroundings<'_>) -> Result<ProjectFolders, Failure> {
    let current = surroundings.current_folder.as_deref();
    let Some(named) = surroundings.get(env_vars::CLAUDE_PROJECT_DIR) else {
        return current.map(ProjectFolders::around).ok_or_else(|| {
            let next = "go to a folder, or set CLAUDE_PROJECT_DIR";
            Failure::usage("the current folder is gone", next)
        });
    };
    let root = current.unwrap_or(Path::new("/")).join(named);
    let what = |why: &str| format!("CLAUDE_PROJECT_DIR: {} {why}", root.display());
    let next = "name the project's folder, or unset it";
    match root.metadata() {
        Ok(found) if found.is_dir() => Ok(ProjectFolders::named(root)),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let what = what("may not be looked at by this user");
            Err(Failure::new(Exit::Unavailable, what, "change its permissions"))
        }
        Ok(_) => Err(Failure::usage(what("is not a folder"), next)),
        Err(_) => Err(Failure::usage(what("is not there"), next)),
    }
}

#[cfg(test)]
mod reference_tests;
#[cfg(test)]
mod settings_tests;
#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
