//! The environment of tests: the real server as a child process, readers of its streams, a checker
//! of what they saw, and ways to break things.
//!
//! Everything here fails the test with a message, so that tests need no unwrap. A test names the
//! program itself (`env!("CARGO_BIN_EXE_shikiri")`), so that cargo builds it first.

#![expect(
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a test kit fails its test and tells why on stderr"
)]

mod app;
mod chat_site;
mod claude_cli;
mod cli;
mod client;
mod database;
mod engines;
mod fake_login;
mod fake_model;
pub mod history;
mod keeper_client;
mod kept;
mod mcp;
mod peers;
mod process;
mod process_tree;
mod reader;
mod reference_page;
mod rng;
mod server;
mod store;
mod wait;

pub use app::{Builder, Tenant, TestApp};
pub use chat_site::{Arrived, ChatSite, SiteLog};
pub use claude_cli::{ClaudeCli, ClaudeEnded, ClaudeHost, ControlRequest, claude_programs};
pub use cli::{Cli, Ended};
pub use client::{Answer, Client};
pub use database::{TestDatabase, have_postgres};
pub use engines::TestEngine;
pub use fake_login::{Book, FakeLogin};
pub use fake_model::{FakeModel, Gate, ModelRequest, Reply, Spent, ToolResult, Usage};
pub use keeper_client::KeeperClient;
pub use mcp::{Exchange, Hello, McpClient, Message, ModernClient, Prepared, StdioClient};
pub use mcp::{Policy, Resuming, Sent, StreamLog};
pub use peers::peer;
pub use process::{Follower, ROLE, role, script, signal, spawn_role, spawn_role_in, unprivileged};
pub use process_tree::{listening_ports, processes_of_folder};
pub use reader::{Cut, Frame, Reader, read_frames};
pub use reference_page::{check_reference_page, table_cell};
pub use rng::Rng;
pub use rustix::process::Signal;
pub use server::ServerProcess;
pub use shikiri_store::FakeClock;
pub use store::{StorePlace, TestStore};
pub use wait::{Cleanup, Condition, until, until_blocking, until_within};

/// Whether the long tests are wanted: many rounds instead of a few.
pub fn long() -> bool {
    std::env::var_os("SHIKIRI_LONG").is_some()
}

/// With `CI=true`, nothing may be skipped.
pub fn in_ci() -> bool {
    std::env::var("CI").as_deref() == Ok("true")
}

/// Prints that part of a test is skipped, which in CI is a failure.
pub fn skip(what: &str, why: &str) {
    assert!(!in_ci(), "{what} cannot be left out with CI=true: {why}");
    eprintln!("SKIPPED: {what}: {why}");
}
