//! The guarded settings of a project's `shikiri.toml`, and which commands use them.

use std::path::Path;

use shikiri_hook::configured_store::path_inside;

use super::request::{FileRequest, GuardedEntry, ProjectFile};
use super::tracked_files;
use crate::config::Settings;
use crate::config::table::{ProjectRule, Setting};
use crate::store_url::StoreUrl;

/// What a command does with the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigUse {
    /// Opens the store.
    Store,
    /// Listens for connections.
    Listener,
    /// Runs executions.
    Engines,
    /// Asks providers in a browser.
    Browser,
}

impl ConfigUse {
    pub const ALL: &[Self] = &[Self::Store, Self::Listener, Self::Engines, Self::Browser];
}

/// Settings that count from a project's file only after trust, with the commands that use them and
/// their effect.
pub fn guarded_settings() -> impl Iterator<Item = (&'static Setting, ConfigUse, &'static str)> {
    Setting::all().filter_map(|setting| match setting.project {
        ProjectRule::Guarded(used_for, effect) => Some((setting, used_for, effect)),
        ProjectRule::Free | ProjectRule::Never => None,
    })
}

/// The requests of these settings in a project's file.
pub fn settings_request(content: &str, settings: &Settings, root: &Path) -> FileRequest {
    let entry = |(setting, _, effect): (&Setting, _, _)| {
        let (key, value) = (setting.key, (setting.request)(settings, root)?);
        Some(GuardedEntry::new(key, format!("{key} = {value} ({effect})")))
    };
    let entries = guarded_settings().filter_map(entry).collect();
    FileRequest::new(ProjectFile::Settings, content, entries)
}

/// A store that is not the project's own: on a server, outside of the folder, or from git.
pub(crate) fn foreign_store(written: &str, root: &Path) -> Option<String> {
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
        let guarded: Vec<_> = guarded_settings().map(|(setting, ..)| setting.key).collect();
        assert_eq!(names(&all), guarded);
        let request = settings_request("", &all, Path::new("/"));
        assert!(!request.texts().concat().contains("hunter2"), "{:?}", request.texts());
        guarded_settings().for_each(|(setting, ..)| (setting.clear)(&mut all));
        assert_eq!(all, Settings::default());
    }
}
