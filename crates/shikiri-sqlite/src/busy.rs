//! Waiting for another process's write. SQLite's own wait is a fixed ladder of pauses: sixteen
//! processes then knock in step and some of them starve. Here every pause is drawn at random.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use rusqlite::{Connection, Error, ErrorCode};

const FIRST_PAUSE_US: u64 = 250;
const LONGEST_PAUSE_US: u64 = 8_000;

/// Pauses that grow up to a limit, each between half and all of its step.
#[derive(Debug)]
pub(crate) struct Pauses {
    limit: Duration,
    started: Instant,
    step_us: u64,
}

impl Pauses {
    pub(crate) fn up_to(limit: Duration) -> Self {
        Self { limit, started: Instant::now(), step_us: FIRST_PAUSE_US }
    }

    /// Sleeps a little, or returns false if the time is over.
    pub(crate) fn pause(&mut self) -> bool {
        if self.started.elapsed() >= self.limit {
            return false;
        }
        let half = self.step_us / 2;
        // The standard library seeds each hasher differently: randomness enough for a pause.
        let drawn = RandomState::new().hash_one(self.step_us) % (half + 1);
        std::thread::sleep(Duration::from_micros(half + drawn));
        self.step_us = (self.step_us * 2).min(LONGEST_PAUSE_US);
        true
    }
}

/// Makes `connection` wait for locks up to `limit` wherever SQLite asks its busy handler.
pub(crate) fn install(connection: &mut Connection, limit: Duration) -> rusqlite::Result<()> {
    let mut pauses = Pauses::up_to(limit);
    connection.busy_handler(Some(move |count: i32| {
        if count == 0 {
            pauses = Pauses::up_to(limit);
        }
        pauses.pause()
    }))
}

/// SQLite does not ask its busy handler everywhere (recovery, a change of journal mode), so what
/// opens a file is also repeated here.
pub(crate) fn retry<T>(
    limit: Duration,
    mut attempt: impl FnMut() -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    let mut pauses = Pauses::up_to(limit);
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
