//! Errors in a document or in the arguments of a call.

/// An error in a document, for its author: it names the place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApiDocumentError {
    /// The text is no JSON or YAML, or exceeds a limit.
    #[error("line {line}: {reason}")]
    Unreadable { line: usize, reason: String },
    /// The text is readable, but describes no callable API.
    #[error("{at}: {reason}")]
    Wrong { at: String, reason: String },
}

impl ApiDocumentError {
    pub(crate) fn wrong(at: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Wrong { at: at.into(), reason: reason.into() }
    }
}

/// An error in the arguments of a call, for the model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ArgumentError(pub(crate) String);
