//! Writes other than commits: retention, erasure, the probe, and the reset of leases after a
//! restart.

use std::collections::HashSet;

use rusqlite::{Connection, OptionalExtension, Result, params};
use shikiri_model::event::StreamId;
use shikiri_model::ids::TenantId;
use shikiri_model::lease::{LeaseGuard, LeaseTime};
use shikiri_model::time::Timestamp;
use shikiri_sqlite::{hook_rows, migrate};

use super::error_mapping::signed;
use super::foreign_writes::{erase_keeping_last_id, record_quiet_changes};
use super::reader_pool::SqliteReadError;
use crate::error::StoreError;

/// The most chunks in one removal, so that a batch of commits waits no longer than for another
/// batch.
pub(super) const SLICE: usize = 128;

/// Chunks are in the order of their times unless the clock was changed. After this many young
/// chunks in a row, the search ends.
const UNORDERED: u32 = 1_000;

/// A chunk to remove: its id, its stream and its last seq.
pub(super) type OldChunk = (i64, i64, i64);

/// Finds up to `limit` chunks of closed streams from before `before`, oldest first.
pub(super) fn old_chunks(
    connection: &Connection,
    before: Timestamp,
    limit: u32,
) -> Result<Vec<OldChunk>> {
    let mut select = connection.prepare_cached(
        "SELECT events.id, events.stream, events.last_seq, events.at, streams.closed
         FROM events CROSS JOIN streams ON streams.id = events.stream ORDER BY events.id",
    )?;
    let mut rows = select.query([])?;
    let mut young: HashSet<i64> = HashSet::new();
    let mut old = Vec::new();
    let mut young_in_a_row = 0;
    while old.len() < limit as usize
        && young_in_a_row < UNORDERED
        && let Some(row) = rows.next()?
    {
        let chunk: OldChunk = (row.get(0)?, row.get(1)?, row.get(2)?);
        if row.get::<_, i64>(3)? >= before.as_millis() {
            young.insert(chunk.1);
            young_in_a_row += 1;
            continue;
        }
        young_in_a_row = 0;
        // A chunk after a kept one of the same stream stays, because removing it would leave a
        // hole.
        if row.get(4)? && !young.contains(&chunk.1) {
            old.push(chunk);
        }
    }
    Ok(old)
}

/// Removes some of a tenant's rows; returns false when nothing is left.
pub(super) fn erase(connection: &Connection, tenant: &TenantId) -> Result<bool> {
    let mut select = connection.prepare_cached(
        "SELECT events.id, events.stream, events.last_seq
         FROM streams JOIN events ON events.stream = streams.id
         WHERE streams.tenant = ?1 ORDER BY events.stream, events.last_seq LIMIT ?2",
    )?;
    let gone = select
        .query_map(params![tenant.as_str(), signed(SLICE as u64)], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })?
        .collect::<Result<Vec<_>>>()?;
    if !gone.is_empty() {
        remove(connection, &gone)?;
        return Ok(true);
    }
    let mut removed = 0;
    for sql in [
        "DELETE FROM streams WHERE id IN (SELECT id FROM streams WHERE tenant = ?1 LIMIT ?2)",
        "DELETE FROM records WHERE rowid IN (SELECT rowid FROM records WHERE tenant = ?1 LIMIT ?2)",
    ] {
        removed += connection.execute(sql, params![tenant.as_str(), signed(SLICE as u64)])? as u64;
    }
    // Last, because they count the records.
    if removed == 0 {
        removed += connection.execute(
            "DELETE FROM totals WHERE rowid IN (SELECT rowid FROM totals WHERE tenant = ?1 LIMIT ?2)",
            params![tenant.as_str(), signed(SLICE as u64)],
        )? as u64;
    }
    removed += hook_rows::erase(connection, tenant.as_str(), SLICE as u32)?;
    if removed > 0 {
        // More than one change, so that every subscriber in other processes is woken.
        record_quiet_changes(connection, 2, "")?;
    }
    Ok(removed > 0)
}

