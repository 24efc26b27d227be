//! The services of all domains in one [`App`], and what concerns several of them.
//!
//! A door (REST, MCP, the command line) holds an `App` and calls a service by its name:
//! `app.teams.start_conversation(…)`. Every door reports a failure as a
//! [`Problem`](problem::Problem).

mod app;
pub mod problem;
mod tenant_removal;

pub use app::{App, AppOptions};
