//! Loads and locks the rows that a batch names, with a few statements for any batch size.
//!
//! Rows are locked table by table in a fixed order, and within a table in the order of their names,
//! so that nodes cannot deadlock. The time is read after the last lock was taken.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use shikiri_model::event::StreamId;
use shikiri_model::record::RecordKey;
use shikiri_model::time::Timestamp;
use shikiri_model::total::TotalKey;
use sqlx::Row;
use sqlx::postgres::PgConnection;

use super::row_mapping::{self, clock_ms, record_columns, signed, unsigned};
use super::total_rows::load_totals;
use crate::batch_decision::{BatchNeeds, LoadedRows, StreamRow};
use crate::clock::Clock;
use crate::commit::Commit;

/// The rows that exist, for the writer. The decision does not return them.
#[derive(Debug, Default)]
pub(super) struct ExistingRows {
    pub(super) streams: HashMap<StreamId, i64>,
    pub(super) leases: HashSet<String>,
    pub(super) records: HashSet<RecordKey>,
    pub(super) totals: HashSet<TotalKey>,
    /// The slot of this writer's totals.
    pub(super) slot: i16,
}

pub(super) async fn load(
    tx: &mut PgConnection,
    batch: &[Commit],
    clock: Option<&Arc<dyn Clock>>,
    slot: i16,
) -> Result<(LoadedRows, ExistingRows), sqlx::Error> {
    let needs = BatchNeeds::of(batch);
    let mut loaded = LoadedRows::default();
    let mut known = ExistingRows { slot, ..ExistingRows::default() };
    load_leases(tx, batch, &needs, &mut loaded).await?;
    load_streams(tx, &needs, &mut loaded, &mut known).await?;
    load_records(tx, &needs, &mut loaded).await?;
    load_totals(tx, &needs, &mut loaded, slot).await?;
    load_uniques(tx, &needs, &mut loaded).await?;
    (loaded.now, loaded.lease_now) = match clock {
        Some(clock) => (clock.now(), clock.lease_now()),
        None => database_time(tx).await.map(|ms| (Timestamp::from_millis(ms), ms))?,
    };
    load_candidates(tx, &needs, &mut loaded).await?;
    known.totals.extend(loaded.totals.keys().cloned());
    known.leases.extend(loaded.leases.keys().cloned());
    known.records.extend(loaded.records.keys().cloned());
    known.records.extend(loaded.candidates.iter().map(|record| record.key.clone()));
    Ok((loaded, known))
}

async fn database_time(tx: &mut PgConnection) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(concat!("SELECT ", clock_ms!())).fetch_one(tx).await
}

async fn load_leases(
    tx: &mut PgConnection,
    batch: &[Commit],
    needs: &BatchNeeds<'_>,
    loaded: &mut LoadedRows,
) -> Result<(), sqlx::Error> {
    if needs.leases.is_empty() {
        return Ok(());
    }
    // One statement with one lock mode for all: two statements (changed leases, then guards) could
    // deadlock. A batch without lease changes, which is usual, takes shared locks.
    let sql = if batch.iter().any(|commit| !commit.leases.is_empty()) {
        "SELECT name, owner, fence, expires_at FROM leases WHERE name = ANY($1)
         ORDER BY name FOR UPDATE"
    } else {
        "SELECT name, owner, fence, expires_at FROM leases WHERE name = ANY($1)
         ORDER BY name FOR SHARE"
    };
    let names: Vec<&str> = needs.leases.iter().copied().collect();
    for row in sqlx::query(sql).bind(names).fetch_all(tx).await? {
        let lease = row_mapping::lease(&row)?;
        loaded.leases.insert(lease.name.clone(), lease);
    }
    Ok(())
}

/// The next number of a stream is taken under this lock. A missing stream is inserted after the
/// decision, and only if a commit to it was accepted. If another node was faster, the insert finds
/// its row and the batch is retried. Inserting first would need a clean-up for every refused
/// commit.
async fn load_streams(
    tx: &mut PgConnection,
    needs: &BatchNeeds<'_>,
    loaded: &mut LoadedRows,
    known: &mut ExistingRows,
) -> Result<(), sqlx::Error> {
    if needs.streams.is_empty() {
        return Ok(());
    }
    let sql = "SELECT id, name, tenant, head, closed FROM streams WHERE name = ANY($1)
               ORDER BY name FOR UPDATE";
    let names: Vec<&str> = needs.streams.iter().map(|stream| stream.as_str()).collect();
    for row in sqlx::query(sql).bind(names).fetch_all(tx).await? {
        let stream = StreamId::new(row.try_get::<&str, _>("name")?);
        let state = StreamRow {
            tenant: row_mapping::tenant(&row)?,
            head: unsigned(row.try_get("head")?),
            closed: row.try_get("closed")?,
        };
        known.streams.insert(stream.clone(), row.try_get("id")?);
        loaded.streams.insert(stream, state);
    }
    Ok(())
}

