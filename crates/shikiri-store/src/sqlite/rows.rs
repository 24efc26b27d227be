//! Loads the rows that a batch names and writes what was decided, inside the batch's transaction.

use std::collections::{HashMap, HashSet};

use rusqlite::{Connection, OptionalExtension, Result, Row, params};
use shikiri_model::event::StreamId;
use shikiri_model::ids::TenantId;
use shikiri_model::lease::Lease;
use shikiri_model::record::{Columns, Record, RecordKey};
use shikiri_model::time::Timestamp;

use super::fault::{signed, unsigned};
use super::tail::{Own, note_quiet};
use crate::settle::{Loaded, Needs, StreamRow, StreamWrite, Writes};

/// A stream as the writer remembers it between batches.
#[derive(Clone, Debug)]
pub(super) struct KnownStream {
    pub(super) id: i64,
    pub(super) row: StreamRow,
}

/// Streams that the writer remembers; beyond this it forgets them all and starts again.
const KNOWN_STREAMS: usize = 16_384;

/// Streams by name. Good only while nobody else writes: the writer empties it when another
/// connection has committed, or when a transaction of its own did not.
#[derive(Debug, Default)]
pub(super) struct KnownStreams(HashMap<StreamId, KnownStream>);

impl KnownStreams {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    fn make_room(&mut self, coming: usize) {
        if self.0.len() + coming > KNOWN_STREAMS {
            self.0.clear();
        }
    }
}

/// Everything but the times, which the caller has.
pub(super) fn load(
    connection: &Connection,
    needs: &Needs<'_>,
    known: &mut KnownStreams,
    loaded: &mut Loaded,
) -> Result<()> {
    load_streams(connection, needs, known, loaded)?;
    load_leases(connection, needs, loaded)?;
    load_records(connection, needs, loaded)?;
    load_candidates(connection, needs, loaded)
}

fn load_streams(
    connection: &Connection,
    needs: &Needs<'_>,
    known: &mut KnownStreams,
    loaded: &mut Loaded,
) -> Result<()> {
    known.make_room(needs.streams.len());
    loaded.streams.reserve(needs.streams.len());
    for stream in &needs.streams {
        if !known.0.contains_key(*stream) {
            let mut select = connection
                .prepare_cached("SELECT id, tenant, head, closed FROM streams WHERE name = ?1")?;
            if let Some(found) = select.query_row([stream.as_str()], known_stream).optional()? {
                known.0.insert((*stream).clone(), found);
            }
        }
        if let Some(stream_known) = known.0.get(*stream) {
            loaded.streams.insert((*stream).clone(), stream_known.row.clone());
        }
    }
    Ok(())
}

fn load_leases(connection: &Connection, needs: &Needs<'_>, loaded: &mut Loaded) -> Result<()> {
    if needs.leases.is_empty() {
        return Ok(());
    }
    let mut select = connection
        .prepare_cached("SELECT name, owner, fence, expires_at FROM leases WHERE name = ?1")?;
    for name in &needs.leases {
        if let Some(found) = select.query_row([name], lease).optional()? {
            loaded.leases.insert((*name).to_owned(), found);
        }
    }
    Ok(())
}

fn load_records(connection: &Connection, needs: &Needs<'_>, loaded: &mut Loaded) -> Result<()> {
    if needs.records.is_empty() {
        return Ok(());
    }
    let mut select = connection.prepare_cached(
        "SELECT tenant, id, version, attempts, state, parent, owner, uniq, due_at, created_at,
                updated_at, doc
         FROM records WHERE kind = ?1 AND tenant = ?2 AND id = ?3",
    )?;
    for key in &needs.records {
        let found = select
            .query_row([key.kind, key.tenant.as_str(), &key.id], |row| record(key.kind, row))
            .optional()?;
        if let Some(found) = found {
            loaded.records.insert((*key).clone(), found);
        }
    }
    let mut select = connection
        .prepare_cached("SELECT id FROM records WHERE kind = ?1 AND tenant = ?2 AND uniq = ?3")?;
    for (kind, tenant, unique) in &needs.uniques {
        let holder =
            select.query_row([*kind, tenant.as_str(), unique], |row| row.get(0)).optional()?;
        if let Some(id) = holder {
            loaded.uniques.insert((*kind, (*tenant).clone(), (*unique).to_owned()), id);
        }
    }
    Ok(())
}

