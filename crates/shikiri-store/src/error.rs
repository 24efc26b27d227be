//! What can go wrong, named after what the caller may do about it.

use std::sync::Arc;

use shikiri_model::cursor::CursorError;
use shikiri_model::event::StreamId;
use shikiri_model::lease::LeaseRefusal;
use shikiri_model::record::RecordKey;

#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Try again later: busy, full, cut off. Nothing was written.
    #[error("the store is unavailable: {0}")]
    Unavailable(Arc<str>),
    /// The connection broke around COMMIT: the write may or may not have happened.
    #[error("the store did not say whether it committed: {0}")]
    Unknown(Arc<str>),
    #[error(transparent)]
    Cursor(#[from] CursorError),
    #[error("there is no stream {0}")]
    NoStream(StreamId),
    /// Needs a person: damaged file, newer schema, wrong URL.
    #[error("{0}")]
    Broken(Arc<str>),
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum CommitError {
    /// The lease is not this writer's any more: stop writing.
    #[error(transparent)]
    Lease(#[from] LeaseRefusal),
    /// Somebody else changed (or deleted) the record: reload and decide again.
    #[error("{} {} has changed meanwhile", .0.kind, .0.id)]
    Conflict(RecordKey),
    /// A new record whose id is taken.
    #[error("{} {} exists already", .0.kind, .0.id)]
    Exists(RecordKey),
    /// A record whose unique column is taken; the id is the one that has it.
    #[error("{} {} has the same unique value", .0.kind, .0.id)]
    NotUnique(RecordKey),
    #[error("{0} is closed")]
    Closed(StreamId),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl StoreError {
    pub fn unavailable(cause: impl std::fmt::Display) -> Self {
        Self::Unavailable(cause.to_string().into())
    }

    pub fn unknown(cause: impl std::fmt::Display) -> Self {
        Self::Unknown(cause.to_string().into())
    }

    /// The database is a newer program's.
    pub(crate) fn newer_schema(found: u32, known: u32) -> Self {
        Self::broken(format!(
            "made by a newer Shikiri (schema {found}, this one knows {known}): upgrade this node"
        ))
    }

    pub fn broken(cause: impl std::fmt::Display) -> Self {
        Self::Broken(cause.to_string().into())
    }
}
