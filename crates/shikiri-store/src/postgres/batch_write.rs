//! Writes a decided batch: one statement per table and kind of change, for any batch size.

use std::collections::HashMap;

use shikiri_model::event::{Chunk, StreamId};
use shikiri_model::lease::Lease;
use shikiri_model::record::{Record, RecordKey};
use shikiri_model::time::Timestamp;
use sqlx::postgres::{PgArguments, PgConnection};
use sqlx::query::Query;
use sqlx::{Postgres, Row};

use super::batch_load::ExistingRows;
use super::row_mapping::signed;
use super::total_rows::write_totals;
use crate::batch_decision::{BatchWrites, StreamWrite};

#[derive(Debug)]
pub(super) enum PostgresWriteError {
    Sql(sqlx::Error),
    /// Another node inserted a row that was missing when the batch was loaded.
    Overtaken,
}

impl From<sqlx::Error> for PostgresWriteError {
    fn from(cause: sqlx::Error) -> Self {
        Self::Sql(cause)
    }
}

pub(super) async fn write(
    tx: &mut PgConnection,
    writes: &BatchWrites,
    known: &ExistingRows,
    now: Timestamp,
) -> Result<(), PostgresWriteError> {
    write_leases(tx, &writes.leases, known).await?;
    let ids = write_streams(tx, &writes.streams, known).await?;
    write_events(tx, &writes.streams, &ids, now).await?;
    delete_records(tx, &writes.deleted).await?;
    vacate_records(tx, &writes.vacated).await?;
    let (old, new): (Vec<_>, Vec<_>) =
        writes.records.iter().partition(|record| known.records.contains(&record.key));
    update_records(tx, &old).await?;
    insert_records(tx, &new).await?;
    write_totals(tx, &writes.totals, known).await
}

async fn write_leases(
    tx: &mut PgConnection,
    leases: &[Lease],
    known: &ExistingRows,
) -> Result<(), PostgresWriteError> {
    let (old, new): (Vec<_>, Vec<_>) =
        leases.iter().partition(|lease| known.leases.contains(&lease.name));
    let update = "UPDATE leases l SET owner = u.owner, fence = u.fence, expires_at = u.expires_at
                  FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[])
                      AS u (name, owner, fence, expires_at)
                  WHERE l.name = u.name";
    let insert = "INSERT INTO leases (name, owner, fence, expires_at)
                  SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[])
                  ON CONFLICT DO NOTHING";
    for (sql, leases) in [(update, old), (insert, new)] {
        if leases.is_empty() {
            continue;
        }
        let query = sqlx::query(sql)
            .bind(leases.iter().map(|lease| lease.name.as_str()).collect::<Vec<_>>())
            .bind(leases.iter().map(|lease| lease.owner.as_str()).collect::<Vec<_>>())
            .bind(leases.iter().map(|lease| signed(lease.fence)).collect::<Vec<_>>())
            .bind(leases.iter().map(|lease| lease.expires_at).collect::<Vec<_>>());
        expect_rows(query.execute(&mut *tx).await?.rows_affected(), leases.len())?;
    }
    Ok(())
}

