//! Private PostgreSQL clusters for tests: a fresh one in a temporary folder, gone afterwards.
//!
//! A test must never touch another database, so a cluster has its own folder, its own port on
//! 127.0.0.1 and a random password. Three mechanisms end it: dropping [`Cluster`]; a guard process,
//! which notices every end of its creator (Ctrl-C, `kill -9`, a cluster in a `static`); and a sweep at
//! the start of every later cluster.
//!
//! The crate is blocking and has no dependencies, so it builds fast. It reads `/proc`, so it needs
//! Linux.
//!
//! To start: [`Installed::find_or_skip`], then [`Cluster::start`].

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
