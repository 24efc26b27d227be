//! A damaged database is kept under another name and a new one takes its place. Only damage that
//! SQLite itself reports leads here, never a lock or a full disk, and only while nobody else has
//! the file open.

use std::path::{Path, PathBuf};

use crate::error::OpenError;
use crate::files::{has_leftovers, move_away};
use crate::lock::FileLock;
use crate::open::look;

pub(crate) enum Outcome {
    Moved(PathBuf),
    /// Somebody else repaired it meanwhile.
    NotDamaged,
    /// Others have it open.
    InUse,
}

/// The caller has seen damage, and holds no lock.
pub(crate) fn set_aside(path: &Path) -> Result<Outcome, OpenError> {
    let Some(_lock) = FileLock::exclusive(path)? else {
        return Ok(Outcome::InUse);
    };
    // What was seen before the lock may have been another process's file.
    let cause = if has_leftovers(path) {
        "its log was left without it".to_owned()
    } else {
        match look(path) {
            Err(OpenError::Damaged { cause, .. }) => cause,
            _ => return Ok(Outcome::NotDamaged),
        }
    };
    let target = move_away(path, "damaged").map_err(|source| OpenError::folder(path, source))?;
    tracing::warn!(
        path = %path.display(),
        kept_as = %target.display(),
        cause,
        "the database was damaged: it is kept as {} and a new one is used",
        target.display()
    );
    Ok(Outcome::Moved(target))
}
