//! Writes a decided batch, inside its transaction.

use rusqlite::{Connection, Result, params};
use shikiri_model::lease::Lease;
use shikiri_model::record::{Record, RecordKey};
use shikiri_model::time::Timestamp;

use super::error_mapping::signed;
use super::foreign_writes::{OwnWrites, record_quiet_changes};
use super::stream_cache::{CachedStream, StreamCache};
use super::total_rows::write_totals;
use crate::batch_decision::{BatchWrites, StreamWrite};

/// Writes the batch; returns the writes that are not news to this process.
pub(super) fn write(
    connection: &Connection,
    writes: &BatchWrites,
    now: Timestamp,
    known: &mut StreamCache,
    last_event: i64,
) -> Result<OwnWrites> {
    let last_event = write_streams(connection, &writes.streams, now, known, last_event)?;
    let quiet: Vec<_> = writes.streams.iter().filter(|s| s.chunks.is_empty()).collect();
    let quiet = match quiet.last() {
        Some(last) => {
            Some(record_quiet_changes(connection, quiet.len() as u64, last.stream.as_str())?)
        }
        None => None,
    };
    write_leases(connection, &writes.leases)?;
    delete_records(connection, &writes.deleted)?;
    vacate_uniques(connection, &writes.vacated)?;
    write_records(connection, &writes.records)?;
    write_totals(connection, &writes.totals)?;
    Ok(OwnWrites { last_event, quiet })
}

fn write_streams(
    connection: &Connection,
    streams: &[StreamWrite],
    now: Timestamp,
    known: &mut StreamCache,
    mut last_event: i64,
) -> Result<i64> {
    if streams.is_empty() {
        return Ok(last_event);
    }
    let mut head = connection.prepare_cached(
        "UPDATE streams SET head = ?2, closed = ?3, bytes = bytes + ?4 WHERE id = ?1",
    )?;
    let mut note = connection.prepare_cached("UPDATE streams SET note = ?2 WHERE id = ?1")?;
    let mut chunk = connection.prepare_cached(
        "INSERT INTO events (id, stream, first_seq, last_seq, at, body)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    for stream in streams {
        let row = &stream.row;
        let id = match known.0.get_mut(&stream.stream) {
            Some(stream_known) => {
                let bytes = signed(stream.bytes());
                head.execute(params![stream_known.id, signed(row.head), row.closed, bytes])?;
                stream_known.row.clone_from(row);
                stream_known.id
            }
            None => insert_stream(connection, stream, known)?,
        };
        if let Some(text) = &stream.note {
            note.execute(params![id, text])?;
        }
        for written in &stream.chunks {
            last_event += 1;
            chunk.execute(params![
                last_event,
                id,
                signed(written.first_seq()),
                signed(written.last_seq()),
                now.as_millis(),
                written.body()
            ])?;
        }
    }
    Ok(last_event)
}

fn insert_stream(
    connection: &Connection,
    stream: &StreamWrite,
    known: &mut StreamCache,
) -> Result<i64> {
    let row = stream.row.clone();
    let mut insert = connection.prepare_cached(
        "INSERT INTO streams (name, tenant, head, closed, bytes) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    let id = insert.insert(params![
        stream.stream.as_str(),
        row.tenant.as_str(),
        signed(row.head),
        row.closed,
        signed(stream.bytes())
    ])?;
    known.0.insert(stream.stream.clone(), CachedStream { id, row });
    Ok(id)
}

fn write_leases(connection: &Connection, leases: &[Lease]) -> Result<()> {
    if leases.is_empty() {
        return Ok(());
    }
    let mut upsert = connection.prepare_cached(
        "INSERT INTO leases (name, owner, fence, expires_at) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, fence = excluded.fence,
                                          expires_at = excluded.expires_at",
    )?;
    for lease in leases {
        upsert.execute(params![lease.name, lease.owner, signed(lease.fence), lease.expires_at])?;
    }
    Ok(())
}

fn delete_records(connection: &Connection, keys: &[RecordKey]) -> Result<()> {
    for key in keys {
        connection
            .prepare_cached("DELETE FROM records WHERE kind = ?1 AND tenant = ?2 AND id = ?3")?
            .execute([key.kind, key.tenant.as_str(), &key.id])?;
    }
    Ok(())
}

/// Writes whole rows, so that a record that was deleted and created again in one batch needs no
/// special case.
fn write_records(connection: &Connection, records: &[Record]) -> Result<()> {
    if records.is_empty() {
        return Ok(());
    }
    let mut upsert = connection.prepare_cached(
        "INSERT INTO records (kind, tenant, id, version, attempts, state, parent, owner, uniq,
                              due_at, created_at, updated_at, doc)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
         ON CONFLICT (kind, tenant, id) DO UPDATE SET
             version = excluded.version, attempts = excluded.attempts, state = excluded.state,
             parent = excluded.parent, owner = excluded.owner, uniq = excluded.uniq,
             due_at = excluded.due_at, created_at = excluded.created_at,
             updated_at = excluded.updated_at, doc = excluded.doc",
    )?;
    for Record { key, version, attempts, created_at, updated_at, columns, doc } in records {
        upsert.execute(params![
            key.kind,
            key.tenant.as_str(),
            key.id,
            signed(*version),
            attempts,
            columns.state,
            columns.parent,
            columns.owner,
            columns.unique,
            columns.due_at.map(Timestamp::as_millis),
            created_at.as_millis(),
            updated_at.as_millis(),
            doc
        ])?;
    }
    Ok(())
}

fn vacate_uniques(connection: &Connection, keys: &[RecordKey]) -> Result<()> {
    for key in keys {
        connection
            .prepare_cached(
                "UPDATE records SET uniq = NULL WHERE kind = ?1 AND tenant = ?2 AND id = ?3",
            )?
            .execute([key.kind, key.tenant.as_str(), &key.id])?;
    }
    Ok(())
}
