//! Errors of opening a file. Each text names the next step.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

use crate::busy_backoff::{is_busy, is_damage};

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{} is a folder: name a file inside it, such as {}", .0.display(), .0.join("state.db").display())]
    IsFolder(PathBuf),
    #[error("cannot create the folder {}: {source}; create it or choose another", folder.display())]
    NoFolder { folder: PathBuf, source: io::Error },
    #[error("cannot write in {}: {source}; make the folder writable for this user or choose another", folder.display())]
    ReadOnlyFolder { folder: PathBuf, source: io::Error },
    #[error("cannot open {}: {cause}; check that this user may read and write it", path.display())]
    Unreadable { path: PathBuf, cause: String },
    #[error("there is no database at {}", .0.display())]
    Missing(PathBuf),
    #[error("{} is missing and {} was left by a restore that was broken off: run that restore again, or `shikiri db restore {}`; to start empty, move it away", path.display(), left.display(), left.display())]
    Unfinished { path: PathBuf, left: PathBuf },
    #[error("{} was made by a newer Shikiri (schema {found}, this one knows {known}): upgrade, or restore a backup", path.display())]
    Newer { path: PathBuf, found: u32, known: u32 },
    #[error("{} has the older schema {found} (this Shikiri needs {known}): run `shikiri db migrate`", path.display())]
    Older { path: PathBuf, found: u32, known: u32 },
    #[error("{} is another program's database: choose another file", .0.display())]
    Foreign(PathBuf),
    #[error("{} is in use by other processes and did not come free in time: try again", .0.display())]
    Busy(PathBuf),
    #[error("{} is damaged and in use: stop every Shikiri that uses it, then start again to set it aside", .0.display())]
    DamagedInUse(PathBuf),
    #[error("{} is damaged ({cause}): start Shikiri on it to set it aside, or restore a backup", path.display())]
    Damaged { path: PathBuf, cause: String },
    #[error("{} cannot be used: {source}", path.display())]
    Sqlite { path: PathBuf, source: rusqlite::Error },
}

impl OpenError {
    pub(crate) fn sqlite(path: &Path, error: rusqlite::Error) -> Self {
        let path = path.to_owned();
        if is_busy(&error) {
            return Self::Busy(path);
        }
        if is_damage(&error) {
            return Self::Damaged { path, cause: error.to_string() };
        }
        match error.sqlite_error_code() {
            Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
                Self::Unreadable { path, cause: error.to_string() }
            }
            _ => Self::Sqlite { path, source: error },
        }
    }

    pub(crate) fn unreadable(path: &Path, error: &io::Error) -> Self {
        Self::Unreadable { path: path.to_owned(), cause: error.to_string() }
    }

    pub(crate) fn folder(path: &Path, source: io::Error) -> Self {
        Self::ReadOnlyFolder { folder: crate::database_files::folder_of(path), source }
    }

    /// Whether the error may disappear by itself, without a repair.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Busy(_))
            || matches!(self, Self::Sqlite { source, .. }
                if matches!(source.sqlite_error_code(), Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure)))
    }
}
