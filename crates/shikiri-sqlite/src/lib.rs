//! Opens, creates, migrates, checks, backs up and restores Shikiri's SQLite file. No other crate
//! opens that file.
//!
//! All functions block and none needs an async runtime, so that the server's store and a hook
//! process that lives for a millisecond use the same code.
//!
//! - [`SqliteDatabase::open`] is the start: it creates a missing database, migrates an old one and
//!   sets a damaged one aside. [`OpenError`] says what to do if that fails.
//! - [`maintenance`] is the integrity check, the backup and the restore.
//! - [`hook_rows`] reads and writes the rows of hooks inside the caller's transaction. The queries
//!   of streams, records and leases are in `shikiri-store`.
//!
//! Several processes use the file at once: `file_lock` keeps its files from being moved meanwhile,
//! and `busy_backoff` waits for the write lock.

mod busy_backoff;
mod damage_recovery;
mod database_creation;
mod database_files;
mod error;
mod file_lock;
pub mod hook_rows;
pub mod linked_version;
pub mod maintenance;
pub mod migrate;
mod open_database;

pub use damage_recovery::set_aside_corrupt;
pub use error::OpenError;
pub use migrate::{MIGRATIONS, SqliteMigration};
pub use open_database::{DatabaseOptions, LockWait, SqliteDatabase, SynchronousMode};
