//! Brings the database's tables to what this program knows. Many nodes may start at once.

use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection};

use crate::error::StoreError;

/// One step of the schema. Steps are only ever added, with the same number and name as on SQLite.
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    pub number: u32,
    pub name: &'static str,
    pub sql: &'static str,
}

pub const MIGRATIONS: &[Migration] = &[Migration {
    number: 1,
    name: "ground",
    sql: include_str!("../../migrations/postgres/0001_ground.sql"),
}];

/// Shared by all nodes: the letters of "shikiri".
const ADVISORY_LOCK: i64 = 0x0073_6869_6b69_7269;

#[derive(Debug)]
pub(super) enum MigrateError {
    Sql(sqlx::Error),
    Refused(StoreError),
}

impl From<sqlx::Error> for MigrateError {
    fn from(cause: sqlx::Error) -> Self {
        Self::Sql(cause)
    }
}

/// All missing steps in one transaction: a failure leaves the old schema whole.
pub(super) async fn migrate(connection: &mut PgConnection) -> Result<(), MigrateError> {
    check_server(connection).await?;
    let mut tx = connection.begin().await?;
    // A large step may take minutes, and the other nodes wait for it.
    let patience = "SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0;
                    SET LOCAL idle_in_transaction_session_timeout = 0";
    sqlx::raw_sql(patience).execute(&mut *tx).await?;
    sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(ADVISORY_LOCK).execute(&mut *tx).await?;
    let found = newest(&mut tx).await?;
    let known = MIGRATIONS.last().map_or(0, |step| i64::from(step.number));
    if found > known {
        return Err(MigrateError::Refused(StoreError::broken(format!(
            "made by a newer Shikiri (schema {found}, this one knows {known}): upgrade this node"
        ))));
    }
    for step in MIGRATIONS.iter().filter(|step| i64::from(step.number) > found) {
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

/// The newest applied step; 0 for an empty database.
async fn newest(connection: &mut PgConnection) -> Result<i64, sqlx::Error> {
    // Not CREATE IF NOT EXISTS: that needs the right to create even where nothing is missing.
    let exists: bool = sqlx::query_scalar("SELECT to_regclass('schema_version') IS NOT NULL")
        .fetch_one(&mut *connection)
        .await?;
    if !exists {
        let sql =
            "CREATE TABLE schema_version (version BIGINT PRIMARY KEY, applied_at TEXT NOT NULL)";
        sqlx::raw_sql(sql).execute(&mut *connection).await?;
    }
    sqlx::query_scalar("SELECT COALESCE(max(version), 0) FROM schema_version")
        .fetch_one(connection)
        .await
}

async fn check_server(connection: &mut PgConnection) -> Result<(), MigrateError> {
    let sql =
        "SELECT current_setting('server_version_num')::int, current_setting('server_encoding'),
               pg_is_in_recovery()";
    let (number, encoding, standby): (i32, String, bool) =
        sqlx::query_as(sql).fetch_one(connection).await?;
    let refused = |why: String| Err(MigrateError::Refused(StoreError::broken(why)));
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
