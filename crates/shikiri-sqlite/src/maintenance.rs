//! Looking after a database from outside: is it sound, a copy while it is used, putting a copy
//! back. None of this makes, migrates or sets aside anything by itself.

mod check;
mod copy;

use std::io;
use std::path::PathBuf;

pub use check::{Report, check};
pub use copy::{backup, restore};

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
#[path = "maintenance/maintenance_tests.rs"]
mod tests;
