//! Sorts the database's errors by what the writer does about them.

use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

use crate::error::StoreError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Another transaction was in the way: the same again succeeds soon.
    Contention,
    /// The connection is of no use any more, or could not be made.
    Connection,
    /// The server is up and cannot write now (disk full, too little memory).
    Shortage,
    /// The statement itself is refused: trying again changes nothing.
    Rejected,
}

impl Fault {
    pub(super) fn of(error: &sqlx::Error) -> Self {
        match error {
            sqlx::Error::Database(cause) => {
                cause.code().map_or(Self::Rejected, |code| of_code(&code))
            }
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed
            | sqlx::Error::BeginFailed => Self::Connection,
            _ => Self::Rejected,
        }
    }
}

/// Codes of <https://www.postgresql.org/docs/current/errcodes-appendix.html>.
fn of_code(code: &str) -> Fault {
    match code {
        // Serialization failure, deadlock, lock timeout, unique violation (somebody else was
        // first with a row that we saw missing), statement timeout.
        "40001" | "40P01" | "55P03" | "23505" | "57014" => Fault::Contention,
        // Idle in transaction for too long (this process was paused), idle for too long.
        "25P03" | "57P05" => Fault::Connection,
        // The server became a read-only standby: look for the primary at the same address.
        "25006" => Fault::Connection,
        "53300" => Fault::Connection,
        // 08: connection; 57P: shutting down, starting up.
        _ if code.starts_with("08") || code.starts_with("57P") => Fault::Connection,
        // 53: resources; 58: the operating system.
        _ if code.starts_with("53") || code.starts_with("58") => Fault::Shortage,
        _ => Fault::Rejected,
    }
}

/// Whether this answer to COMMIT says for certain that nothing was written: a collision, or the
/// server had ended the connection before (this process was paused for too long). Any other may
/// have come after the deed.
pub(super) fn rolled_back(error: &sqlx::Error) -> bool {
    let idle_too_long =
        error.as_database_error().and_then(|e| e.code()).as_deref() == Some("25P03");
    idle_too_long || Fault::of(error) == Fault::Contention
}

/// What a caller is told when nothing was written.
pub(super) fn refusal(error: &sqlx::Error) -> StoreError {
    match Fault::of(error) {
        Fault::Rejected => StoreError::broken(format!("PostgreSQL refused a statement: {error}")),
        _ => StoreError::unavailable(error),
    }
}

/// A random part of `most`, so that nodes that collided do not collide again.
pub(super) fn jitter(most: Duration) -> Duration {
    most.mul_f64((random() % 1_000) as f64 / 1_000.0)
}

/// Randomness without a dependency: every `RandomState` is keyed from the system's.
pub(super) fn random() -> u64 {
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_say_what_to_do() {
        for (code, fault) in [
            ("40P01", Fault::Contention),
            ("23505", Fault::Contention),
            ("57P01", Fault::Connection),
            ("08006", Fault::Connection),
            ("25006", Fault::Connection),
            ("53100", Fault::Shortage),
            ("22021", Fault::Rejected),
            ("42P01", Fault::Rejected),
        ] {
            assert_eq!(of_code(code), fault, "{code}");
        }
    }

    #[test]
    fn jitter_stays_below_its_bound() {
        assert!((0..100).all(|_| jitter(Duration::from_millis(10)) < Duration::from_millis(10)));
    }
}
