//! The store: one trait, on SQLite (embedded, the default) and PostgreSQL (several nodes).
//!
//! Both backends do the same thing with a batch of commits: load the rows that it names, let
//! [`settle`] decide in plain Rust, write the outcome, commit, and only then answer the callers
//! and wake the watchers. What a commit means is therefore written once.

pub mod clock;
pub mod commit;
pub mod error;
pub mod hooks;
pub mod hub;
pub mod postgres;
pub mod settle;
pub mod sqlite;
pub mod store;

pub use clock::{Clock, FakeClock, SystemClock};
pub use commit::{Append, Appended, Commit, Committed};
pub use error::{CommitError, StoreError};
pub use hooks::{HookStore, HookTurn};
pub use hub::{Hub, Subscription, Topic, Wake};
pub use store::{Page, Store, StoreExt, StreamState};
