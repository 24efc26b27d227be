//! Read queries.

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, params};
use shikiri_model::cursor::StreamExtent;
use shikiri_model::event::{Chunk, Seq, StreamId};
use shikiri_model::ids::TenantId;
use shikiri_model::lease::{Lease, LeaseTime};
use shikiri_model::record::{Record, RecordKey, RecordQuery};
use shikiri_model::time::Timestamp;

use super::error_mapping::{signed, unsigned};
use super::reader_pool::SqliteReadError;
use super::row_mapping;
use crate::error::StoreError;
use crate::store::{ChunkPage, StreamState};

type Outcome<T> = Result<T, SqliteReadError>;

pub(super) fn read(
    connection: &Connection,
    tenant: &TenantId,
    stream: &StreamId,
    after: Seq,
    max_bytes: usize,
) -> Outcome<ChunkPage> {
    let (id, state) = stream_row(connection, tenant, stream)?
        .ok_or_else(|| StoreError::NoStream(stream.clone()))?;
    state.extent.check(after).map_err(StoreError::from)?;
    let mut select = connection.prepare_cached(
        "SELECT first_seq, last_seq, body FROM events
         WHERE stream = ?1 AND last_seq > ?2 ORDER BY last_seq",
    )?;
    let mut rows = select.query([id, signed(after)])?;
    let mut chunks = Vec::new();
    let mut bytes = 0;
    while bytes < max_bytes.max(1)
        && let Some(row) = rows.next()?
    {
        let chunk = chunk(row)?;
        bytes += chunk.body().len();
        chunks.push(chunk);
    }
    Ok(ChunkPage { chunks, extent: state.extent })
}

/// Columns: first_seq, last_seq, body.
fn chunk(row: &Row<'_>) -> Outcome<Chunk> {
    let chunk = Chunk::from_stored(unsigned(row.get(0)?), unsigned(row.get(1)?), row.get(2)?);
    chunk.map_err(|damage| StoreError::broken(damage).into())
}

pub(super) fn stream_row(
    connection: &Connection,
    tenant: &TenantId,
    stream: &StreamId,
) -> Outcome<Option<(i64, StreamState)>> {
    let mut select = connection.prepare_cached(
        "SELECT id, first_kept, head, closed, note FROM streams WHERE name = ?1 AND tenant = ?2",
    )?;
    let found = select.query_row([stream.as_str(), tenant.as_str()], |row| {
        let extent = StreamExtent {
            first_kept: unsigned(row.get(1)?),
            head: unsigned(row.get(2)?),
            closed: row.get(3)?,
        };
        Ok((row.get(0)?, StreamState { extent, note: row.get(4)? }))
    });
    Ok(found.optional()?)
}

pub(super) fn get(connection: &Connection, key: &RecordKey) -> Outcome<Option<Record>> {
    let mut select = connection.prepare_cached(
        "SELECT tenant, id, version, attempts, state, parent, owner, uniq, due_at, created_at,
                updated_at, doc
         FROM records WHERE kind = ?1 AND tenant = ?2 AND id = ?3",
    )?;
    let found = select.query_row([key.kind, key.tenant.as_str(), &key.id], |row| {
        row_mapping::record(key.kind, row)
    });
    Ok(found.optional()?)
}

pub(super) fn find(
    connection: &Connection,
    kind: &'static str,
    tenant: &TenantId,
    unique: &str,
) -> Outcome<Option<Record>> {
    let mut select = connection.prepare_cached(
        "SELECT tenant, id, version, attempts, state, parent, owner, uniq, due_at, created_at,
                updated_at, doc
         FROM records WHERE kind = ?1 AND tenant = ?2 AND uniq = ?3",
    )?;
    let found =
        select.query_row([kind, tenant.as_str(), unique], |row| row_mapping::record(kind, row));
    Ok(found.optional()?)
}

