//! The error of this crate: a sentence for the person who runs the tests. No caller branches on it, so
//! it is no enum.

use std::path::Path;
use std::{fmt, io};

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
