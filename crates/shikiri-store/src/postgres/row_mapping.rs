//! Row mapping: one function per table.

use shikiri_model::ids::TenantId;
use shikiri_model::lease::Lease;
use shikiri_model::record::{Record, RecordColumns, RecordKey};
use shikiri_model::time::Timestamp;
use sqlx::Row;
use sqlx::postgres::PgRow;

/// The columns that [`record`] reads.
macro_rules! record_columns {
    () => {
        "r.tenant, r.id, r.version, r.attempts, r.state, r.parent, r.owner, r.uniq, r.due_at, \
         r.created_at, r.updated_at, r.doc"
    };
}
pub(super) use record_columns;

/// The database's clock. `clock_timestamp` instead of `now`, which stands still during a
/// transaction, even while it waits for a lock.
macro_rules! clock_ms {
    () => {
        "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
    };
}
pub(super) use clock_ms;

/// The kind is passed in: the caller knows it as a static text.
pub(super) fn record(row: &PgRow, kind: &'static str) -> Result<Record, sqlx::Error> {
    Ok(Record {
        key: RecordKey { kind, tenant: tenant(row)?, id: row.try_get("id")? },
        version: unsigned(row.try_get("version")?),
        attempts: row.try_get::<i32, _>("attempts")?.unsigned_abs(),
        created_at: Timestamp::from_millis(row.try_get("created_at")?),
        updated_at: Timestamp::from_millis(row.try_get("updated_at")?),
        columns: RecordColumns {
            state: row.try_get("state")?,
            parent: row.try_get("parent")?,
            owner: row.try_get("owner")?,
            unique: row.try_get("uniq")?,
            due_at: row.try_get::<Option<i64>, _>("due_at")?.map(Timestamp::from_millis),
        },
        doc: row.try_get("doc")?,
    })
}

pub(super) fn lease(row: &PgRow) -> Result<Lease, sqlx::Error> {
    Ok(Lease {
        name: row.try_get("name")?,
        owner: row.try_get("owner")?,
        fence: unsigned(row.try_get("fence")?),
        expires_at: row.try_get("expires_at")?,
    })
}

pub(super) fn tenant(row: &PgRow) -> Result<TenantId, sqlx::Error> {
    let text: &str = row.try_get("tenant")?;
    text.parse().map_err(|cause| sqlx::Error::Decode(Box::new(cause)))
}

/// The database has no unsigned numbers. Ours stay far below the limit of its signed ones.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
