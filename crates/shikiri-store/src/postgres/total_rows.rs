//! Totals. A total has a row for each slot, and a node's writer adds to the rows of its own slot, so
//! that nodes do not wait for each other. Two nodes with the same slot do, but lose nothing.

use shikiri_model::time::Timestamp;
use shikiri_model::total::{StoredTotal, TotalKey, TotalNote, TotalQuery, TotalValue};
use sqlx::postgres::{PgConnection, PgPool, PgRow};
use sqlx::{Postgres, QueryBuilder, Row};

use super::batch_load::ExistingRows;
use super::batch_write::{PostgresWriteError, expect_rows};
use super::error_class::{random, to_store_error};
use super::read_queries::retry;
use crate::batch_decision::{BatchNeeds, LoadedRows};
use crate::error::StoreError;

const SLOTS: u64 = 16;

/// The slot of a writer.
pub(super) fn choose_slot() -> i16 {
    i16::try_from(random() % SLOTS).unwrap_or(0)
}

pub(super) async fn load_totals(
    tx: &mut PgConnection,
    needs: &BatchNeeds<'_>,
    loaded: &mut LoadedRows,
    slot: i16,
) -> Result<(), sqlx::Error> {
    let keys = needs.total_keys(&loaded.records);
    if keys.is_empty() {
        return Ok(());
    }
    let keys: Vec<TotalKey> = keys.into_iter().collect();
    let sql = "SELECT k.nth, t.period, t.name, t.amounts, t.noted_at, t.note
               FROM unnest($1::text[], $2::text[], $3::text[], $4::text[])
                   WITH ORDINALITY AS k (kind, tenant, period, name, nth)
               JOIN totals t ON t.kind = k.kind AND t.tenant = k.tenant AND t.period = k.period
                   AND t.name = k.name AND t.slot = $5
               ORDER BY k.nth FOR UPDATE OF t";
    let query = sqlx::query(sql)
        .bind(keys.iter().map(|key| key.kind).collect::<Vec<_>>())
        .bind(keys.iter().map(|key| key.tenant.as_str()).collect::<Vec<_>>())
        .bind(keys.iter().map(|key| key.period.as_str()).collect::<Vec<_>>())
        .bind(keys.iter().map(|key| key.name.as_str()).collect::<Vec<_>>())
        .bind(slot);
    for row in query.fetch_all(tx).await? {
        let nth: i64 = row.try_get("nth")?;
        let Some(key) = usize::try_from(nth - 1).ok().and_then(|nth| keys.get(nth)) else {
            continue;
        };
        loaded.totals.insert(key.clone(), total(&row)?.value);
    }
    Ok(())
}

/// Like records, rows that were missing when the batch was decided are plainly inserted: one that
/// exists now belongs to another node.
pub(super) async fn write_totals(
    tx: &mut PgConnection,
    totals: &[(TotalKey, TotalValue)],
    known: &ExistingRows,
) -> Result<(), PostgresWriteError> {
    let (old, new): (Vec<_>, Vec<_>) =
        totals.iter().partition(|(key, _)| known.totals.contains(key));
    let update = "UPDATE totals t SET amounts = u.amounts, noted_at = u.noted_at, note = u.note
                  FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::smallint[],
                      $6::text[], $7::bigint[], $8::text[])
                      AS u (kind, tenant, period, name, slot, amounts, noted_at, note)
                  WHERE t.kind = u.kind AND t.tenant = u.tenant AND t.period = u.period
                    AND t.name = u.name AND t.slot = u.slot";
    let insert = "INSERT INTO totals (kind, tenant, period, name, slot, amounts, noted_at, note)
                  SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[],
                      $5::smallint[], $6::text[], $7::bigint[], $8::text[])
                  ON CONFLICT DO NOTHING";
    for (sql, totals) in [(update, old), (insert, new)] {
        if totals.is_empty() {
            continue;
        }
        let notes = || totals.iter().map(|(_, value)| value.latest.as_ref());
        let query = sqlx::query(sql)
            .bind(totals.iter().map(|(key, _)| key.kind).collect::<Vec<_>>())
            .bind(totals.iter().map(|(key, _)| key.tenant.as_str()).collect::<Vec<_>>())
            .bind(totals.iter().map(|(key, _)| key.period.as_str()).collect::<Vec<_>>())
            .bind(totals.iter().map(|(key, _)| key.name.as_str()).collect::<Vec<_>>())
            .bind(vec![known.slot; totals.len()])
            .bind(totals.iter().map(|(_, value)| value.encode_amounts()).collect::<Vec<_>>())
            .bind(notes().map(|note| note.map(|n| n.at.as_millis())).collect::<Vec<_>>())
            .bind(notes().map(|note| note.map(|n| n.text.as_str())).collect::<Vec<_>>());
        expect_rows(query.execute(&mut *tx).await?.rows_affected(), totals.len())?;
    }
    Ok(())
}

pub(super) async fn totals(
    pool: &PgPool,
    query: &TotalQuery,
) -> Result<Vec<StoredTotal>, StoreError> {
    let rows = retry(pool, async |pool| select(query).build().fetch_all(pool).await).await?;
    let totals: Result<_, _> = rows.iter().map(total).collect();
    totals.map_err(|cause| to_store_error(&cause))
}

fn select(query: &TotalQuery) -> QueryBuilder<Postgres> {
    let mut sql = QueryBuilder::new("SELECT period, name, amounts, noted_at, note FROM totals");
    sql.push(" WHERE kind = ").push_bind(query.kind);
    sql.push(" AND tenant = ").push_bind(query.tenant.as_str().to_owned());
    sql.push(" AND period >= ").push_bind(query.from.clone());
    if let Some(to) = &query.to {
        sql.push(" AND period < ").push_bind(to.clone());
    }
    sql.push(" ORDER BY period, name, slot");
    sql
}

fn total(row: &PgRow) -> Result<StoredTotal, sqlx::Error> {
    let amounts = TotalValue::decode_amounts(row.try_get("amounts")?)
        .ok_or_else(|| sqlx::Error::Decode("not a list of amounts".into()))?;
    let noted_at = row.try_get::<Option<i64>, _>("noted_at")?.map(Timestamp::from_millis);
    let latest = noted_at.zip(row.try_get("note")?).map(|(at, text)| TotalNote { at, text });
    Ok(StoredTotal {
        period: row.try_get("period")?,
        name: row.try_get("name")?,
        value: TotalValue { amounts, latest },
    })
}
