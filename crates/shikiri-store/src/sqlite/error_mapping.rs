//! Maps errors of SQLite to errors of the store.

use std::any::Any;

use rusqlite::{Error, ErrorCode};
use shikiri_sqlite::OpenError;

use crate::error::StoreError;

pub(super) fn store_error(error: &Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            StoreError::broken(format!("the database is damaged ({error}): run `shikiri db check`"))
        }
        Some(ErrorCode::DiskFull) => StoreError::unavailable("the disk is full"),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            StoreError::unavailable("other processes keep the database busy")
        }
        Some(_) => StoreError::unavailable(error),
        // An error of our own: the row does not hold what its column should.
        None => StoreError::broken(format!("the database holds an unexpected value: {error}")),
    }
}

/// Why nothing was written.
#[derive(Debug)]
pub(super) struct SqliteWriteError {
    pub(super) error: StoreError,
    /// The error is caused by one commit, not by the store.
    pub(super) is_of_one_commit: bool,
}

impl SqliteWriteError {
    pub(super) fn of_sqlite(error: Error) -> Self {
        use ErrorCode::{ConstraintViolation, TooBig, TypeMismatch};
        let is_of_one_commit = matches!(
            error.sqlite_error_code(),
            None | Some(ConstraintViolation | TooBig | TypeMismatch)
        );
        Self { error: store_error(&error), is_of_one_commit }
    }

    pub(super) fn of_commit(error: &Error) -> Self {
        Self { error: commit_error(error), is_of_one_commit: false }
    }

    pub(super) fn panic(panic: &(dyn Any + Send)) -> Self {
        let text = panic
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("no message");
        let error = StoreError::unavailable(format!("a bug stopped this write: {text}"));
        Self { error, is_of_one_commit: true }
    }
}

/// An error of COMMIT itself. If only the sync failed, the log may contain the whole transaction,
/// and a restart before the next commit would apply it.
fn commit_error(error: &Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::SystemIoFailure) => StoreError::unknown(error),
        _ => store_error(error),
    }
}

pub(super) fn open_error(error: &OpenError) -> StoreError {
    if error.is_transient() { StoreError::unavailable(error) } else { StoreError::broken(error) }
}

pub(super) fn is_busy(error: &Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// SQLite has signed numbers. Ours never come near their limits.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
