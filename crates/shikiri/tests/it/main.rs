//! The whole program, as its users and their accidents meet it.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "helpers of tests stand outside #[test]"
)]

mod browser;
mod chaos;
mod demo;
mod disk_full;
mod drain;
mod executions;
mod fuzz;
mod hooks;
mod host;
mod http;
mod lanes;
mod mcp;
mod program;
mod readme;
mod teams;
mod tidy;
mod walk;
mod wire;

/// The program under test, which cargo has built.
const PROGRAM: &str = env!("CARGO_BIN_EXE_shikiri");
