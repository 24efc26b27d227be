//! Executions: the multi-tenant service, over REST and on the terminal.

mod files;
mod kit;
mod lock;
mod offline;
mod streams;
mod terminal;
mod turns;
mod usage;
