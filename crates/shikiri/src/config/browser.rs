//! The browser in which providers are asked.

use std::path::PathBuf;

use super::Surroundings;
use crate::env_vars;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrowserSettings {
    /// The address of a running browser.
    pub url: Option<String>,
    /// Allows a browser of another machine or user.
    pub allow_remote: bool,
    /// The program to start otherwise.
    pub chrome_bin: Option<PathBuf>,
    /// Starts it without a window.
    pub is_headless: bool,
    /// Whether windows can be shown.
    pub has_display: bool,
}

impl BrowserSettings {
    pub(super) fn new(has_display: bool) -> Self {
        let is_headless = !has_display;
        Self { url: None, allow_remote: false, chrome_bin: None, is_headless, has_display }
    }
}

pub(crate) fn has_display(surroundings: &Surroundings<'_>) -> bool {
    let is_set = |variable| surroundings.get(variable).is_some();
    cfg!(target_os = "macos") || is_set(env_vars::DISPLAY) || is_set(env_vars::WAYLAND_DISPLAY)
}
