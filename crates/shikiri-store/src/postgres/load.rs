//! Loads and locks the rows that a batch names: a handful of statements, whatever its size.
//!
//! Rows are locked table by table in a fixed order, and within a table in the order of their
//! names, so that nodes wait for each other but never in a circle. The time is taken when no
//! lock is waited for any more.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use shikiri_model::event::StreamId;
use shikiri_model::record::RecordKey;
use shikiri_model::time::Timestamp;
use sqlx::Row;
use sqlx::postgres::PgConnection;

use super::rows::{self, clock_ms, record_columns, signed, unsigned};
use crate::clock::Clock;
use crate::commit::Commit;
use crate::settle::{Loaded, Needs, StreamRow};

/// Which rows exist, for the writing: `settle` keeps the rest.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) streams: HashMap<StreamId, i64>,
    pub(super) leases: HashSet<String>,
    pub(super) records: HashSet<RecordKey>,
}

pub(super) async fn load(
    tx: &mut PgConnection,
    batch: &[Commit],
    clock: Option<&Arc<dyn Clock>>,
) -> Result<(Loaded, Known), sqlx::Error> {
    let needs = Needs::of(batch);
    let mut loaded = Loaded::default();
    let mut known = Known::default();
    load_leases(tx, batch, &needs, &mut loaded).await?;
    load_streams(tx, &needs, &mut loaded, &mut known).await?;
    load_records(tx, &needs, &mut loaded).await?;
    load_uniques(tx, &needs, &mut loaded).await?;
    (loaded.now, loaded.lease_now) = match clock {
        Some(clock) => (clock.now(), clock.lease_now()),
        None => database_time(tx).await.map(|ms| (Timestamp::from_millis(ms), ms))?,
    };
    load_candidates(tx, &needs, &mut loaded).await?;
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
    needs: &Needs<'_>,
    loaded: &mut Loaded,
) -> Result<(), sqlx::Error> {
    if needs.leases.is_empty() {
        return Ok(());
    }
    // One statement with one mode for all: two (changed leases, then guards) could wait for each
    // other's halves in a circle. Only a batch without changes, the usual one, shares its locks.
    let sql = if batch.iter().any(|commit| !commit.leases.is_empty()) {
        "SELECT name, owner, fence, expires_at FROM leases WHERE name = ANY($1)
         ORDER BY name FOR UPDATE"
    } else {
        "SELECT name, owner, fence, expires_at FROM leases WHERE name = ANY($1)
         ORDER BY name FOR SHARE"
    };
    let names: Vec<&str> = needs.leases.iter().copied().collect();
    for row in sqlx::query(sql).bind(names).fetch_all(tx).await? {
        let lease = rows::lease(&row)?;
        loaded.leases.insert(lease.name.clone(), lease);
    }
    Ok(())
}

/// A stream's next number is taken under this lock. A stream that is missing here is inserted
/// after settling, and only if a commit on it was accepted: if another node was faster, the
/// insert finds its row and the batch is tried again. Inserting first would need a clean-up for
/// every refused commit.
async fn load_streams(
    tx: &mut PgConnection,
    needs: &Needs<'_>,
    loaded: &mut Loaded,
    known: &mut Known,
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
            tenant: rows::tenant(&row)?,
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
    needs: &Needs<'_>,
    loaded: &mut Loaded,
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
        loaded.records.insert((*key).clone(), rows::record(&row, key.kind)?);
    }
    Ok(())
}

/// Not locked: if another node takes the value meanwhile, our write runs into its unique index
/// and the batch is tried again.
async fn load_uniques(
    tx: &mut PgConnection,
    needs: &Needs<'_>,
    loaded: &mut Loaded,
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

/// What another node has locked is skipped: it is about to be claimed there.
async fn load_candidates(
    tx: &mut PgConnection,
    needs: &Needs<'_>,
    loaded: &mut Loaded,
) -> Result<(), sqlx::Error> {
    // Claimers of one kind ask alike: each question once.
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
        let record = rows::record(&row, kind)?;
        if seen.insert(record.key.clone()) {
            loaded.candidates.push(record);
        }
    }
    Ok(())
}

/// The question that a row answers, by `WITH ORDINALITY`.
fn nth<'a, T>(asked: &'a [T], row: &sqlx::postgres::PgRow) -> Result<Option<&'a T>, sqlx::Error> {
    let nth: i64 = row.try_get("nth")?;
    Ok(usize::try_from(nth - 1).ok().and_then(|index| asked.get(index)))
}
