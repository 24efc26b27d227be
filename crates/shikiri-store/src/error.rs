//! The store's errors, named after the caller's possible reaction.

use std::sync::Arc;

use shikiri_model::cursor::CursorError;
use shikiri_model::event::StreamId;
use shikiri_model::lease::LeaseRefusal;
use shikiri_model::record::RecordKey;

#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Try again later: busy, full, disconnected. Nothing was written.
    #[error("the store is unavailable: {0}")]
    Unavailable(Arc<str>),
    /// The connection broke during COMMIT: the write may have happened or not.
    #[error("the store did not say whether it committed: {0}")]
    Unknown(Arc<str>),
    #[error(transparent)]
    Cursor(#[from] CursorError),
    #[error("there is no stream {0}")]
    NoStream(StreamId),
    /// A person must act: damaged file, newer schema, wrong URL.
    #[error("{0}")]
    Broken(Arc<str>),
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum CommitError {
    /// The writer does not hold the lease any more: stop writing.
    #[error(transparent)]
    Lease(#[from] LeaseRefusal),
    /// The record was changed or deleted: reload and decide again.
    #[error("{} {} has changed meanwhile", .0.kind, .0.id)]
    Conflict(RecordKey),
    /// A new record has an id that exists.
    #[error("{} {} exists already", .0.kind, .0.id)]
    Exists(RecordKey),
    /// A record has a unique value that exists; the id is the holder's.
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

    /// The database was migrated by a newer program.
    pub(crate) fn newer_schema(found: u32, known: u32) -> Self {
        Self::broken(format!(
            "made by a newer Shikiri (schema {found}, this one knows {known}): upgrade this node"
        ))
    }

    pub fn broken(cause: impl std::fmt::Display) -> Self {
        Self::Broken(cause.to_string().into())
    }
}
