//! The environment variables that are not settings (those are in `config/settings.rs`), and the
//! list of all in `shikiri help env`.

use crate::config::table::{GROUPS, Setting};

/// A variable and its manual line.
#[derive(Clone, Copy, Debug)]
pub struct EnvVar {
    pub name: &'static str,
    pub about: &'static str,
}

const fn var(name: &'static str, about: &'static str) -> EnvVar {
    EnvVar { name, about }
}

pub const CLAUDE_PROJECT_DIR: EnvVar =
    var("CLAUDE_PROJECT_DIR", "the project's folder, in which .shikiri lies [current folder]");
pub const CLAUDE_CONFIG_DIR: EnvVar =
    var("CLAUDE_CONFIG_DIR", "the folder of your Claude Code settings [~/.claude]");
pub const CLAUDE_CODE_OAUTH_TOKEN: EnvVar =
    var("CLAUDE_CODE_OAUTH_TOKEN", "your token of `claude setup-token`, for `run --my-login`");
pub const DISPLAY: EnvVar = var("DISPLAY", "tells that windows can be shown");
pub const WAYLAND_DISPLAY: EnvVar = var("WAYLAND_DISPLAY", "the same");
pub const KEY: EnvVar =
    var("SHIKIRI_KEY", "key for `shikiri run --server` [the one in .shikiri/admin.key]");
pub const SEALING_KEY_FILE: EnvVar = var(
    "SHIKIRI_SEALING_KEY_FILE",
    "the key that seals secrets in the store, one for all its nodes [.shikiri/sealing.key]",
);
pub const AGENT_ID: EnvVar =
    var("SHIKIRI_AGENT_ID", "names the agent that `shikiri mcp` serves [the client's own name]");
pub const CAI_AGENT_ID: EnvVar = var("CAI_AGENT_ID", "the same, if SHIKIRI_AGENT_ID is not set");
pub const XDG_CONFIG_HOME: EnvVar =
    var("XDG_CONFIG_HOME", "folder of shikiri/config.toml [~/.config]");
pub const XDG_STATE_HOME: EnvVar =
    var("XDG_STATE_HOME", "folder of shikiri/trust.json, your agreements [~/.local/state]");
pub const TRUST: EnvVar =
    var("SHIKIRI_TRUST", "1: agree to what this project's files ask for, for one command");
pub const HOME: EnvVar = var("HOME", "your folder, for ~/.config and ~/.local/state");
pub const USER: EnvVar = var("USER", "on whose behalf `shikiri run` acts [local]");
pub const PATH: EnvVar = var("PATH", "where the claude program is looked for");
pub const COMPLETE: EnvVar =
    var("SHIKIRI_COMPLETE", "a shell: print its script that completes ids and names too");
pub const NO_COLOR: EnvVar = var("NO_COLOR", "anything: no colours");
pub const TERM: EnvVar = var("TERM", "dumb: no colours");
/// Read in `shikiri-runtime/src/failpoint.rs`, in debug builds only.
pub const FAILPOINT: EnvVar =
    var("SHIKIRI_FAILPOINT", "NAME:N, in debug builds: die at the Nth passage of a failpoint");

/// The variables that are not settings, in the order of the help: before the settings, before the
/// last group of them, and after them.
const PROJECT: &[EnvVar] = &[CLAUDE_PROJECT_DIR, CLAUDE_CONFIG_DIR, CLAUDE_CODE_OAUTH_TOKEN];
const DISPLAYS_AND_KEYS: &[EnvVar] = &[DISPLAY, WAYLAND_DISPLAY, KEY, SEALING_KEY_FILE];
const OTHERS: &[EnvVar] = &[
    AGENT_ID,
    CAI_AGENT_ID,
    XDG_CONFIG_HOME,
    XDG_STATE_HOME,
    TRUST,
    HOME,
    USER,
    PATH,
    COMPLETE,
    NO_COLOR,
    TERM,
    FAILPOINT,
];

/// The variables that are not settings.
pub fn others() -> impl Iterator<Item = EnvVar> {
    [PROJECT, DISPLAYS_AND_KEYS, OTHERS].concat().into_iter()
}

/// The names of all variables.
pub fn names() -> impl Iterator<Item = &'static str> {
    let settings = Setting::all().flat_map(|setting| setting.variables);
    settings.copied().chain(others().map(|variable| variable.name))
}

/// The text of `shikiri help env`: all variables.
pub fn manual() -> String {
    let plain =
        |variables: &[EnvVar]| variables.iter().map(|v| (v.name, v.about.to_owned())).collect();
    let mut groups: Vec<Vec<_>> = vec![plain(PROJECT)];
    groups.extend(GROUPS.iter().map(|(_, settings)| settings.iter().flat_map(lines_of).collect()));
    groups.insert(groups.len() - 1, plain(DISPLAYS_AND_KEYS));
    groups.push(plain(OTHERS));
    let width = names().map(str::len).max().unwrap_or(0);
    let lines =
        groups.concat().into_iter().map(|(name, about)| format!("  {name:width$}  {about}\n"));
    format!(
        "Environment variables. A flag wins over its variable, that over the configuration files.\n\n{}",
        lines.collect::<String>()
    )
}

fn lines_of(setting: &Setting) -> impl Iterator<Item = (&'static str, String)> {
    let first = setting.variables[0];
    let about = setting.about();
    setting.variables.iter().map(move |name| match *name == first {
        true => (first, about.clone()),
        false => (*name, format!("the same, if {first} is not set")),
    })
}
