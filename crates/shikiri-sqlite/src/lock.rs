//! The lock file beside the database. Everybody who has the database open holds it shared; moving
//! the database's files needs it alone. The system frees it when a process dies, however it dies.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::time::Duration;

use crate::busy::Pauses;
use crate::error::OpenError;
use crate::files::with_suffix;

#[derive(Debug)]
pub(crate) struct FileLock {
    _file: File,
}

impl FileLock {
    /// Waits for whoever is moving files, up to `limit`.
    pub(crate) fn shared(path: &Path, limit: Duration) -> Result<Self, OpenError> {
        let file = lock_file(path)?;
        let mut pauses = Pauses::up_to(limit);
        loop {
            match file.try_lock_shared() {
                Ok(()) => return Ok(Self { _file: file }),
                Err(TryLockError::WouldBlock) if pauses.pause() => {}
                Err(TryLockError::WouldBlock) => return Err(OpenError::Busy(path.to_owned())),
                Err(TryLockError::Error(source)) => return Err(OpenError::folder(path, source)),
            }
        }
    }

    /// None if anybody has the database open.
    pub(crate) fn exclusive(path: &Path) -> Result<Option<Self>, OpenError> {
        let file = lock_file(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(source)) => Err(OpenError::folder(path, source)),
        }
    }
}

/// The lock file is never removed: a lock on a removed file would exclude nobody.
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
