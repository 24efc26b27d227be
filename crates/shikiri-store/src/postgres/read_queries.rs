//! Read queries. Each is one statement on the pool and sees one snapshot. After a server restart
//! the pool's connections are dead; a read is then repeated on a new connection.

use std::time::Duration;

use shikiri_model::cursor::StreamExtent;
use shikiri_model::event::{Chunk, Seq, StreamId};
use shikiri_model::ids::TenantId;
use shikiri_model::record::{Record, RecordKey, RecordQuery};
use shikiri_model::time::Timestamp;
use sqlx::postgres::{PgPool, PgRow};
use sqlx::{Postgres, QueryBuilder, Row};
use tokio::time::Instant;

use super::connection_url::within;
use super::error_class::{PostgresErrorClass, jitter, to_store_error};
use super::row_mapping::{self, record_columns, signed, unsigned};
use crate::error::StoreError;
use crate::store::{ChunkPage, StreamState};

const RETRY_FOR: Duration = Duration::from_secs(2);
const RETRY_PAUSE: Duration = Duration::from_millis(20);
const READ_TIMEOUT: Duration = Duration::from_secs(15);

/// The most chunks in one page.
const PAGE_CHUNKS: i64 = 1_024;

pub(super) async fn retry<'a, T, F>(
    pool: &'a PgPool,
    read: impl Fn(&'a PgPool) -> F,
) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, sqlx::Error>>,
{
    let start = Instant::now();
    loop {
        match within(READ_TIMEOUT, read(pool)).await {
            Ok(value) => return Ok(value),
            Err(cause)
                if PostgresErrorClass::classify(&cause) == PostgresErrorClass::Connection
                    && start.elapsed() < RETRY_FOR =>
            {
                tokio::time::sleep(jitter(RETRY_PAUSE)).await;
            }
            Err(cause) => return Err(to_store_error(&cause)),
        }
    }
}

pub(super) async fn read(
    pool: &PgPool,
    tenant: &TenantId,
    stream: &StreamId,
    after: Seq,
    max_bytes: usize,
) -> Result<ChunkPage, StoreError> {
    // Lengths are known without reading the bodies, so the sum is cheap. The limit applies to the
    // bytes before a chunk, so that the first chunk is always included.
    let sql = "
        SELECT s.first_kept, s.head, s.closed, c.first_seq, c.last_seq, c.body
        FROM streams s LEFT JOIN LATERAL (
            SELECT n.first_seq, n.last_seq, n.body,
                   sum(octet_length(n.body)) OVER (ORDER BY n.last_seq) - octet_length(n.body)
                       AS bytes_before
            FROM (SELECT e.first_seq, e.last_seq, e.body FROM events e
                  WHERE e.stream = s.id AND e.last_seq > $3 ORDER BY e.last_seq LIMIT $5) n
        ) c ON c.bytes_before < $4
        WHERE s.name = $1 AND s.tenant = $2
        ORDER BY c.last_seq";
    let limit = signed(max_bytes.max(1) as u64);
    let rows = retry(pool, |pool| {
        sqlx::query(sql)
            .bind(stream.as_str())
            .bind(tenant.as_str())
            .bind(signed(after))
            .bind(limit)
            .bind(PAGE_CHUNKS)
            .fetch_all(pool)
    })
    .await?;
    let first = rows.first().ok_or_else(|| StoreError::NoStream(stream.clone()))?;
    let extent = extent(first).map_err(|cause| to_store_error(&cause))?;
    extent.check(after)?;
    let chunks = rows.iter().filter_map(|row| chunk(row).transpose()).collect::<Result<_, _>>()?;
    Ok(ChunkPage { chunks, extent })
}

fn extent(row: &PgRow) -> Result<StreamExtent, sqlx::Error> {
    Ok(StreamExtent {
        first_kept: unsigned(row.try_get("first_kept")?),
        head: unsigned(row.try_get("head")?),
        closed: row.try_get("closed")?,
    })
}

/// None if the stream has nothing after the cursor.
fn chunk(row: &PgRow) -> Result<Option<Chunk>, StoreError> {
    let columns = || -> Result<Option<(i64, i64, String)>, sqlx::Error> {
        let Some(first_seq) = row.try_get("first_seq")? else { return Ok(None) };
        Ok(Some((first_seq, row.try_get("last_seq")?, row.try_get("body")?)))
    };
    let Some((first, last, body)) = columns().map_err(|cause| to_store_error(&cause))? else {
        return Ok(None);
    };
    Chunk::from_stored(unsigned(first), unsigned(last), body).map(Some).map_err(StoreError::broken)
}

