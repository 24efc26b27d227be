//! What is wrong with a document, or with the arguments of a call.

/// Told to whoever wrote the document, so it says where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// It is no JSON or YAML, or more of it than is taken.
    #[error("line {line}: {reason}")]
    Unreadable { line: usize, reason: String },
    /// It can be read, and is no API that can be called.
    #[error("{at}: {reason}")]
    Wrong { at: String, reason: String },
}

impl SpecError {
    pub(crate) fn wrong(at: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Wrong { at: at.into(), reason: reason.into() }
    }
}

/// Told to the model that made the call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ArgumentError(pub(crate) String);