pub(super) fn list(connection: &Connection, query: RecordQuery) -> Outcome<Vec<Record>> {
    let kind = query.kind;
    let (sql, values) = listing(query);
    let mut select = connection.prepare_cached(&sql)?;
    let rows = select
        .query_map(rusqlite::params_from_iter(values), |row| row_mapping::record(kind, row))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// The conditions are listed one by one, so that SQLite can choose the right index.
fn listing(query: RecordQuery) -> (String, Vec<Value>) {
    let mut sql = String::from(
        "SELECT tenant, id, version, attempts, state, parent, owner, uniq, due_at, created_at,
                updated_at, doc
         FROM records WHERE kind = ?",
    );
    let mut values: Vec<Value> = vec![Value::from(query.kind.to_owned())];
    // Only then the index by state can be chosen. A parent or an owner has fewer records.
    if query.parent.is_none() && query.owner.is_none() && query.state.as_deref() != Some("") {
        sql.push_str(if query.state.is_some() { " AND state <> ''" } else { "" });
    }
    let equals = [
        (" AND tenant = ?", query.tenant.map(|tenant| tenant.as_str().to_owned())),
        (" AND parent = ?", query.parent),
        (" AND owner = ?", query.owner),
        (" AND state = ?", query.state),
    ];
    for (condition, value) in equals {
        if let Some(value) = value {
            sql.push_str(condition);
            values.push(value.into());
        }
    }
    if let Some(after) = query.after {
        let beyond = if query.newest_first { "<" } else { ">" };
        sql.push_str(&format!(" AND (created_at, id) {beyond} (?, ?)"));
        values.push(after.created_at.as_millis().into());
        values.push(after.id.into());
    }
    let order = if query.newest_first {
        " ORDER BY created_at DESC, id DESC LIMIT ?"
    } else {
        " ORDER BY created_at, id LIMIT ?"
    };
    sql.push_str(order);
    values.push(i64::from(query.limit).into());
    (sql, values)
}

pub(super) fn next_due(connection: &Connection, kind: &str) -> Outcome<Option<Timestamp>> {
    let mut select = connection
        .prepare_cached("SELECT min(due_at) FROM records WHERE kind = ?1 AND due_at IS NOT NULL")?;
    let due: Option<i64> = select.query_row([kind], |row| row.get(0))?;
    Ok(due.map(Timestamp::from_millis))
}

pub(super) fn stored_bytes(
    connection: &Connection,
    tenant: &TenantId,
    kinds: &[&str],
) -> Outcome<u64> {
    let mut streams = connection
        .prepare_cached("SELECT coalesce(sum(bytes), 0) FROM streams WHERE tenant = ?1")?;
    // The length of a text is known without reading its pages.
    let mut records = connection.prepare_cached(
        "SELECT coalesce(sum(octet_length(doc)), 0) FROM records WHERE kind = ?1 AND tenant = ?2",
    )?;
    let mut bytes: i64 = streams.query_row([tenant.as_str()], |row| row.get(0))?;
    for kind in kinds {
        bytes += records.query_row([kind, tenant.as_str()], |row| row.get::<_, i64>(0))?;
    }
    Ok(unsigned(bytes))
}

pub(super) fn lease(
    connection: &Connection,
    name: &str,
    now: LeaseTime,
) -> Outcome<Option<(Lease, bool)>> {
    let mut select = connection
        .prepare_cached("SELECT name, owner, fence, expires_at FROM leases WHERE name = ?1")?;
    let found = select.query_row([name], row_mapping::lease).optional()?;
    Ok(found.map(|lease| {
        let lapsed = lease.expires_at <= now;
        (lease, lapsed)
    }))
}

pub(super) fn lapsed_leases(
    connection: &Connection,
    prefix: &str,
    now: LeaseTime,
) -> Outcome<Vec<Lease>> {
    // Names are compared byte by byte, and none contains the last Unicode character.
    let mut select = connection.prepare_cached(
        "SELECT name, owner, fence, expires_at FROM leases
         WHERE name >= ?1 AND name < ?1 || char(1114111) AND expires_at <= ?2 ORDER BY name",
    )?;
    let rows = select.query_map(params![prefix, now], row_mapping::lease)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How SQLite reads a list, in its own words.
    fn plan(query: RecordQuery) -> String {
        let connection = Connection::open_in_memory().unwrap();
        for migration in shikiri_sqlite::MIGRATIONS {
            connection.execute_batch(migration.sql).unwrap();
        }
        let (sql, values) = listing(query);
        let mut explain = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let steps = explain
            .query_map(rusqlite::params_from_iter(values), |row| row.get::<_, String>(3))
            .unwrap();
        steps.collect::<rusqlite::Result<Vec<_>>>().unwrap().join("; ")
    }

    fn query() -> RecordQuery {
        let tenant = Some(TenantId::local());
        RecordQuery { kind: "run", tenant, newest_first: true, limit: 9, ..RecordQuery::default() }
    }

    #[test]
    fn lists_are_read_by_an_index_in_their_order() {
        let text = |value: &str| Some(value.to_owned());
        let after = Some(shikiri_model::record::RecordPosition {
            created_at: Timestamp::from_millis(5),
            id: "run_1".to_owned(),
        });
        let by_state = RecordQuery { state: text("failed"), ..query() };
        let by_parent = RecordQuery { parent: text("cnv_1"), ..query() };
        let both = RecordQuery { parent: text("cnv_1"), ..by_state.clone() };
        for (query, index) in [
            (query(), "records_in_order (kind=? AND tenant=?"),
            (by_state.clone(), "records_by_state (kind=? AND tenant=? AND state=?"),
            (by_parent, "records_by_parent (kind=? AND tenant=? AND parent=?"),
            (both, "records_by_parent (kind=? AND tenant=? AND parent=?"),
        ] {
            for newest_first in [true, false] {
                for after in [None, after.clone()] {
                    let query = RecordQuery { newest_first, after, ..query.clone() };
                    let plan = plan(query.clone());
                    assert!(plan.contains(&format!("INDEX {index}")), "{query:?}: {plan}");
                    assert!(!plan.contains("TEMP B-TREE"), "{query:?}: {plan}");
                }
            }
        }
    }
}
