//! What can go wrong between us and a browser.

use std::path::PathBuf;

/// Named after what whoever asked can do about it.
#[derive(Debug, thiserror::Error)]
pub enum BrowserError {
    /// There is none to be had; the text says what would help.
    #[error("{0}")]
    Unavailable(String),
    /// The tab or the browser is gone: a new one can be opened.
    #[error("{0}")]
    Lost(String),
    /// The browser would not do it.
    #[error("the browser refused {method}: {message}")]
    Refused { method: String, message: String },
    /// No answer in time: whether it was done is not known.
    #[error("the browser did not answer {method} in time")]
    Late { method: String },
    /// Our script met something in the page that it cannot deal with.
    #[error("the page could not be read: {0}")]
    Unreadable(String),
    /// The field and the selector that the browser does not understand.
    #[error("the selector {0:?} is none")]
    BadSelector(String),
    #[error(transparent)]
    Book(#[from] BookError),
}

/// The project's `providers.toml` is wrong.
#[derive(Debug, thiserror::Error)]
#[error("{}: {text}", file.display())]
pub struct BookError {
    pub file: PathBuf,
    pub text: String,
}

impl BrowserError {
    pub(crate) fn unavailable(text: impl Into<String>) -> Self {
        Self::Unavailable(text.into())
    }

    pub(crate) fn lost(text: impl Into<String>) -> Self {
        Self::Lost(text.into())
    }

    /// The page went elsewhere, and our script's place with it: nothing of it was run.
    pub(crate) fn is_moved(&self) -> bool {
        matches!(self, Self::Refused { message, .. }
            if message.contains("Cannot find context") || message.contains("uniqueContextId not found"))
    }

    /// The same, in the middle of our script: it may have been run.
    pub(crate) fn is_cut_off(&self) -> bool {
        matches!(self, Self::Refused { message, .. }
            if message.contains("context was destroyed") || message.contains("Inspected target navigated"))
    }
}
