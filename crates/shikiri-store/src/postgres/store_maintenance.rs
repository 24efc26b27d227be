//! Retention, erasure and the write probe, in small transactions, so that writers of all nodes are
//! hardly delayed.

use shikiri_model::event::StreamId;
use shikiri_model::ids::TenantId;
use shikiri_model::time::Timestamp;
use sqlx::Row;
use sqlx::postgres::PgPool;

use super::hook_store;
use super::wake_notify::{CHANNEL, wake_all_payload};

/// The most streams in one transaction of an erasure.
const ERASED_STREAMS: i64 = 100;
const ERASED_ROWS: i64 = 2_000;

/// Removes the oldest chunks of closed streams in one statement. Only a prefix of each stream is
/// removed: an old chunk after a younger one (the clock was changed) stays, so that
/// `first_kept..=head` has no holes. Streams in use are left for the next time.
pub(super) async fn purge(
    pool: &PgPool,
    before: Timestamp,
    limit: u32,
) -> Result<u64, sqlx::Error> {
    let sql = "
        WITH found AS (
            SELECT e.stream FROM events e JOIN streams s ON s.id = e.stream
            WHERE e.at < $1 AND s.closed LIMIT $2
        ), locked AS (
            SELECT s.id FROM streams s WHERE s.id IN (SELECT stream FROM found) AND s.closed
            ORDER BY s.name FOR UPDATE SKIP LOCKED
        ), aged AS (
            SELECT c.id, l.id AS stream, c.last_seq,
                   bool_and(c.at < $1) OVER (PARTITION BY l.id ORDER BY c.last_seq) AS old
            FROM locked l CROSS JOIN LATERAL (
                SELECT e.id, e.last_seq, e.at FROM events e WHERE e.stream = l.id
                ORDER BY e.last_seq LIMIT $2) c
        ), chosen AS (
            SELECT id FROM aged WHERE old ORDER BY stream, last_seq LIMIT $2
        ), gone AS (
            DELETE FROM events e USING chosen WHERE e.id = chosen.id RETURNING e.stream, e.last_seq,
                octet_length(e.body) AS bytes
        ), kept AS (
            SELECT stream, max(last_seq) + 1 AS first_kept, count(*) AS chunks,
                   sum(bytes)::bigint AS bytes
            FROM gone GROUP BY stream
        ), raised AS (
            UPDATE streams s SET first_kept = GREATEST(s.first_kept, kept.first_kept),
                bytes = s.bytes - kept.bytes
            FROM kept WHERE s.id = kept.stream
        )
        SELECT COALESCE(sum(chunks), 0)::bigint FROM kept";
    let chunks: i64 = sqlx::query_scalar(sql)
        .bind(before.as_millis())
        .bind(i64::from(limit))
        .fetch_one(pool)
        .await?;
    Ok(chunks.unsigned_abs())
}

pub(super) async fn erase(pool: &PgPool, tenant: &TenantId, tag: &str) -> Result<(), sqlx::Error> {
    while erase_some_streams(pool, tenant, None).await? {}
    // Locked in the writers' order, to avoid a deadlock.
    let sql = "DELETE FROM records r USING (
                   SELECT kind, tenant, id FROM records WHERE tenant = $1
                   ORDER BY kind, tenant, id LIMIT $2 FOR UPDATE) k
               WHERE r.kind = k.kind AND r.tenant = k.tenant AND r.id = k.id";
    loop {
        let erased = sqlx::query(sql).bind(tenant.as_str()).bind(ERASED_ROWS).execute(pool).await?;
        if erased.rows_affected() == 0 {
            break;
        }
    }
    // After the records, because totals count them.
    let sql = "DELETE FROM totals t USING (
                   SELECT kind, tenant, period, name, slot FROM totals WHERE tenant = $1
                   ORDER BY kind, tenant, period, name, slot LIMIT $2 FOR UPDATE) k
               WHERE t.kind = k.kind AND t.tenant = k.tenant AND t.period = k.period
                 AND t.name = k.name AND t.slot = k.slot";
    loop {
        let erased = sqlx::query(sql).bind(tenant.as_str()).bind(ERASED_ROWS).execute(pool).await?;
        if erased.rows_affected() == 0 {
            break;
        }
    }
    hook_store::erase(pool, tenant, ERASED_ROWS).await?;
    wake_all(pool, tag).await
}

/// Removes these streams. Readers of them are woken and find that they are gone.
pub(super) async fn erase_streams(
    pool: &PgPool,
    tenant: &TenantId,
    streams: &[StreamId],
    tag: &str,
) -> Result<(), sqlx::Error> {
    let names: Vec<_> = streams.iter().map(|stream| stream.as_str().to_owned()).collect();
    while erase_some_streams(pool, tenant, Some(&names)).await? {}
    wake_all(pool, tag).await
}

async fn wake_all(pool: &PgPool, tag: &str) -> Result<(), sqlx::Error> {
    let notify = sqlx::query("SELECT pg_notify($1, $2)").bind(CHANNEL).bind(wake_all_payload(tag));
    notify.execute(pool).await.map(drop)
}

/// The streams are locked before their events are searched, so that a concurrent writer has
/// committed and its events are removed, too. Without names, all streams of the tenant are meant.
/// Returns whether there may be more.
async fn erase_some_streams(
    pool: &PgPool,
    tenant: &TenantId,
    names: Option<&[String]>,
) -> Result<bool, sqlx::Error> {
    let mut tx = pool.begin().await?;
    let streams: Vec<i64> = sqlx::query_scalar(
        "SELECT id FROM streams WHERE tenant = $1 AND ($3::text[] IS NULL OR name = ANY($3))
         ORDER BY name LIMIT $2 FOR UPDATE",
    )
    .bind(tenant.as_str())
    .bind(ERASED_STREAMS)
    .bind(names)
    .fetch_all(&mut *tx)
    .await?;
    if streams.is_empty() {
        return Ok(false);
    }
    let sql = "WITH gone AS (
                   DELETE FROM events WHERE id IN (
                       SELECT id FROM events WHERE stream = ANY($1) ORDER BY stream, last_seq LIMIT $2)
                   RETURNING stream, last_seq, octet_length(body) AS bytes
               ), kept AS (
                   SELECT stream, max(last_seq) + 1 AS first_kept, count(*) AS chunks,
                          sum(bytes)::bigint AS bytes
                   FROM gone GROUP BY stream
               ), raised AS (
                   UPDATE streams s SET first_kept = kept.first_kept, bytes = s.bytes - kept.bytes
                   FROM kept WHERE s.id = kept.stream
               )
               SELECT COALESCE(sum(chunks), 0)::bigint AS chunks FROM kept";
    let row = sqlx::query(sql).bind(&streams).bind(ERASED_ROWS).fetch_one(&mut *tx).await?;
    if row.try_get::<i64, _>("chunks")? < ERASED_ROWS {
        sqlx::query("DELETE FROM streams WHERE id = ANY($1)")
            .bind(&streams)
            .execute(&mut *tx)
            .await?;
    }
    tx.commit().await?;
    Ok(true)
}

/// Changes the row every time. An unchanged row might be answered from memory.
pub(super) async fn probe(pool: &PgPool) -> Result<(), sqlx::Error> {
    let sql = "INSERT INTO facts (name, value) VALUES ('probe', clock_timestamp()::text)
               ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value";
    sqlx::query(sql).execute(pool).await.map(drop)
}
