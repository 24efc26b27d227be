//! The data types and rules of Shikiri.
//!
//! Nothing here does I/O, reads a clock or awaits. Time and randomness are arguments, and a rule
//! returns the changes that should be made. So every rule can be tested as a table, and the server,
//! a hook process and a test use the same one.
//!
//! Where to start:
//!
//! - [`record`], [`event`] and [`lease`] are the three forms of stored data: versioned documents,
//!   append-only streams, and exclusive rights with a fence.
//! - [`run`] is the state machine of durable work, and [`journal`] its replay. [`execution`] is the
//!   run of an engine for one turn of a [`conversation`]; [`native`] is the loop of the engines that
//!   call a model API themselves.
//! - [`team`] holds tasks, inboxes, delegations and dialogues of agents, [`lane`] their chats at
//!   web providers, [`host`] the calls and plans of the MCP host.
//! - [`hook`] decides events of Claude Code's hooks.
//! - [`tenant`], [`key`], [`models`], [`server`], [`skill`] and [`audit`] are what an operator sets up.
//!
//! A rule takes a value, a command and the time, and returns the new value with its events:
//!
//! ```
//! use std::time::Duration;
//! use shikiri_model::lease::LeaseChange;
//!
//! let acquire = |owner: &str| LeaseChange::Acquire {
//!     name: "conversation/cnv_1".to_owned(),
//!     owner: owner.to_owned(),
//!     ttl: Duration::from_secs(10),
//! };
//! let held = acquire("a").apply(None, 1_000)?;
//! assert!(acquire("b").apply(Some(&held), 2_000).is_err());
//!
//! // After expiry another owner gets the lease, and a higher fence shuts the first one out.
//! let taken = acquire("b").apply(Some(&held), 11_000)?;
//! assert!(taken.fence > held.fence);
//! assert!(held.guard().check(Some(&taken), 11_001).is_err());
//! # Ok::<(), shikiri_model::lease::LeaseRefusal>(())
//! ```

pub mod audit;
pub mod confinement;
pub mod connection;
pub mod conversation;
pub mod cursor;
pub mod event;
pub mod execution;
pub mod hook;
pub mod host;
pub mod ids;
pub mod invisible_chars;
pub mod journal;
pub mod key;
pub mod known_secrets;
pub mod lane;
pub mod lease;
mod macros;
pub mod models;
pub mod native;
pub mod record;
pub mod run;
pub mod server;
pub mod skill;
pub mod team;
pub mod tenant;
pub mod time;
pub mod tool;
pub mod total;
