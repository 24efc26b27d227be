//! Errors of the browser and of the provider file.

use std::path::PathBuf;

/// The variants say what the caller can do.
#[derive(Debug, thiserror::Error)]
pub enum BrowserError {
    /// No browser is available; the text says what helps.
    #[error("{0}")]
    Unavailable(String),
    /// The tab or the browser has closed: open a new one.
    #[error("{0}")]
    Lost(String),
    /// The browser refused a command.
    #[error("the browser refused {method}: {message}")]
    Refused { method: String, message: String },
    /// No answer in time: the command may have run.
    #[error("the browser did not answer {method} in time")]
    Late { method: String },
    /// The script failed in the page.
    #[error("the page could not be read: {0}")]
    Unreadable(String),
    /// A field's selector that the browser cannot parse.
    #[error("the selector {0:?} is none")]
    BadSelector(String),
    #[error(transparent)]
    ProviderFile(#[from] ProviderFileError),
}

/// The project's `providers.toml` is wrong.
#[derive(Debug, thiserror::Error)]
#[error("{}: {text}", file.display())]
pub struct ProviderFileError {
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

    /// Whether the page navigated before the script ran.
    pub(crate) fn is_context_missing(&self) -> bool {
        matches!(self, Self::Refused { message, .. }
            if message.contains("Cannot find context") || message.contains("uniqueContextId not found"))
    }

    /// Whether the page navigated while the script ran, which may have had its effect.
    pub(crate) fn is_context_destroyed(&self) -> bool {
        matches!(self, Self::Refused { message, .. }
            if message.contains("context was destroyed") || message.contains("Inspected target navigated"))
    }
}
