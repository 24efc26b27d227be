//! Executions: the multi-tenant service, over REST and on the terminal.

mod answers;
mod conversations;
mod engines;
mod files;
mod gateway;
mod hostile_files;
pub(crate) mod kit;
mod lists;
mod lock;
mod models;
mod offline;
mod openapi;
mod queue;
mod sandbox;
mod schemathesis;
mod secrets;
mod server_checks;
mod servers;
mod skills;
mod streams;
mod terminal;
mod tool_servers;
mod turns;
mod usage;
