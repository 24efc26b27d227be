//! A damaged database is moved to another name and replaced by a new one. This happens only for
//! damage that SQLite reports, never for a lock or a full disk, and only if no other process has
//! the file open.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::database_files::{has_leftovers, move_away};
use crate::error::OpenError;
use crate::file_lock::FileLock;
use crate::open_database::{open_checked, open_checked_within};

pub(crate) enum SetAsideOutcome {
    Moved(PathBuf),
    /// Another process repaired it in between.
    NotDamaged,
    /// Other processes have it open.
    InUse,
}

/// The caller has seen damage and holds no lock.
pub(crate) fn set_aside(path: &Path) -> Result<SetAsideOutcome, OpenError> {
    let Some(_lock) = FileLock::exclusive(path)? else {
        return Ok(SetAsideOutcome::InUse);
    };
    // Before the lock was taken, the file may have been another process's.
    let cause = if has_leftovers(path) {
        "its log was left without it".to_owned()
    } else {
        match open_checked(path) {
            Err(OpenError::Damaged { cause, .. }) => cause,
            _ => return Ok(SetAsideOutcome::NotDamaged),
        }
    };
    move_damaged_away(path, &cause).map(SetAsideOutcome::Moved)
}

/// For damage that is found only when the file is read. Returns None if the file is sound. The
/// caller has closed the file; the check stops after `patience`, because a large file takes long.
pub fn set_aside_corrupt(path: &Path, patience: Duration) -> Result<Option<PathBuf>, OpenError> {
    let Some(_lock) = FileLock::exclusive(path)? else {
        return Err(OpenError::DamagedInUse(path.to_owned()));
    };
    let until = Instant::now() + patience;
    let quick_check = |connection: Connection| {
        let _watch = interrupt_at(until, &connection);
        connection
            .query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0))
            .map_err(|error| OpenError::sqlite(path, error))
    };
    match open_checked_within(path, patience).and_then(quick_check) {
        Ok(found) if found == "ok" => Ok(None),
        Ok(cause) | Err(OpenError::Damaged { cause, .. }) => {
            move_damaged_away(path, &cause).map(Some)
        }
        Err(error) => Err(error),
    }
}

/// Interrupts a connection at a deadline, unless it is dropped before.
fn interrupt_at(until: Instant, connection: &Connection) -> Sender<()> {
    let (done, ended) = mpsc::channel();
    let interrupt = connection.get_interrupt_handle();
    std::thread::spawn(move || {
        let left = until.saturating_duration_since(Instant::now());
        if ended.recv_timeout(left) == Err(RecvTimeoutError::Timeout) {
            interrupt.interrupt();
        }
    });
    done
}

/// The caller holds the lock.
fn move_damaged_away(path: &Path, cause: &str) -> Result<PathBuf, OpenError> {
    let target = move_away(path, "damaged").map_err(|source| OpenError::folder(path, source))?;
    tracing::warn!(
        path = %path.display(),
        kept_as = %target.display(),
        cause,
        "the database was damaged: it is kept as {} and a new one is used",
        target.display()
    );
    Ok(target)
}
