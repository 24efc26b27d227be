//! Loads the rows that a batch names, inside the batch's transaction.

use std::collections::HashSet;

use rusqlite::{Connection, OptionalExtension, Result, params};
use shikiri_model::ids::TenantId;

use super::error_mapping::signed;
use super::row_mapping::{known_stream, lease, record};
use super::stream_cache::StreamCache;
use super::total_rows::load_totals;
use crate::batch_decision::{BatchNeeds, LoadedRows};

/// Loads everything except the times, which the caller has.
pub(super) fn load(
    connection: &Connection,
    needs: &BatchNeeds<'_>,
    known: &mut StreamCache,
    loaded: &mut LoadedRows,
) -> Result<()> {
    load_streams(connection, needs, known, loaded)?;
    load_leases(connection, needs, loaded)?;
    load_records(connection, needs, loaded)?;
    load_totals(connection, needs, loaded)?;
    load_candidates(connection, needs, loaded)
}

fn load_streams(
    connection: &Connection,
    needs: &BatchNeeds<'_>,
    known: &mut StreamCache,
    loaded: &mut LoadedRows,
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

fn load_leases(
    connection: &Connection,
    needs: &BatchNeeds<'_>,
    loaded: &mut LoadedRows,
) -> Result<()> {
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

fn load_records(
    connection: &Connection,
    needs: &BatchNeeds<'_>,
    loaded: &mut LoadedRows,
) -> Result<()> {
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

fn load_candidates(
    connection: &Connection,
    needs: &BatchNeeds<'_>,
    loaded: &mut LoadedRows,
) -> Result<()> {
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
    // Many workers make the same claim at once. Equal claims are queried once.
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
