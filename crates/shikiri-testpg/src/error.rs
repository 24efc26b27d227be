//! What went wrong, in words for the person who runs the tests. Nobody branches on it, so it is
//! a sentence and not an enum.

use std::fmt;
use std::io;
use std::path::Path;

/// A failure to find, make, start or stop a cluster. Its text says what to look at.
#[derive(Debug)]
pub struct Error(String);

impl Error {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    pub(crate) fn file(doing: &str, path: &Path, cause: &io::Error) -> Self {
        Self(format!("cannot {doing} {}: {cause}", path.display()))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}
