//! The lock file beside the database. Every process that has the database open holds it shared;
//! moving the database's files requires it exclusively. The system releases it when a process dies.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::time::Duration;

use crate::busy_backoff::BusyBackoff;
use crate::database_files::with_suffix;
use crate::error::OpenError;

#[derive(Debug)]
pub(crate) struct FileLock {
    _file: File,
}

impl FileLock {
    /// Waits up to `limit` for a process that is moving files.
    pub(crate) fn shared(path: &Path, limit: Duration) -> Result<Self, OpenError> {
        let file = lock_file(path)?;
        let mut pauses = BusyBackoff::up_to(limit);
        loop {
            match file.try_lock_shared() {
                Ok(()) => return Ok(Self { _file: file }),
                Err(TryLockError::WouldBlock) if pauses.pause() => {}
                Err(TryLockError::WouldBlock) => return Err(OpenError::Busy(path.to_owned())),
                Err(TryLockError::Error(source)) => return Err(OpenError::folder(path, source)),
            }
        }
    }

    /// None if a process has the database open.
    pub(crate) fn exclusive(path: &Path) -> Result<Option<Self>, OpenError> {
        let file = lock_file(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(source)) => Err(OpenError::folder(path, source)),
        }
    }
}

/// The lock file is never removed: a lock on a removed file would exclude no one else.
fn lock_file(path: &Path) -> Result<File, OpenError> {
    let lock_path = with_suffix(path, ".lock");
    let opened =
        File::options().read(true).write(true).create(true).truncate(false).open(&lock_path);
    opened.map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => OpenError::Missing(path.to_owned()),
        io::ErrorKind::IsADirectory => OpenError::IsFolder(lock_path),
        _ => OpenError::folder(path, source),
    })
}
