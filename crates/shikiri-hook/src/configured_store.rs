//! Finds the store that the configuration names, as the commands of the program do: the environment,
//! then the project's `shikiri.toml` as far as it is trusted, the user's `config.toml`, the default.
//! A hook reads nothing else of them, because it starts at every tool call.

use std::ffi::OsString;
use std::fmt;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;

use crate::allowed_files;
use crate::hook_project::{DATABASE, HookProject};
use crate::trust_file::{TrustFile, content_hash, parse_switch};

pub const PROJECT_FILE: &str = "shikiri.toml";
pub const USER_FILE: &str = "shikiri/config.toml";

/// A larger file is no configuration.
const MOST_BYTES: u64 = 1024 * 1024;

/// Reads a variable of the environment.
pub type ReadVariable<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// What a store URL names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreAddress {
    Sqlite(PathBuf),
    Postgres,
}

impl StoreAddress {
    /// Relative paths start from `folder`. The error does not repeat the text, because a mistyped
    /// URL may contain a password.
    pub fn parse(text: &str, folder: &Path) -> Result<Self, &'static str> {
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return Ok(Self::Postgres);
        }
        let Some(path) = text.strip_prefix("sqlite:") else {
            return Err("this is not a store URL");
        };
        let path = path.strip_prefix("//").unwrap_or(path);
        if path.is_empty() || path.contains('\0') {
            return Err("the path is missing");
        }
        Ok(Self::Sqlite(folder.join(path)))
    }
}

/// The store that a project's hooks write to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfiguredStore {
    /// `state.db` in the data folder.
    Default,
    /// Another SQLite file.
    File(PathBuf),
    /// A server, which a hook process does not reach; with the source of the setting.
    Server(StoreSource),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreSource {
    Environment,
    File(PathBuf),
}

impl fmt::Display for StoreSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Environment => f.write_str("SHIKIRI_STORE"),
            Self::File(path) => write!(f, "`store` in {}", path.display()),
        }
    }
}

/// The setting in a configuration file. The other settings are the commands' business.
#[derive(Deserialize)]
struct StoreSetting {
    store: Option<String>,
}

impl ConfiguredStore {
    /// `current` is the base of a relative path in the environment.
    pub fn find(root: &Path, current: &Path, variable: ReadVariable<'_>) -> Result<Self, String> {
        let variable = &|name: &str| variable(name).filter(|value| !value.is_empty());
        if let Some(text) = variable("SHIKIRI_STORE") {
            let text = text.into_string().map_err(|_| "SHIKIRI_STORE: it is not UTF-8")?;
            return Self::parse(&text, root, current, StoreSource::Environment);
        }
        let project = root.join(PROJECT_FILE);
        if let Some((content, written)) = read(&project)?
            && is_trusted(root, &content, &written, variable)?
        {
            return Self::parse(&written, root, root, StoreSource::File(project));
        }
        let user = user_folder(variable).map(|folder| folder.join(USER_FILE));
        if let Some(user) = user
            && let Some((_, written)) = read(&user)?
        {
            let folder = user.parent().unwrap_or(Path::new("/")).to_owned();
            return Self::parse(&written, root, &folder, StoreSource::File(user));
        }
        Ok(Self::Default)
    }

    fn parse(text: &str, root: &Path, folder: &Path, source: StoreSource) -> Result<Self, String> {
        match StoreAddress::parse(text, folder) {
            Ok(StoreAddress::Sqlite(path)) if path == root.join(DATABASE) => Ok(Self::Default),
            Ok(StoreAddress::Sqlite(path)) => Ok(Self::File(path)),
            Ok(StoreAddress::Postgres) => Ok(Self::Server(source)),
            Err(why) => Err(format!("{source}: {why}")),
        }
    }
}

/// The folder of the user's configuration. The XDG specification ignores relative paths.
pub fn user_folder(variable: ReadVariable<'_>) -> Option<PathBuf> {
    let named = variable("XDG_CONFIG_HOME").map(PathBuf::from);
    let home = variable("HOME").map(|home| PathBuf::from(home).join(".config"));
    named.filter(|folder| folder.is_absolute()).or(home)
}

/// A file's text and its store; None if it has none.
fn read(path: &Path) -> Result<Option<(String, String)>, String> {
    let text = match allowed_files::read_start(path, MOST_BYTES) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("cannot read {}: {error}", path.display())),
    };
    let broken = |what: &str| format!("{}: {what}", path.display());
    let text = String::from_utf8(text).map_err(|_| broken("it is not UTF-8"))?;
    let setting: StoreSetting =
        toml::from_str(&text).map_err(|error| broken(&error.message().replace('\n', " ")))?;
    Ok(setting.store.map(|store| (text, store)))
}

/// Whether a project's own file may choose this store: one of the project, or one to which a person
/// agreed.
fn is_trusted(
    root: &Path,
    content: &str,
    written: &str,
    variable: ReadVariable<'_>,
) -> Result<bool, String> {
    if let Ok(StoreAddress::Sqlite(path)) = StoreAddress::parse(written, root)
        && let Some(inside) = path_inside(&path, root)
    {
        let is_tracked = HookProject { root: root.to_owned() }.is_tracked(&inside);
        if !is_tracked.map_err(|error| format!("git's index cannot be read: {error}"))? {
            return Ok(true);
        }
    }
    let switch = variable("SHIKIRI_TRUST").and_then(|value| parse_switch(value.to_str()?));
    if switch == Some(true) {
        return Ok(true);
    }
    let Some(file) = TrustFile::locate(variable) else { return Ok(false) };
    let folder = root.canonicalize().unwrap_or_else(|_| root.to_owned());
    let agreements = file.read().map_err(|error| error.to_string())?;
    let agreement = agreements.of_file(&folder, PROJECT_FILE).map_err(|error| error.to_string())?;
    Ok(agreement.is_some_and(|agreement| agreement.sha256 == content_hash(content)))
}

/// The path of a file relative to a folder, with links resolved, whether it exists or not. None if
/// it is outside.
pub fn path_inside(path: &Path, root: &Path) -> Option<PathBuf> {
    let existing = path.ancestors().find(|path| path.symlink_metadata().is_ok())?;
    // A broken link has no real path, so it is unknown what would be created there.
    let real = existing.canonicalize().ok()?;
    let missing = path.strip_prefix(existing).ok()?;
    let goes_down = missing.components().all(|part| matches!(part, Component::Normal(_)));
    let inside = real.strip_prefix(root.canonicalize().ok()?).ok()?;
    goes_down.then(|| inside.join(missing))
}

#[cfg(test)]
#[path = "configured_store_tests.rs"]
mod tests;
