//! The linked SQLite version. Before 3.51.3, several processes that write and checkpoint one WAL
//! file could damage it, and this file is used that way.

/// The oldest SQLite that may be linked.
pub const OLDEST_SAFE: i32 = 3_051_003;

/// The linked version, such as `3.54.1`.
pub fn linked() -> &'static str {
    rusqlite::version()
}

pub fn linked_is_safe() -> bool {
    rusqlite::version_number() >= OLDEST_SAFE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_linked_sqlite_does_not_have_the_wal_reset_bug() {
        assert!(linked_is_safe(), "SQLite {} is linked", linked());
    }
}