pub(super) async fn stream(
    pool: &PgPool,
    tenant: &TenantId,
    stream: &StreamId,
) -> Result<Option<StreamState>, StoreError> {
    let sql = "SELECT first_kept, head, closed, note FROM streams WHERE name = $1 AND tenant = $2";
    let row = retry(pool, |pool| {
        sqlx::query(sql).bind(stream.as_str()).bind(tenant.as_str()).fetch_optional(pool)
    })
    .await?;
    let state = |row: PgRow| Ok(StreamState { extent: extent(&row)?, note: row.try_get("note")? });
    row.map(state).transpose().map_err(|cause: sqlx::Error| to_store_error(&cause))
}

pub(super) async fn get(pool: &PgPool, key: &RecordKey) -> Result<Option<Record>, StoreError> {
    let sql = concat!(
        "SELECT ",
        record_columns!(),
        " FROM records r WHERE r.kind = $1 AND r.tenant = $2 AND r.id = $3"
    );
    let row = retry(pool, |pool| {
        sqlx::query(sql)
            .bind(key.kind)
            .bind(key.tenant.as_str())
            .bind(key.id.as_str())
            .fetch_optional(pool)
    })
    .await?;
    row.map(|row| row_mapping::record(&row, key.kind))
        .transpose()
        .map_err(|cause| to_store_error(&cause))
}

pub(super) async fn find(
    pool: &PgPool,
    kind: &'static str,
    tenant: &TenantId,
    unique: &str,
) -> Result<Option<Record>, StoreError> {
    let sql = concat!(
        "SELECT ",
        record_columns!(),
        " FROM records r WHERE r.kind = $1 AND r.tenant = $2 AND r.uniq = $3"
    );
    let row = retry(pool, |pool| {
        sqlx::query(sql).bind(kind).bind(tenant.as_str()).bind(unique).fetch_optional(pool)
    })
    .await?;
    row.map(|row| row_mapping::record(&row, kind))
        .transpose()
        .map_err(|cause| to_store_error(&cause))
}

pub(super) async fn list(pool: &PgPool, query: &RecordQuery) -> Result<Vec<Record>, StoreError> {
    let rows = retry(pool, async |pool| listing(query).build().fetch_all(pool).await).await?;
    rows.iter()
        .map(|row| row_mapping::record(row, query.kind))
        .collect::<Result<_, _>>()
        .map_err(|cause| to_store_error(&cause))
}

/// Adds only the requested filters: with `$2 IS NULL OR …` the server would choose a plan without
/// them.
fn listing(query: &RecordQuery) -> QueryBuilder<Postgres> {
    let mut sql = QueryBuilder::new(concat!("SELECT ", record_columns!(), " FROM records r"));
    sql.push(" WHERE r.kind = ").push_bind(query.kind);
    if let Some(tenant) = &query.tenant {
        sql.push(" AND r.tenant = ").push_bind(tenant.as_str().to_owned());
    }
    for (column, value) in [
        (" AND r.state = ", &query.state),
        (" AND r.parent = ", &query.parent),
        (" AND r.owner = ", &query.owner),
    ] {
        if let Some(value) = value {
            sql.push(column).push_bind(value.clone());
        }
    }
    if let Some(after) = &query.after {
        sql.push(if query.newest_first {
            " AND (r.created_at, r.id) < ("
        } else {
            " AND (r.created_at, r.id) > ("
        });
        sql.push_bind(after.created_at.as_millis()).push(", ");
        sql.push_bind(after.id.clone()).push(")");
    }
    sql.push(if query.newest_first {
        " ORDER BY r.created_at DESC, r.id DESC LIMIT "
    } else {
        " ORDER BY r.created_at, r.id LIMIT "
    });
    sql.push_bind(i64::from(query.limit));
    sql
}

pub(super) async fn next_due(
    pool: &PgPool,
    kind: &'static str,
) -> Result<Option<Timestamp>, StoreError> {
    let sql = "SELECT min(due_at) FROM records WHERE kind = $1 AND due_at IS NOT NULL";
    let due: Option<i64> =
        retry(pool, |pool| sqlx::query_scalar(sql).bind(kind).fetch_one(pool)).await?;
    Ok(due.map(Timestamp::from_millis))
}

pub(super) async fn stored_bytes(
    pool: &PgPool,
    tenant: &TenantId,
    kinds: &'static [&'static str],
) -> Result<u64, StoreError> {
    // The length of a text is known without reading it.
    let sql = "SELECT ((SELECT COALESCE(sum(bytes), 0) FROM streams WHERE tenant = $1)
               + (SELECT COALESCE(sum(octet_length(doc)), 0) FROM records
                  WHERE kind = ANY($2) AND tenant = $1))::bigint";
    let bytes: i64 = retry(pool, |pool| {
        sqlx::query_scalar(sql).bind(tenant.as_str()).bind(kinds).fetch_one(pool)
    })
    .await?;
    Ok(unsigned(bytes))
}
