//! Private PostgreSQL clusters for tests: a fresh one in a temporary folder, gone afterwards.
//!
//! A test must never touch a database that somebody uses, so a cluster shares nothing with the
//! system's: own folder, own port on 127.0.0.1, own random password. Three things end it, each
//! for the case that the one before did not happen: dropping [`Cluster`]; a guard process that
//! sees its creator end, however it ended (Ctrl-C, `kill -9`, a cluster kept in a `static`);
//! and the sweep that every later start begins with.
//!
//! Std only and blocking: every crate's tests may use it at no build cost. Processes are
//! checked through `/proc`, so it needs Linux.

mod account;
mod cluster;
mod error;
mod folder;
mod guard;
mod installed;
mod process;
mod sweep;

pub use account::running_as_root;
pub use cluster::Cluster;
pub use error::Error;
pub use installed::Installed;
