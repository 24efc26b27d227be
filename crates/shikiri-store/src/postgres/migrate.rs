//! Migrates the database's tables to this program's schema. Several nodes may start at once.

use sqlx::postgres::{PgConnectOptions, PgConnection, PgExecutor};
use sqlx::{AssertSqlSafe, Connection};

use super::connection_url::connect_error;
use crate::error::StoreError;

/// A migration. Migrations are only added, with the same number and name as for SQLite.
#[derive(Clone, Copy, Debug)]
pub struct PostgresMigration {
    pub number: u32,
    pub name: &'static str,
    pub sql: &'static str,
}

pub const MIGRATIONS: &[PostgresMigration] = &[
    PostgresMigration {
        number: 1,
        name: "ground",
        sql: include_str!("../../migrations/postgres/0001_ground.sql"),
    },
    PostgresMigration {
        number: 2,
        name: "own_numbers",
        sql: include_str!("../../migrations/postgres/0002_own_numbers.sql"),
    },
    PostgresMigration {
        number: 3,
        name: "hooks",
        sql: include_str!("../../migrations/postgres/0003_hooks.sql"),
    },
    PostgresMigration {
        number: 4,
        name: "lean_hook_log",
        sql: include_str!("../../migrations/postgres/0004_lean_hook_log.sql"),
    },
    PostgresMigration {
        number: 5,
        name: "teams",
        sql: include_str!("../../migrations/postgres/0005_teams.sql"),
    },
    PostgresMigration {
        number: 6,
        name: "stream_bytes",
        sql: include_str!("../../migrations/postgres/0006_stream_bytes.sql"),
    },
    PostgresMigration {
        number: 7,
        name: "totals",
        sql: include_str!("../../migrations/postgres/0007_totals.sql"),
    },
    PostgresMigration {
        number: 8,
        name: "file_touches",
        sql: include_str!("../../migrations/postgres/0008_file_touches.sql"),
    },
    PostgresMigration {
        number: 9,
        name: "hook_usage",
        sql: include_str!("../../migrations/postgres/0009_hook_usage.sql"),
    },
    PostgresMigration {
        number: 10,
        name: "hook_log_by_session",
        sql: include_str!("../../migrations/postgres/0010_hook_log_by_session.sql"),
    },
];

/// Shared by all nodes; the letters of "shikiri".
const ADVISORY_LOCK: i64 = 0x0073_6869_6b69_7269;

#[derive(Debug)]
pub(super) enum PostgresMigrateError {
    Sql(sqlx::Error),
    Refused(StoreError),
}

impl From<sqlx::Error> for PostgresMigrateError {
    fn from(cause: sqlx::Error) -> Self {
        Self::Sql(cause)
    }
}

impl From<StoreError> for PostgresMigrateError {
    fn from(refusal: StoreError) -> Self {
        Self::Refused(refusal)
    }
}

impl PostgresMigrateError {
    pub(super) fn into_store_error(self, address: &PgConnectOptions) -> StoreError {
        match self {
            Self::Sql(cause) => connect_error(&cause, address),
            Self::Refused(refusal) => refusal,
        }
    }
}

/// Applies all missing migrations in one transaction, so that a failure keeps the old schema.
pub(super) async fn migrate(connection: &mut PgConnection) -> Result<(), PostgresMigrateError> {
    check_server(connection).await?;
    let mut tx = connection.begin().await?;
    // A migration of large tables may take minutes, and the other nodes wait for it.
    let patience = "SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0;
                    SET LOCAL idle_in_transaction_session_timeout = 0";
    sqlx::raw_sql(patience).execute(&mut *tx).await?;
    sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(ADVISORY_LOCK).execute(&mut *tx).await?;
    let found = newest(&mut tx).await?;
    refuse_newer(found)?;
    if found == 0 {
        let sql = "CREATE TABLE IF NOT EXISTS schema_version (version BIGINT PRIMARY KEY, applied_at TEXT NOT NULL)";
        sqlx::raw_sql(sql).execute(&mut *tx).await?;
    }
    for step in MIGRATIONS.iter().filter(|step| step.number > found) {
        sqlx::raw_sql(AssertSqlSafe(step.sql)).execute(&mut *tx).await?;
        let sql = "INSERT INTO schema_version (version, applied_at)
                   VALUES ($1, to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"'))";
        sqlx::query(sql).bind(i64::from(step.number)).execute(&mut *tx).await?;
        tracing::info!(
            schema.version = step.number,
            "schema is now {} ({})",
            step.number,
            step.name
        );
    }
    tx.commit().await?;
    Ok(())
}

/// Refuses any schema other than this program's, and changes nothing.
pub(super) async fn require_current(
    connection: &mut PgConnection,
) -> Result<(), PostgresMigrateError> {
    check_server(connection).await?;
    let found = newest(connection).await?;
    refuse_newer(found)?;
    if found < known() {
        return Err(PostgresMigrateError::Refused(StoreError::broken(format!(
            "the database has the older schema {found} (this Shikiri needs {}): run `shikiri db \
             migrate`",
            known()
        ))));
    }
    Ok(())
}

/// A newer program may have migrated the database after this one connected.
pub(super) fn refuse_newer(found: u32) -> Result<(), StoreError> {
    if found > known() { Err(StoreError::newer_schema(found, known())) } else { Ok(()) }
}

fn known() -> u32 {
    MIGRATIONS.last().map_or(0, |step| step.number)
}

/// The newest applied migration; 0 for an empty database.
async fn newest(connection: &mut PgConnection) -> Result<u32, sqlx::Error> {
    let exists: bool = sqlx::query_scalar("SELECT to_regclass('schema_version') IS NOT NULL")
        .fetch_one(&mut *connection)
        .await?;
    if exists { newest_applied(connection).await } else { Ok(0) }
}

pub(super) async fn newest_applied<'c>(database: impl PgExecutor<'c>) -> Result<u32, sqlx::Error> {
    let newest: i64 = sqlx::query_scalar("SELECT COALESCE(max(version), 0) FROM schema_version")
        .fetch_one(database)
        .await?;
    Ok(u32::try_from(newest).unwrap_or(u32::MAX))
}

async fn check_server(connection: &mut PgConnection) -> Result<(), PostgresMigrateError> {
    let sql =
        "SELECT current_setting('server_version_num')::int, current_setting('server_encoding'),
               pg_is_in_recovery()";
    let (number, encoding, standby): (i32, String, bool) =
        sqlx::query_as(sql).fetch_one(connection).await?;
    let refused = |why: String| Err(PostgresMigrateError::Refused(StoreError::broken(why)));
    if number < 130_000 {
        return refused(format!("PostgreSQL {} is too old: use 13 or newer", number / 10_000));
    }
    if encoding != "UTF8" {
        return refused(format!(
            "the database's encoding is {encoding}: create one with ENCODING 'UTF8'"
        ));
    }
    if standby {
        return refused("the server is a read-only standby: give the primary's address".to_owned());
    }
    Ok(())
}
