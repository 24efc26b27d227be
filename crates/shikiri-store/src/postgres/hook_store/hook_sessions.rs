//! Sessions of Claude Code, and what was read about the usage of their agents.

use shikiri_model::hook::{HookSession, HookSessionQuery, HookUsageUpdate};
use shikiri_model::ids::TenantId;
use sqlx::postgres::{PgConnection, PgPool, PgRow};
use sqlx::{AssertSqlSafe, Postgres, QueryBuilder, Row};

use super::hook_rows::time;

type Outcome<T> = Result<T, sqlx::Error>;

const SESSION: &str = "session_id, agent_type, transcript_path, created_at, counted_from,
    prompted_at, ended_at, usage, usage_complete";

pub(super) async fn lock(
    tx: &mut PgConnection,
    tenant: &TenantId,
    session_id: &str,
) -> Outcome<Option<HookSession>> {
    let sql = format!(
        "SELECT {SESSION} FROM hook_sessions WHERE session_id = $1 AND tenant = $2 FOR UPDATE"
    );
    let found = sqlx::query(AssertSqlSafe(sql)).bind(session_id).bind(tenant.as_str());
    found.fetch_optional(tx).await?.as_ref().map(session).transpose()
}

pub(super) async fn put(
    tx: &mut PgConnection,
    tenant: &TenantId,
    session: &HookSession,
) -> Outcome<()> {
    let sql = "INSERT INTO hook_sessions
                   (tenant, session_id, agent_type, transcript_path, created_at, counted_from,
                    prompted_at, ended_at, usage, usage_complete)
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
               ON CONFLICT (session_id, tenant) DO UPDATE SET
                   agent_type = EXCLUDED.agent_type, transcript_path = EXCLUDED.transcript_path,
                   created_at = EXCLUDED.created_at, counted_from = EXCLUDED.counted_from,
                   prompted_at = EXCLUDED.prompted_at, ended_at = EXCLUDED.ended_at,
                   usage = EXCLUDED.usage, usage_complete = EXCLUDED.usage_complete";
    sqlx::query(sql)
        .bind(tenant.as_str())
        .bind(&session.session_id)
        .bind(&session.agent_type)
        .bind(&session.transcript_path)
        .bind(session.created_at.to_string())
        .bind(session.counted_from.map(|at| at.to_string()))
        .bind(session.prompted_at.map(|at| at.to_string()))
        .bind(session.ended_at.map(|at| at.to_string()))
        .bind(&session.usage)
        .bind(i64::from(session.usage_complete))
        .execute(tx)
        .await
        .map(drop)
}

pub(super) async fn sessions(
    pool: &PgPool,
    tenant: &TenantId,
    query: &HookSessionQuery,
) -> Outcome<Vec<HookSession>> {
    let mut sql: QueryBuilder<Postgres> = QueryBuilder::new("SELECT ");
    sql.push(SESSION).push(" FROM hook_sessions WHERE tenant = ").push_bind(tenant.as_str());
    if let Some(session_id) = &query.session_id {
        sql.push(" AND session_id = ").push_bind(session_id);
    }
    if let Some(from) = query.from {
        sql.push(" AND created_at >= ").push_bind(from.to_string());
    }
    if let Some(before) = query.before {
        sql.push(" AND created_at < ").push_bind(before.to_string());
    }
    sql.push(" ORDER BY created_at DESC, session_id DESC LIMIT ");
    sql.push_bind(i64::from(query.limit));
    sql.build().fetch_all(pool).await?.iter().map(session).collect()
}

/// Stores what was read, unless a later event has changed the row meanwhile.
pub(super) async fn update_usage(
    tx: &mut PgConnection,
    tenant: &TenantId,
    updates: &[HookUsageUpdate],
) -> Outcome<()> {
    for update in updates {
        let (sql, id) = match &update.agent_id {
            Some(agent_id) => (
                "UPDATE subagents SET usage = $3, usage_complete = $4
                 WHERE agent_id = $1 AND tenant = $2 AND resumed_at IS NOT DISTINCT FROM $5
                   AND usage_complete = 0 AND state = 'ended'",
                agent_id,
            ),
            None => (
                "UPDATE hook_sessions SET usage = $3, usage_complete = $4
                 WHERE session_id = $1 AND tenant = $2 AND prompted_at IS NOT DISTINCT FROM $5
                   AND usage_complete = 0",
                &update.session_id,
            ),
        };
        sqlx::query(sql)
            .bind(id)
            .bind(tenant.as_str())
            .bind(&update.usage)
            .bind(i64::from(update.usage_complete))
            .bind(update.since.map(|at| at.to_string()))
            .execute(&mut *tx)
            .await?;
    }
    Ok(())
}

fn session(row: &PgRow) -> Outcome<HookSession> {
    Ok(HookSession {
        session_id: row.try_get("session_id")?,
        agent_type: row.try_get("agent_type")?,
        transcript_path: row.try_get("transcript_path")?,
        created_at: time(row, "created_at")?.unwrap_or_default(),
        counted_from: time(row, "counted_from")?,
        prompted_at: time(row, "prompted_at")?,
        ended_at: time(row, "ended_at")?,
        usage: row.try_get("usage")?,
        usage_complete: row.try_get::<i64, _>("usage_complete")? != 0,
    })
}
