//! What an error of SQLite means to a caller of the store.

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
        // Not SQLite's but ours: a row that does not hold what its column says.
        None => StoreError::broken(format!("the database holds an unexpected value: {error}")),
    }
}

/// An error of COMMIT itself. If only the sync failed, the log may hold the whole transaction, and
/// a restart before the next commit would bring it back.
pub(super) fn commit_error(error: &Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::SystemIoFailure) => StoreError::unknown(error),
        _ => store_error(error),
    }
}

pub(super) fn open_error(error: &OpenError) -> StoreError {
    if error.may_pass() { StoreError::unavailable(error) } else { StoreError::broken(error) }
}

pub(super) fn is_busy(error: &Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// Rows hold what fits SQLite's signed numbers; ours never come near the end of either.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