fn load_candidates(connection: &Connection, needs: &Needs<'_>, loaded: &mut Loaded) -> Result<()> {
    if needs.claims.is_empty() {
        return Ok(());
    }
    let mut due = connection.prepare_cached(
        "SELECT tenant, id, version, attempts, state, parent, owner, uniq, due_at, created_at,
                updated_at, doc
         FROM records
         WHERE kind = ?1 AND due_at <= ?2 AND (?3 IS NULL OR tenant = ?3)
           AND (?4 IS NULL OR parent = ?4)
         ORDER BY due_at, tenant, id LIMIT ?5",
    )?;
    let limit = signed(needs.candidates_per_claim() as u64);
    // Many workers claim alike at once: what is the same for all is read once.
    let asked: HashSet<_> =
        needs.claims.iter().map(|claim| (claim.kind, &claim.tenant, &claim.parent)).collect();
    for (kind, tenant, parent) in asked {
        let tenant = tenant.as_ref().map(TenantId::as_str);
        let rows = due
            .query_map(params![kind, loaded.now.as_millis(), tenant, parent, limit], |row| {
                record(kind, row)
            })?;
        for found in rows {
            loaded.candidates.push(found?);
        }
    }
    Ok(())
}

/// Writes it all; returns what other processes will find and this one knows already.
pub(super) fn write(
    connection: &Connection,
    writes: &Writes,
    now: Timestamp,
    known: &mut KnownStreams,
) -> Result<Own> {
    let last_event = write_streams(connection, &writes.streams, now, known)?;
    let quiet: Vec<_> = writes.streams.iter().filter(|s| s.chunks.is_empty()).collect();
    let quiet = match quiet.last() {
        Some(last) => Some(note_quiet(connection, quiet.len() as u64, last.stream.as_str())?),
        None => None,
    };
    write_leases(connection, &writes.leases)?;
    delete_records(connection, &writes.deleted)?;
    vacate_uniques(connection, &writes.vacated)?;
    write_records(connection, &writes.records)?;
    Ok(Own { last_event, quiet })
}

fn write_streams(
    connection: &Connection,
    streams: &[StreamWrite],
    now: Timestamp,
    known: &mut KnownStreams,
) -> Result<Option<i64>> {
    if streams.is_empty() {
        return Ok(None);
    }
    let mut last_event = None;
    let mut head =
        connection.prepare_cached("UPDATE streams SET head = ?2, closed = ?3 WHERE id = ?1")?;
    let mut note = connection.prepare_cached("UPDATE streams SET note = ?2 WHERE id = ?1")?;
    let mut chunk = connection.prepare_cached(
        "INSERT INTO events (stream, first_seq, last_seq, at, body) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    for stream in streams {
        let row = &stream.row;
        let id = match known.0.get_mut(&stream.stream) {
            Some(stream_known) => {
                head.execute(params![stream_known.id, signed(row.head), row.closed])?;
                stream_known.row.clone_from(row);
                stream_known.id
            }
            None => insert_stream(connection, stream, known)?,
        };
        if let Some(text) = &stream.note {
            note.execute(params![id, text])?;
        }
        for written in &stream.chunks {
            last_event = Some(chunk.insert(params![
                id,
                signed(written.first_seq()),
                signed(written.last_seq()),
                now.as_millis(),
                written.body()
            ])?);
        }
    }
    Ok(last_event)
}

fn insert_stream(
    connection: &Connection,
    stream: &StreamWrite,
    known: &mut KnownStreams,
) -> Result<i64> {
    let row = stream.row.clone();
    let mut insert = connection.prepare_cached(
        "INSERT INTO streams (name, tenant, head, closed) VALUES (?1, ?2, ?3, ?4)",
    )?;
    let id = insert.insert(params![
        stream.stream.as_str(),
        row.tenant.as_str(),
        signed(row.head),
        row.closed
    ])?;
    known.0.insert(stream.stream.clone(), KnownStream { id, row });
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

/// Whole rows: a record that was deleted and made again in one batch is written like any other.
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

fn known_stream(row: &Row<'_>) -> Result<KnownStream> {
    Ok(KnownStream {
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
/// updated_at, doc. The kind is the one that was asked for.
pub(super) fn record(kind: &'static str, row: &Row<'_>) -> Result<Record> {
    Ok(Record {
        key: RecordKey { kind, tenant: tenant(row, 0)?, id: row.get(1)? },
        version: unsigned(row.get(2)?),
        attempts: row.get(3)?,
        created_at: Timestamp::from_millis(row.get(9)?),
        updated_at: Timestamp::from_millis(row.get(10)?),
        columns: Columns {
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
