//! Maintenance of a database: integrity check, backup during use, and restore. None of them creates
//! or migrates a database or sets one aside.

mod backup_restore;
mod integrity_check;

use std::io;
use std::path::PathBuf;

pub use backup_restore::{backup, restore};
pub use integrity_check::{IntegrityReport, check};

use crate::error::OpenError;

#[derive(Debug, thiserror::Error)]
pub enum MaintenanceError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("{} exists already: choose another name", .0.display())]
    Exists(PathBuf),
    #[error("{} is in use: stop every Shikiri that uses it, then try again", .0.display())]
    InUse(PathBuf),
    #[error("{} is not a sound backup ({problem}): choose another", path.display())]
    Unsound { path: PathBuf, problem: String },
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

#[cfg(test)]
#[path = "maintenance_tests.rs"]
mod tests;
