//! Which browser questions to providers are put in, among the settings.

use std::path::PathBuf;

use crate::config::{Layers, Surroundings};
use crate::env_vars;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrowserSettings {
    /// A running one.
    pub url: Option<String>,
    /// It may be on another machine, or another user's.
    pub allow_remote: bool,
    /// The program to start otherwise.
    pub chrome_bin: Option<PathBuf>,
    /// One that is started shows no window.
    pub is_headless: bool,
    /// Windows could be shown.
    pub has_display: bool,
}

impl Layers {
    pub(crate) fn browser(&self, has_display: bool) -> BrowserSettings {
        BrowserSettings {
            url: self.plain(|s| s.browser_url.clone()),
            allow_remote: self.plain(|s| s.browser_allow_remote).unwrap_or(false),
            chrome_bin: self
                .find(|s| s.chrome_bin.clone())
                .map(|(path, layer)| layer.folder.join(path)),
            is_headless: self.plain(|s| s.browser_headless).unwrap_or(!has_display),
            has_display,
        }
    }
}

pub(crate) fn has_display(surroundings: &Surroundings<'_>) -> bool {
    let is_set = |variable| surroundings.get(variable).is_some();
    cfg!(target_os = "macos") || is_set(env_vars::DISPLAY) || is_set(env_vars::WAYLAND_DISPLAY)
}