async fn load_records(
    tx: &mut PgConnection,
    needs: &BatchNeeds<'_>,
    loaded: &mut LoadedRows,
) -> Result<(), sqlx::Error> {
    if needs.records.is_empty() {
        return Ok(());
    }
    let keys: Vec<&RecordKey> = needs.records.iter().copied().collect();
    let sql = concat!(
        "SELECT k.nth, ",
        record_columns!(),
        " FROM unnest($1::text[], $2::text[], $3::text[])
              WITH ORDINALITY AS k (kind, tenant, id, nth)
          JOIN records r ON r.kind = k.kind AND r.tenant = k.tenant AND r.id = k.id
          ORDER BY k.nth FOR UPDATE OF r"
    );
    let query = sqlx::query(sql)
        .bind(keys.iter().map(|key| key.kind).collect::<Vec<_>>())
        .bind(keys.iter().map(|key| key.tenant.as_str()).collect::<Vec<_>>())
        .bind(keys.iter().map(|key| key.id.as_str()).collect::<Vec<_>>());
    for row in query.fetch_all(tx).await? {
        let Some(key) = nth(&keys, &row)? else { continue };
        loaded.records.insert((*key).clone(), row_mapping::record(&row, key.kind)?);
    }
    Ok(())
}

/// Not locked: if another node takes the value in between, the write violates the unique index and
/// the batch is retried.
async fn load_uniques(
    tx: &mut PgConnection,
    needs: &BatchNeeds<'_>,
    loaded: &mut LoadedRows,
) -> Result<(), sqlx::Error> {
    if needs.uniques.is_empty() {
        return Ok(());
    }
    let slots: Vec<_> = needs.uniques.iter().copied().collect();
    let sql = "SELECT k.nth, r.id FROM unnest($1::text[], $2::text[], $3::text[])
                   WITH ORDINALITY AS k (kind, tenant, uniq, nth)
               JOIN records r ON r.kind = k.kind AND r.tenant = k.tenant AND r.uniq = k.uniq";
    let query = sqlx::query(sql)
        .bind(slots.iter().map(|slot| slot.0).collect::<Vec<_>>())
        .bind(slots.iter().map(|slot| slot.1.as_str()).collect::<Vec<_>>())
        .bind(slots.iter().map(|slot| slot.2).collect::<Vec<_>>());
    for row in query.fetch_all(tx).await? {
        let Some((kind, tenant, unique)) = nth(&slots, &row)? else { continue };
        let slot = (*kind, (*tenant).clone(), (*unique).to_owned());
        loaded.uniques.insert(slot, row.try_get("id")?);
    }
    Ok(())
}

/// Rows that another node has locked are skipped, because they are being claimed there.
async fn load_candidates(
    tx: &mut PgConnection,
    needs: &BatchNeeds<'_>,
    loaded: &mut LoadedRows,
) -> Result<(), sqlx::Error> {
    // Equal claims are queried once.
    let mut asked = Vec::new();
    for claim in &needs.claims {
        let question = (claim.kind, claim.tenant.as_ref(), claim.parent.as_deref());
        if claim.limit > 0 && !asked.contains(&question) {
            asked.push(question);
        }
    }
    if asked.is_empty() {
        return Ok(());
    }
    let sql = concat!(
        "SELECT k.nth, r.* FROM unnest($1::text[], $2::text[], $3::text[])
             WITH ORDINALITY AS k (kind, tenant, parent, nth)
         CROSS JOIN LATERAL (SELECT ",
        record_columns!(),
        " FROM records r
             WHERE r.kind = k.kind AND r.due_at <= $4
               AND (k.tenant IS NULL OR r.tenant = k.tenant)
               AND (k.parent IS NULL OR r.parent = k.parent)
             ORDER BY r.due_at, r.tenant, r.id LIMIT $5
             FOR UPDATE SKIP LOCKED) r"
    );
    let query = sqlx::query(sql)
        .bind(asked.iter().map(|(kind, ..)| *kind).collect::<Vec<_>>())
        .bind(asked.iter().map(|(_, tenant, _)| tenant.map(|t| t.as_str())).collect::<Vec<_>>())
        .bind(asked.iter().map(|(.., parent)| *parent).collect::<Vec<_>>())
        .bind(loaded.now.as_millis())
        .bind(signed(needs.candidates_per_claim() as u64));
    let mut seen = HashSet::new();
    for row in query.fetch_all(tx).await? {
        let Some((kind, ..)) = nth(&asked, &row)? else { continue };
        let record = row_mapping::record(&row, kind)?;
        if seen.insert(record.key.clone()) {
            loaded.candidates.push(record);
        }
    }
    Ok(())
}

/// The index of the claim that a row belongs to, by `WITH ORDINALITY`.
fn nth<'a, T>(asked: &'a [T], row: &sqlx::postgres::PgRow) -> Result<Option<&'a T>, sqlx::Error> {
    let nth: i64 = row.try_get("nth")?;
    Ok(usize::try_from(nth - 1).ok().and_then(|index| asked.get(index)))
}
