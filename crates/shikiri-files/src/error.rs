//! Errors of access to an untrusted folder.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    #[error("{0:?} is no path inside of a folder")]
    InvalidPath(PathBuf),
    #[error("{0:?} is a link, or a part of it is")]
    Link(PathBuf),
    #[error("{0:?} is no regular file")]
    NotRegular(PathBuf),
    /// A hard link to another user's file.
    #[error("{0:?} is another user's file with a second name")]
    ForeignHardLink(PathBuf),
    #[error("{path:?} has more than {max_bytes} bytes")]
    TooLarge { path: PathBuf, max_bytes: u64 },
    #[error("{path:?}: {source}")]
    Io { path: PathBuf, source: io::Error },
}

impl FilesError {
    pub(crate) fn io(path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Io { path: path.to_owned(), source: source.into() }
    }

    /// The kind of the system's error, if it is one.
    pub fn io_kind(&self) -> Option<io::ErrorKind> {
        match self {
            Self::Io { source, .. } => Some(source.kind()),
            _ => None,
        }
    }

    pub fn is_not_found(&self) -> bool {
        self.io_kind() == Some(io::ErrorKind::NotFound)
    }

    /// Whether something other than a folder has its name.
    pub(crate) fn is_not_folder(&self) -> bool {
        matches!(self, Self::Link(_)) || self.io_kind() == Some(io::ErrorKind::NotADirectory)
    }
}

/// Names the path of a failed system call.
pub(crate) trait AtPath<T> {
    fn at(self, path: &Path) -> Result<T, FilesError>;
}

impl<T> AtPath<T> for Result<T, Errno> {
    fn at(self, path: &Path) -> Result<T, FilesError> {
        self.map_err(|errno| FilesError::io(path, errno))
    }
}

impl<T> AtPath<T> for io::Result<T> {
    fn at(self, path: &Path) -> Result<T, FilesError> {
        self.map_err(|error| FilesError::io(path, error))
    }
}
