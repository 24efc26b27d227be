//! Classifies database errors by the writer's reaction to them.

use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

use crate::error::StoreError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PostgresErrorClass {
    /// Another transaction interfered: a retry will succeed soon.
    Contention,
    /// The connection is broken or could not be made.
    Connection,
    /// The server cannot write now (disk full, out of memory).
    Shortage,
    /// The statement is refused: a retry does not help.
    Rejected,
}

impl PostgresErrorClass {
    pub(super) fn classify(error: &sqlx::Error) -> Self {
        match error {
            sqlx::Error::Database(cause) => {
                cause.code().map_or(Self::Rejected, |code| classify_code(&code))
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

/// Error codes of <https://www.postgresql.org/docs/current/errcodes-appendix.html>.
fn classify_code(code: &str) -> PostgresErrorClass {
    match code {
        // Serialization failure, deadlock, lock timeout, unique violation (another node inserted
        // the row first), statement timeout.
        "40001" | "40P01" | "55P03" | "23505" | "57014" => PostgresErrorClass::Contention,
        // Idle in transaction for too long (this process was paused), or idle for too long.
        "25P03" | "57P05" => PostgresErrorClass::Connection,
        // The server became a read-only standby. The primary may be at the same address.
        "25006" => PostgresErrorClass::Connection,
        "53300" => PostgresErrorClass::Connection,
        // 08: connection; 57P: shutting down, starting up.
        _ if code.starts_with("08") || code.starts_with("57P") => PostgresErrorClass::Connection,
        // 53: resources; 58: the operating system.
        _ if code.starts_with("53") || code.starts_with("58") => PostgresErrorClass::Shortage,
        _ => PostgresErrorClass::Rejected,
    }
}

/// Whether this error of COMMIT proves that nothing was written: a conflict, or a connection that
/// the server had closed before (this process was paused for too long). With any other error the
/// commit may have happened.
pub(super) fn is_rolled_back(error: &sqlx::Error) -> bool {
    let idle_too_long =
        error.as_database_error().and_then(|e| e.code()).as_deref() == Some("25P03");
    idle_too_long || PostgresErrorClass::classify(error) == PostgresErrorClass::Contention
}

/// The caller's error when nothing was written.
pub(super) fn to_store_error(error: &sqlx::Error) -> StoreError {
    match PostgresErrorClass::classify(error) {
        PostgresErrorClass::Rejected => {
            StoreError::broken(format!("PostgreSQL refused a statement: {error}"))
        }
        _ => StoreError::unavailable(error),
    }
}

/// A random part of `most`, so that nodes that collided do not collide again.
pub(super) fn jitter(most: Duration) -> Duration {
    most.mul_f64((random() % 1_000) as f64 / 1_000.0)
}

/// Random numbers without a dependency: the system seeds every `RandomState`.
pub(super) fn random() -> u64 {
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_say_what_to_do() {
        for (code, fault) in [
            ("40P01", PostgresErrorClass::Contention),
            ("23505", PostgresErrorClass::Contention),
            ("57P01", PostgresErrorClass::Connection),
            ("08006", PostgresErrorClass::Connection),
            ("25006", PostgresErrorClass::Connection),
            ("53100", PostgresErrorClass::Shortage),
            ("22021", PostgresErrorClass::Rejected),
            ("42P01", PostgresErrorClass::Rejected),
        ] {
            assert_eq!(classify_code(code), fault, "{code}");
        }
    }

    #[test]
    fn jitter_stays_below_its_bound() {
        assert!((0..100).all(|_| jitter(Duration::from_millis(10)) < Duration::from_millis(10)));
    }
}