/// Removes some events of a stream, at last the stream itself; returns false when nothing is left.
pub(super) fn erase_stream(
    connection: &Connection,
    tenant: &TenantId,
    stream: &StreamId,
) -> Result<bool> {
    let mut select = connection.prepare_cached(
        "SELECT events.id, events.stream, events.last_seq
         FROM streams JOIN events ON events.stream = streams.id
         WHERE streams.name = ?2 AND streams.tenant = ?1 ORDER BY events.last_seq LIMIT ?3",
    )?;
    let slice = signed(SLICE as u64);
    let gone = select
        .query_map(params![tenant.as_str(), stream.as_str(), slice], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })?
        .collect::<Result<Vec<_>>>()?;
    if !gone.is_empty() {
        remove(connection, &gone)?;
        return Ok(true);
    }
    let sql = "DELETE FROM streams WHERE name = ?2 AND tenant = ?1";
    let removed = connection.execute(sql, params![tenant.as_str(), stream.as_str()])?;
    if removed > 0 {
        // More than one change, so that every subscriber in other processes is woken.
        record_quiet_changes(connection, 2, "")?;
    }
    Ok(false)
}

/// Removes chunks from the start of each stream; returns the number of removed chunks.
pub(super) fn remove(connection: &Connection, chunks: &[OldChunk]) -> Result<u64> {
    let mut delete = connection
        .prepare_cached("DELETE FROM events WHERE id = ?1 RETURNING octet_length(body)")?;
    let mut raise = connection.prepare_cached(
        "UPDATE streams SET first_kept = max(first_kept, ?2), bytes = bytes - ?3 WHERE id = ?1",
    )?;
    erase_keeping_last_id(connection, || {
        let mut removed = 0;
        for (id, stream, last_seq) in chunks {
            let bytes: Option<i64> = delete.query_row([id], |row| row.get(0)).optional()?;
            removed += u64::from(bytes.is_some());
            raise.execute([*stream, last_seq + 1, bytes.unwrap_or(0)])?;
        }
        Ok(removed)
    })
}

pub(super) fn forget_lease(
    connection: &Connection,
    guard: &LeaseGuard,
    now: LeaseTime,
) -> Result<()> {
    connection
        .execute(
            "DELETE FROM leases WHERE name = ?1 AND fence = ?2 AND expires_at <= ?3",
            params![guard.name, signed(guard.fence), now],
        )
        .map(drop)
}

/// A newer program may have migrated the file after this one opened it.
pub(super) fn refuse_newer(connection: &Connection) -> std::result::Result<(), SqliteReadError> {
    let found = migrate::version(connection)?.unwrap_or(0);
    let known = migrate::latest_version();
    if found > known {
        return Err(StoreError::newer_schema(found, known).into());
    }
    Ok(())
}

pub(super) fn probe(connection: &Connection, now: Timestamp) -> Result<()> {
    set_fact(connection, "probe", &now.as_millis().to_string())
}

/// Lease times count from the machine's start. After a restart they are meaningless, and all
/// holders are gone, so all leases are marked as lapsed.
pub(super) fn record_boot(connection: &Connection, boot: &str) -> Result<()> {
    // Another process may have done it first.
    if is_boot_recorded(connection, boot)? {
        return Ok(());
    }
    connection.execute("UPDATE leases SET expires_at = 0", [])?;
    set_fact(connection, "boot", boot)
}

pub(super) fn is_boot_recorded(connection: &Connection, boot: &str) -> Result<bool> {
    let noted: Option<String> = connection
        .query_row("SELECT value FROM facts WHERE name = 'boot'", [], |row| row.get(0))
        .optional()?;
    Ok(noted.as_deref() == Some(boot))
}

/// The id of the machine's present boot, if the system provides one.
pub(super) fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map_or_else(|_| "unknown".to_owned(), |id| id.trim().to_owned())
}

pub(super) fn set_fact(connection: &Connection, name: &str, value: &str) -> Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO facts (name, value) VALUES (?1, ?2)
             ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        )?
        .execute([name, value])
        .map(drop)
}
