//! Executions: the multi-tenant service, over REST and on the terminal.

mod conversations;
mod files;
pub(crate) mod kit;
mod lock;
mod models;
mod native;
mod offline;
mod openapi;
mod real_cli;
mod schemathesis;
mod secrets;
mod server_checks;
mod servers;
mod skills;
mod streams;
mod terminal;
mod turns;
mod usage;