/// The ids of all streams of the batch.
async fn write_streams<'a>(
    tx: &mut PgConnection,
    streams: &'a [StreamWrite],
    known: &ExistingRows,
) -> Result<HashMap<&'a StreamId, i64>, PostgresWriteError> {
    let mut ids = HashMap::new();
    let (mut new, old): (Vec<_>, Vec<_>) = streams.iter().partition(|write| write.is_new);
    // In the order of names, like the locks, because two nodes may create the same streams.
    new.sort_by_key(|write| &write.stream);
    if !new.is_empty() {
        let sql = "INSERT INTO streams (name, tenant, head, closed, note, bytes)
                   SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bool[],
                       $5::text[], $6::bigint[])
                   ON CONFLICT (name) DO NOTHING RETURNING id, name";
        let query = sqlx::query(sql)
            .bind(new.iter().map(|write| write.stream.as_str()).collect::<Vec<_>>())
            .bind(new.iter().map(|write| write.row.tenant.as_str()).collect::<Vec<_>>());
        let inserted = bind_state(query, &new).fetch_all(&mut *tx).await?;
        expect_rows(inserted.len() as u64, new.len())?;
        let mut by_name = HashMap::new();
        for row in &inserted {
            by_name.insert(row.try_get::<&str, _>("name")?, row.try_get::<i64, _>("id")?);
        }
        ids.extend(
            new.iter()
                .filter_map(|write| Some((&write.stream, *by_name.get(write.stream.as_str())?))),
        );
    }
    if !old.is_empty() {
        ids.extend(
            old.iter()
                .filter_map(|write| Some((&write.stream, *known.streams.get(&write.stream)?))),
        );
        let sql = "UPDATE streams s SET head = u.head, closed = u.closed,
                       note = COALESCE(u.note, s.note), bytes = s.bytes + u.bytes
                   FROM unnest($1::bigint[], $2::bigint[], $3::bool[], $4::text[], $5::bigint[])
                       AS u (id, head, closed, note, bytes)
                   WHERE s.id = u.id";
        let query = sqlx::query(sql)
            .bind(old.iter().map(|write| ids.get(&write.stream).copied()).collect::<Vec<_>>());
        let updated = bind_state(query, &old).execute(&mut *tx).await?;
        expect_rows(updated.rows_affected(), old.len())?;
    }
    Ok(ids)
}

fn bind_state<'q>(
    query: Query<'q, Postgres, PgArguments>,
    streams: &[&'q StreamWrite],
) -> Query<'q, Postgres, PgArguments> {
    query
        .bind(streams.iter().map(|write| signed(write.row.head)).collect::<Vec<_>>())
        .bind(streams.iter().map(|write| write.row.closed).collect::<Vec<_>>())
        .bind(streams.iter().map(|write| write.note.as_deref()).collect::<Vec<_>>())
        .bind(streams.iter().map(|write| signed(write.bytes())).collect::<Vec<_>>())
}

async fn write_events(
    tx: &mut PgConnection,
    streams: &[StreamWrite],
    ids: &HashMap<&StreamId, i64>,
    now: Timestamp,
) -> Result<(), PostgresWriteError> {
    let chunks: Vec<(i64, &Chunk)> = streams
        .iter()
        .filter_map(|write| Some((*ids.get(&write.stream)?, &write.chunks)))
        .flat_map(|(id, chunks)| chunks.iter().map(move |chunk| (id, chunk)))
        .collect();
    if chunks.is_empty() {
        return Ok(());
    }
    let sql = "INSERT INTO events (stream, first_seq, last_seq, at, body)
               SELECT u.stream, u.first_seq, u.last_seq, $4, u.body
               FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $5::text[])
                   AS u (stream, first_seq, last_seq, body)";
    sqlx::query(sql)
        .bind(chunks.iter().map(|(id, _)| *id).collect::<Vec<_>>())
        .bind(chunks.iter().map(|(_, chunk)| signed(chunk.first_seq())).collect::<Vec<_>>())
        .bind(chunks.iter().map(|(_, chunk)| signed(chunk.last_seq())).collect::<Vec<_>>())
        .bind(now.as_millis())
        .bind(chunks.iter().map(|(_, chunk)| chunk.body()).collect::<Vec<_>>())
        .execute(tx)
        .await?;
    Ok(())
}

async fn delete_records(
    tx: &mut PgConnection,
    keys: &[RecordKey],
) -> Result<(), PostgresWriteError> {
    let sql = "DELETE FROM records r
               USING unnest($1::text[], $2::text[], $3::text[]) AS k (kind, tenant, id)
               WHERE r.kind = k.kind AND r.tenant = k.tenant AND r.id = k.id";
    at_keys(tx, sql, keys).await
}

