//! A damaged database is kept under another name and a new one takes its place. Only damage that
//! SQLite itself reports leads here, never a lock or a full disk, and only while nobody else has
//! the file open.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::error::OpenError;
use crate::files::{has_leftovers, move_away};
use crate::lock::FileLock;
use crate::open::{look, look_within};

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
    keep(path, &cause).map(Outcome::Moved)
}

/// The same for damage that shows only where the file is read: none if it is sound after all.
/// Whoever asks has closed it, and waits no longer than this: a file may be as large as it likes.
pub fn set_aside_torn(path: &Path, patience: Duration) -> Result<Option<PathBuf>, OpenError> {
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
    match look_within(path, patience).and_then(quick_check) {
        Ok(found) if found == "ok" => Ok(None),
        Ok(cause) | Err(OpenError::Damaged { cause, .. }) => keep(path, &cause).map(Some),
        Err(error) => Err(error),
    }
}

/// Stops what a connection does when the time has come, unless this is dropped before.
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

/// The caller has the lock.
fn keep(path: &Path, cause: &str) -> Result<PathBuf, OpenError> {
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
