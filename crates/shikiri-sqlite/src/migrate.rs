//! Migrates a database to this program's schema, safely for several processes at once.

use std::path::Path;

use rusqlite::{Connection, ErrorCode, TransactionBehavior};

use crate::error::OpenError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SqliteMigration {
    pub number: u32,
    pub name: &'static str,
    pub sql: &'static str,
}

/// Migrations are only added at the end, because files of every earlier schema exist.
pub const MIGRATIONS: &[SqliteMigration] = &[
    SqliteMigration {
        number: 1,
        name: "ground",
        sql: include_str!("../migrations/0001_ground.sql"),
    },
    SqliteMigration {
        number: 2,
        name: "own_numbers",
        sql: include_str!("../migrations/0002_own_numbers.sql"),
    },
    SqliteMigration { number: 3, name: "hooks", sql: include_str!("../migrations/0003_hooks.sql") },
    SqliteMigration {
        number: 4,
        name: "lean_hook_log",
        sql: include_str!("../migrations/0004_lean_hook_log.sql"),
    },
    SqliteMigration { number: 5, name: "teams", sql: include_str!("../migrations/0005_teams.sql") },
    SqliteMigration {
        number: 6,
        name: "stream_bytes",
        sql: include_str!("../migrations/0006_stream_bytes.sql"),
    },
    SqliteMigration {
        number: 7,
        name: "totals",
        sql: include_str!("../migrations/0007_totals.sql"),
    },
    SqliteMigration {
        number: 8,
        name: "file_touches",
        sql: include_str!("../migrations/0008_file_touches.sql"),
    },
    SqliteMigration {
        number: 9,
        name: "hook_usage",
        sql: include_str!("../migrations/0009_hook_usage.sql"),
    },
    SqliteMigration {
        number: 10,
        name: "hook_log_by_session",
        sql: include_str!("../migrations/0010_hook_log_by_session.sql"),
    },
];

/// The schema version of this program.
pub fn latest_version() -> u32 {
    MIGRATIONS.last().map_or(0, |migration| migration.number)
}

/// The file's schema version: 0 for an empty file, None if the tables are another program's.
pub fn version(connection: &Connection) -> rusqlite::Result<Option<u32>> {
    match newest(connection) {
        // The table is missing. All tables must be checked to tell whose file it is.
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::Unknown) => {}
        found => return found.map(Some),
    }
    // One query for both: between two queries another process may create all tables.
    let (tables, ours): (u32, u32) = connection.query_row(
        "SELECT count(*), count(*) FILTER (WHERE name = 'schema_version') FROM sqlite_schema",
        [],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    match (tables, ours) {
        (0, _) => Ok(Some(0)),
        (_, 0) => Ok(None),
        _ => newest(connection).map(Some),
    }
}

fn newest(connection: &Connection) -> rusqlite::Result<u32> {
    let newest = "SELECT max(version) FROM schema_version";
    let newest: Option<u32> = connection.query_row(newest, [], |row| row.get(0))?;
    Ok(newest.unwrap_or(0))
}

/// Refuses a file with another program's tables or a newer schema.
pub(crate) fn check_readable(path: &Path, connection: &Connection) -> Result<u32, OpenError> {
    let found = version(connection)
        .map_err(|error| OpenError::sqlite(path, error))?
        .ok_or_else(|| OpenError::Foreign(path.to_owned()))?;
    if found > latest_version() {
        return Err(OpenError::Newer { path: path.to_owned(), found, known: latest_version() });
    }
    Ok(found)
}

/// Applies the migrations that a file of schema `found` lacks.
pub(crate) fn migrate(
    path: &Path,
    connection: &mut Connection,
    found: u32,
) -> Result<(), OpenError> {
    for migration in MIGRATIONS.iter().filter(|migration| migration.number > found) {
        apply(connection, migration).map_err(|error| OpenError::sqlite(path, error))?;
    }
    Ok(())
}

fn apply(connection: &mut Connection, migration: &SqliteMigration) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have migrated while this one waited for the lock.
    if version(&transaction)?.unwrap_or(0) >= migration.number {
        return transaction.rollback();
    }
    transaction.execute_batch(
        "CREATE TABLE IF NOT EXISTS schema_version (
             version    INTEGER PRIMARY KEY,
             applied_at TEXT NOT NULL
         )",
    )?;
    transaction.execute_batch(migration.sql)?;
    transaction.execute(
        "INSERT INTO schema_version (version, applied_at)
         VALUES (?1, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))",
        [migration.number],
    )?;
    transaction.commit()
}
