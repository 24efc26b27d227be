//! Row mapping: one function per table.

use rusqlite::{Result, Row};
use shikiri_model::ids::TenantId;
use shikiri_model::lease::Lease;
use shikiri_model::record::{Record, RecordColumns, RecordKey};
use shikiri_model::time::Timestamp;

use super::error_mapping::unsigned;
use super::stream_cache::CachedStream;
use crate::batch_decision::StreamRow;

/// Columns: id, tenant, head, closed.
pub(super) fn known_stream(row: &Row<'_>) -> Result<CachedStream> {
    Ok(CachedStream {
        id: row.get(0)?,
        row: StreamRow {
            tenant: tenant(row, 1)?,
            head: unsigned(row.get(2)?),
            closed: row.get(3)?,
        },
    })
}

/// Columns: name, owner, fence, expires_at.
pub(super) fn lease(row: &Row<'_>) -> Result<Lease> {
    Ok(Lease {
        name: row.get(0)?,
        owner: row.get(1)?,
        fence: unsigned(row.get(2)?),
        expires_at: row.get(3)?,
    })
}

/// Columns: tenant, id, version, attempts, state, parent, owner, uniq, due_at, created_at,
/// updated_at, doc. The kind is passed in.
pub(super) fn record(kind: &'static str, row: &Row<'_>) -> Result<Record> {
    Ok(Record {
        key: RecordKey { kind, tenant: tenant(row, 0)?, id: row.get(1)? },
        version: unsigned(row.get(2)?),
        attempts: row.get(3)?,
        created_at: Timestamp::from_millis(row.get(9)?),
        updated_at: Timestamp::from_millis(row.get(10)?),
        columns: RecordColumns {
            state: row.get(4)?,
            parent: row.get(5)?,
            owner: row.get(6)?,
            unique: row.get(7)?,
            due_at: row.get::<_, Option<i64>>(8)?.map(Timestamp::from_millis),
        },
        doc: row.get(11)?,
    })
}

fn tenant(row: &Row<'_>, column: usize) -> Result<TenantId> {
    row.get_ref(column)?.as_str()?.parse().map_err(|error: shikiri_model::ids::InvalidId| {
        rusqlite::Error::FromSqlConversionFailure(
            column,
            rusqlite::types::Type::Text,
            Box::new(error),
        )
    })
}
