//! Shikiri's use cases: everything a user or an agent can ask for.
//!
//! A use case loads state, lets the model decide, commits, and only then acts. The doors (REST,
//! MCP, CLI) translate to and from these functions and hold no rules of their own.

pub mod agents;
mod app;
pub mod audit;
pub mod connections;
pub mod conversations;
mod engine_folders;
mod error;
pub mod execution;
mod failpoint;
mod fields;
pub mod gate;
mod hold;
pub mod hooks;
pub mod host;
pub mod keys;
pub mod lane;
mod metered;
pub mod models;
pub mod private_file;
pub mod problem;
pub mod run;
pub mod sealing;
pub mod servers;
pub mod skills;
mod storage;
pub mod team;
pub mod tenants;
mod tool_pins;
mod tools;
pub mod usage;
mod watch;
pub mod workspace;

pub use app::{App, AppOptions, Environment};
pub use error::AppError;
pub use metered::Counters;
pub use watch::{Delivery, Watch, WatchError};
