//! Tenants, their keys and limits, models and usage.
//!
//! [`Tenancy`] is the service. [`gate::AccessGate`] is what the doors of a process ask before they
//! serve a request: which key or agent session it carries, how many requests and streams its tenant
//! has left. [`connections`] keeps the sessions of MCP clients, [`tool_pins`] the tool definitions
//! of servers.
//!
//! Start with `gate/` for callers and their rights, with `tenants.rs` and `keys.rs` for the records,
//! with `usage.rs` for bills. What belongs to another tenant is not found, rather than refused.

pub mod agent_sessions;
pub mod connections;
pub mod gate;
pub mod keys;
pub mod models;
mod old_bills;
mod service;
pub mod slot_pool;
pub mod tenants;
pub mod tool_pins;
pub mod usage;
mod usage_period;

pub use service::{ConnectionOptions, Tenancy};
