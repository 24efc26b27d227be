//! The guarded keys of a project's `shikiri.toml`, and which commands use them.

use std::path::{Component, Path, PathBuf};

use super::request::{FileRequest, GuardedEntry, ProjectFile};
use super::tracked_files;
use crate::config::Settings;
use crate::store_url::StoreUrl;

/// What a command does with the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigUse {
    /// It opens the store.
    Store,
    /// It listens.
    Listener,
    /// It carries executions.
    Engines,
    /// It puts questions to providers' pages.
    Browser,
}

impl ConfigUse {
    pub const ALL: &[Self] = &[Self::Store, Self::Listener, Self::Engines, Self::Browser];
}

/// Keys that count from flags, the environment and the person's own configuration only.
pub const NEVER_FROM_PROJECT: &[&str] = &["unconfined_engines"];

/// A key that counts from a project's file only after trust.
pub struct GuardedKey {
    pub name: &'static str,
    pub used_for: ConfigUse,
    effect: &'static str,
    /// The value to show; None if it is not set, or asks for nothing.
    shown: fn(&Settings, &Path) -> Option<String>,
    pub is_set: fn(&Settings) -> bool,
    pub clear: fn(&mut Settings),
}

macro_rules! guarded_key {
    ($field:ident, $used_for:ident, $effect:literal, $shown:expr) => {
        GuardedKey {
            name: stringify!($field),
            used_for: ConfigUse::$used_for,
            effect: $effect,
            shown: $shown,
            is_set: |settings| settings.$field.is_some(),
            clear: |settings| settings.$field = None,
        }
    };
}

pub const GUARDED_KEYS: &[GuardedKey] = &[
    guarded_key!(store, Store, "where the data lies", |s, root| foreign_store(s, root)),
    guarded_key!(listen, Listener, "where the server listens", |s, _| quoted(s.listen.as_deref())),
    guarded_key!(allow_remote, Listener, "other machines can reach the server", |s, _| {
        granted(s.allow_remote)
    }),
    guarded_key!(allowed_hosts, Listener, "names under which it may be called", |s, _| {
        list(s.allowed_hosts.as_deref())
    }),
    guarded_key!(metrics_public, Listener, "other machines can read /metrics", |s, _| {
        granted(s.metrics_public)
    }),
    guarded_key!(claude_bin, Engines, "the program that is started as Claude Code", |s, _| {
        quoted(s.claude_bin.as_deref())
    }),
    guarded_key!(engine_paths, Engines, "what engines may read", |s, _| {
        list(s.engine_paths.as_deref())
    }),
    guarded_key!(browser_url, Browser, "the browser that is driven", |s, _| {
        quoted(s.browser_url.as_deref())
    }),
    guarded_key!(browser_allow_remote, Browser, "it may be another machine's", |s, _| {
        granted(s.browser_allow_remote)
    }),
    guarded_key!(chrome_bin, Browser, "the program that is started as Chrome", |s, _| {
        quoted(s.chrome_bin.as_deref())
    }),
    guarded_key!(pages, Browser, "the file that questions are written to", |s, _| {
        quoted(s.pages.as_deref().filter(|pages| pages.contains(':')))
    }),
];

/// What these settings of a project's file ask for.
pub fn settings_request(content: &str, settings: &Settings, root: &Path) -> FileRequest {
    let entry = |key: &GuardedKey| {
        let value = (key.shown)(settings, root)?;
        Some(GuardedEntry::new(key.name, format!("{} = {value} ({})", key.name, key.effect)))
    };
    let entries = GUARDED_KEYS.iter().filter_map(entry).collect();
    FileRequest::new(ProjectFile::Settings, content, entries)
}

fn quoted(value: Option<&str>) -> Option<String> {
    value.map(|value| format!("{value:?}"))
}

/// No is what holds anyway.
fn granted(value: Option<bool>) -> Option<String> {
    value.filter(|granted| *granted).map(|_| "true".to_owned())
}

fn list<T: std::fmt::Debug>(values: Option<&[T]>) -> Option<String> {
    values.filter(|values| !values.is_empty()).map(|values| format!("{values:?}"))
}

/// A store that is not the project's own: on a server, outside of the folder, or brought by git.
fn foreign_store(settings: &Settings, root: &Path) -> Option<String> {
    let written = settings.store.as_deref()?;
    match StoreUrl::parse(written, root, "store").ok()? {
        url @ StoreUrl::Postgres(_) => Some(format!("\"{url}\"")),
        StoreUrl::Sqlite(path) => {
            let is_own = path_inside(&path, root).is_some_and(|inside| {
                tracked_files(root, &inside).is_ok_and(|tracked| tracked.is_empty())
            });
            (!is_own).then(|| format!("{written:?}"))
        }
    }
}

/// The path from a folder to a file that is, or would be made, in it, wherever links lead. None if
/// it is outside.
fn path_inside(path: &Path, root: &Path) -> Option<PathBuf> {
    let existing = path.ancestors().find(|path| path.symlink_metadata().is_ok())?;
    // A link that leads nowhere has no real path: what would be made there is not known.
    let real = existing.canonicalize().ok()?;
    let missing = path.strip_prefix(existing).ok()?;
    let goes_down = missing.components().all(|part| matches!(part, Component::Normal(_)));
    let inside = real.strip_prefix(root.canonicalize().ok()?).ok()?;
    goes_down.then(|| inside.join(missing))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(settings: &Settings) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let request = settings_request("", settings, folder.path());
        request.entries.into_iter().map(|entry| entry.name).collect()
    }

    #[test]
    fn values_that_ask_for_nothing_are_not_guarded() {
        let harmless = Settings {
            store: Some("sqlite:data/x.db".to_owned()),
            allow_remote: Some(false),
            allowed_hosts: Some(Vec::new()),
            metrics_public: Some(false),
            browser_allow_remote: Some(false),
            browser_headless: Some(true),
            pages: Some("offline".to_owned()),
            log: Some("debug".to_owned()),
            ..Settings::default()
        };
        assert_eq!(names(&harmless), [""; 0]);
    }

    #[test]
    fn every_guarded_key_is_shown_once_and_can_be_cleared() {
        let text = |text: &str| Some(text.to_owned());
        let mut all = Settings {
            store: text("postgres://me:hunter2@db.example/x"),
            listen: text("127.0.0.1:1"),
            allow_remote: Some(true),
            allowed_hosts: Some(vec!["e.example".to_owned()]),
            metrics_public: Some(true),
            claude_bin: text("./c"),
            engine_paths: Some(vec!["/".into()]),
            browser_url: text("http://127.0.0.1:1"),
            browser_allow_remote: Some(true),
            chrome_bin: text("./chrome"),
            pages: text("offline:x"),
            ..Settings::default()
        };
        let guarded: Vec<_> = GUARDED_KEYS.iter().map(|key| key.name).collect();
        assert_eq!(names(&all), guarded);
        let request = settings_request("", &all, Path::new("/"));
        assert!(!request.texts().concat().contains("hunter2"), "{:?}", request.texts());
        GUARDED_KEYS.iter().for_each(|key| (key.clear)(&mut all));
        assert_eq!(all, Settings::default());
    }
}
