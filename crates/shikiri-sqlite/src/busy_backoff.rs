//! Waits for another process's write. SQLite's own busy handler uses fixed pauses: sixteen
//! processes then retry at the same times and some starve. Here every pause is random.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use rusqlite::{Connection, Error, ErrorCode};

const FIRST_PAUSE_US: u64 = 250;
const LONGEST_PAUSE_US: u64 = 8_000;

/// Pauses that grow up to a limit. Each is a random length between half and all of its step.
#[derive(Debug)]
pub(crate) struct BusyBackoff {
    limit: Duration,
    started: Instant,
    step_us: u64,
}

impl BusyBackoff {
    pub(crate) fn up_to(limit: Duration) -> Self {
        Self { limit, started: Instant::now(), step_us: FIRST_PAUSE_US }
    }

    /// Sleeps for the next pause. Returns false if the time is over.
    pub(crate) fn pause(&mut self) -> bool {
        if self.started.elapsed() >= self.limit {
            return false;
        }
        let half = self.step_us / 2;
        // The standard library seeds each hasher differently, which is random enough for a pause.
        let drawn = RandomState::new().hash_one(self.step_us) % (half + 1);
        std::thread::sleep(Duration::from_micros(half + drawn));
        self.step_us = (self.step_us * 2).min(LONGEST_PAUSE_US);
        true
    }
}

/// Makes `connection` wait up to `limit` for locks wherever SQLite calls its busy handler.
pub(crate) fn install(connection: &mut Connection, limit: Duration) -> rusqlite::Result<()> {
    let mut pauses = BusyBackoff::up_to(limit);
    connection.busy_handler(Some(move |count: i32| {
        if count == 0 {
            pauses = BusyBackoff::up_to(limit);
        }
        pauses.pause()
    }))
}

/// SQLite does not always call its busy handler (not in recovery or when the journal mode changes),
/// so opening a file is retried here as well.
pub(crate) fn retry<T>(
    limit: Duration,
    mut attempt: impl FnMut() -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    let mut pauses = BusyBackoff::up_to(limit);
    loop {
        match attempt() {
            Err(error) if is_busy(&error) && pauses.pause() => {}
            outcome => return outcome,
        }
    }
}

pub(crate) fn is_busy(error: &Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::FileLockingProtocolFailed
        )
    )
}

pub(crate) fn is_damage(error: &Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}
