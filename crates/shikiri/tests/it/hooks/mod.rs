//! Claude Code's hooks, as they are installed, configured and called.

pub(crate) mod call;
mod check;
mod http;
mod install;
mod plugin;
mod real_cli;
mod real_cli_sessions;
mod real_names;
mod reports;
mod who;
mod who_called;