/// Runs before puts: the unique index is checked row by row, and two records may swap values.
async fn vacate_records(
    tx: &mut PgConnection,
    keys: &[RecordKey],
) -> Result<(), PostgresWriteError> {
    let sql = "UPDATE records r SET uniq = NULL
               FROM unnest($1::text[], $2::text[], $3::text[]) AS k (kind, tenant, id)
               WHERE r.kind = k.kind AND r.tenant = k.tenant AND r.id = k.id";
    at_keys(tx, sql, keys).await
}

async fn at_keys(
    tx: &mut PgConnection,
    sql: &'static str,
    keys: &[RecordKey],
) -> Result<(), PostgresWriteError> {
    if keys.is_empty() {
        return Ok(());
    }
    sqlx::query(sql)
        .bind(keys.iter().map(|key| key.kind).collect::<Vec<_>>())
        .bind(keys.iter().map(|key| key.tenant.as_str()).collect::<Vec<_>>())
        .bind(keys.iter().map(|key| key.id.as_str()).collect::<Vec<_>>())
        .execute(tx)
        .await?;
    Ok(())
}

/// Includes `created_at`: the batch may have deleted the record and created it again.
async fn update_records(
    tx: &mut PgConnection,
    records: &[&Record],
) -> Result<(), PostgresWriteError> {
    let sql = "UPDATE records r SET version = u.version, attempts = u.attempts, state = u.state,
                   parent = u.parent, owner = u.owner, uniq = u.uniq, due_at = u.due_at,
                   created_at = u.created_at, updated_at = u.updated_at, doc = u.doc
               FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::int[], $6::text[],
                   $7::text[], $8::text[], $9::text[], $10::bigint[], $11::bigint[],
                   $12::bigint[], $13::text[])
                   AS u (kind, tenant, id, version, attempts, state, parent, owner, uniq, due_at,
                         created_at, updated_at, doc)
               WHERE r.kind = u.kind AND r.tenant = u.tenant AND r.id = u.id";
    put_records(tx, sql, records).await
}

/// A plain insert: a row that was missing when the batch was decided belongs to another node if it
/// exists now.
async fn insert_records(
    tx: &mut PgConnection,
    records: &[&Record],
) -> Result<(), PostgresWriteError> {
    let sql =
        "INSERT INTO records (kind, tenant, id, version, attempts, state, parent, owner, uniq,
                   due_at, created_at, updated_at, doc)
               SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::int[],
                   $6::text[], $7::text[], $8::text[], $9::text[], $10::bigint[], $11::bigint[],
                   $12::bigint[], $13::text[])
               ON CONFLICT DO NOTHING";
    put_records(tx, sql, records).await
}

async fn put_records(
    tx: &mut PgConnection,
    sql: &'static str,
    records: &[&Record],
) -> Result<(), PostgresWriteError> {
    if records.is_empty() {
        return Ok(());
    }
    fn all<'a, T>(records: &[&'a Record], of: impl Fn(&'a Record) -> T) -> Vec<T> {
        records.iter().map(|record| of(record)).collect()
    }
    let written = sqlx::query(sql)
        .bind(all(records, |r| r.key.kind))
        .bind(all(records, |r| r.key.tenant.as_str()))
        .bind(all(records, |r| r.key.id.as_str()))
        .bind(all(records, |r| signed(r.version)))
        .bind(all(records, |r| i32::try_from(r.attempts).unwrap_or(i32::MAX)))
        .bind(all(records, |r| r.columns.state.as_str()))
        .bind(all(records, |r| r.columns.parent.as_deref()))
        .bind(all(records, |r| r.columns.owner.as_deref()))
        .bind(all(records, |r| r.columns.unique.as_deref()))
        .bind(all(records, |r| r.columns.due_at.map(Timestamp::as_millis)))
        .bind(all(records, |r| r.created_at.as_millis()))
        .bind(all(records, |r| r.updated_at.as_millis()))
        .bind(all(records, |r| r.doc.as_str()))
        .execute(tx)
        .await?;
    expect_rows(written.rows_affected(), records.len())
}

pub(super) fn expect_rows(written: u64, expected: usize) -> Result<(), PostgresWriteError> {
    if written == expected as u64 { Ok(()) } else { Err(PostgresWriteError::Overtaken) }
}
