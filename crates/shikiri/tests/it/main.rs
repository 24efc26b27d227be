//! The whole program, as its users and their accidents meet it.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "helpers of tests stand outside #[test]"
)]

mod audit;
mod browser;
mod changing_server;
mod chaos;
mod demo;
mod disk_full;
mod docs;
mod drain;
mod executions;
mod fuzz;
mod hooks;
mod host;
mod http;
mod lanes;
mod mcp;
mod program;
mod public_surface;
mod quotas;
mod releases;
mod secrets;
mod teams;
mod tidy;
mod tmux;
mod trust;
mod walk;
mod wire;

/// The program under test, which cargo has built.
const PROGRAM: &str = env!("CARGO_BIN_EXE_shikiri");
