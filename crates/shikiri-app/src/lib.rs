//! The services of all domains in one [`App`], and what concerns several of them.
//!
//! A door (REST, MCP, the command line) holds an `App` and calls a service by its name:
//! `app.teams.start_conversation(…)`. Every door reports a failure as a
//! [`Problem`](problem::Problem).
//!
//! `app.rs` makes the services and registers what a node does in the background. `problem.rs` is the
//! only place with HTTP statuses and error codes. `status.rs` gathers what goes on in a tenant, and
//! `tenant_removal.rs` removes one: both concern every domain. There are no rules here: those are in
//! the model and the domains.

mod app;
pub mod problem;
mod status;
mod tenant_removal;

pub use app::{App, AppOptions};
pub use status::{StatusReport, WaitingQuestion};
