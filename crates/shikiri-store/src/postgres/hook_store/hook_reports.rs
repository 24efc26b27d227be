//! Reports about hooks.

use shikiri_model::hook::{
    HookFigures, HookLogRecord, HookStats, LogQuery, SessionFigures, SubagentQuery, SubagentRecord,
    SubagentState, ToolCaller,
};
use shikiri_model::ids::TenantId;
use sqlx::postgres::{PgPool, PgRow};
use sqlx::{Postgres, QueryBuilder, Row};

use super::hook_rows::{SUBAGENT, subagent, time};
use crate::postgres::row_mapping::unsigned;

type Outcome<T> = Result<T, sqlx::Error>;

/// The number of sessions in the statistics.
const SESSIONS: i64 = 50;

pub(super) async fn subagents(
    pool: &PgPool,
    tenant: &TenantId,
    query: &SubagentQuery,
) -> Outcome<Vec<SubagentRecord>> {
    let mut sql: QueryBuilder<Postgres> = QueryBuilder::new("SELECT ");
    sql.push(SUBAGENT).push(" FROM subagents WHERE tenant = ").push_bind(tenant.as_str());
    if let Some(session_id) = &query.session_id {
        sql.push(" AND session_id = ").push_bind(session_id);
    }
    if let Some(state) = query.state {
        sql.push(" AND state = ").push_bind(state.as_str());
    }
    if let Some(from) = query.from {
        sql.push(" AND created_at COLLATE \"C\" >= ").push_bind(from.to_string());
    }
    if let Some(before) = query.before {
        sql.push(" AND created_at COLLATE \"C\" < ").push_bind(before.to_string());
    }
    if let Some(after) = &query.after {
        sql.push(" AND (created_at COLLATE \"C\", agent_id) < (");
        sql.push_bind(after.created_at.to_string()).push(", ").push_bind(&after.id).push(")");
    }
    sql.push(" ORDER BY created_at COLLATE \"C\" DESC, agent_id DESC LIMIT ");
    sql.push_bind(i64::from(query.limit));
    sql.build().fetch_all(pool).await?.iter().map(subagent).collect()
}

pub(super) async fn list_log(
    pool: &PgPool,
    tenant: &TenantId,
    query: &LogQuery,
) -> Outcome<Vec<HookLogRecord>> {
    let mut sql: QueryBuilder<Postgres> = QueryBuilder::new(
        "SELECT id, session_id, hook_name, event_type, agent_id, timestamp, result, details,
                duration_ms, tool_use_id
         FROM hook_log WHERE tenant = ",
    );
    sql.push_bind(tenant.as_str());
    if let Some(session_id) = &query.session_id {
        sql.push(" AND session_id = ").push_bind(session_id);
    }
    if let Some(before) = query.before {
        sql.push(" AND id < ").push_bind(before);
    }
    sql.push(" ORDER BY id DESC LIMIT ").push_bind(i64::from(query.limit));
    sql.build().fetch_all(pool).await?.iter().map(line).collect()
}

fn line(row: &PgRow) -> Outcome<HookLogRecord> {
    let details: Option<String> = row.try_get("details")?;
    Ok(HookLogRecord {
        id: row.try_get("id")?,
        session_id: row.try_get("session_id")?,
        hook_name: row.try_get("hook_name")?,
        event_type: row.try_get("event_type")?,
        agent_id: row.try_get("agent_id")?,
        timestamp: time(row, "timestamp")?.unwrap_or_default(),
        result: row.try_get("result")?,
        details: details.and_then(|text| serde_json::from_str(&text).ok()),
        duration_ms: row.try_get("duration_ms")?,
        tool_use_id: row.try_get("tool_use_id")?,
    })
}

pub(super) async fn stats(pool: &PgPool, tenant: &TenantId) -> Outcome<HookStats> {
    let sql = "SELECT event_type, hook_name, count(*) AS lines,
                      count(*) FILTER (WHERE result = 'injected') AS injected,
                      count(*) FILTER (WHERE result = 'blocked') AS blocked,
                      avg(duration_ms)::float8 AS average_ms, max(duration_ms) AS max_ms
               FROM hook_log WHERE tenant = $1 GROUP BY event_type, hook_name
               ORDER BY count(*) DESC, event_type COLLATE \"C\", hook_name";
    let hooks = sqlx::query(sql).bind(tenant.as_str()).fetch_all(pool).await?;
    let sql = "SELECT l.session_id, l.lines, l.injected, l.blocked,
                      COALESCE(a.active, 0) AS active, COALESCE(a.unprocessed, 0) AS unprocessed,
                      l.last_at
               FROM (SELECT session_id, count(*) AS lines,
                            count(*) FILTER (WHERE result = 'injected') AS injected,
                            count(*) FILTER (WHERE result = 'blocked') AS blocked,
                            max(timestamp) AS last_at, max(id) AS last_id
                     FROM hook_log WHERE tenant = $1 GROUP BY session_id) l
               LEFT JOIN (SELECT session_id, count(*) AS active,
                                 count(*) FILTER (WHERE startup_processed = 0) AS unprocessed
                          FROM subagents WHERE tenant = $1 AND state = $2 GROUP BY session_id) a
                   ON a.session_id = l.session_id
               ORDER BY l.last_id DESC LIMIT $3";
    let sessions = sqlx::query(sql)
        .bind(tenant.as_str())
        .bind(SubagentState::Active.as_str())
        .bind(SESSIONS)
        .fetch_all(pool)
        .await?;
    Ok(HookStats {
        hooks: hooks.iter().map(hook_figures).collect::<Outcome<_>>()?,
        sessions: sessions.iter().map(session_figures).collect::<Outcome<_>>()?,
    })
}

fn hook_figures(row: &PgRow) -> Outcome<HookFigures> {
    Ok(HookFigures {
        event_type: row.try_get("event_type")?,
        hook_name: row.try_get("hook_name")?,
        count: count(row, "lines")?,
        injected: count(row, "injected")?,
        blocked: count(row, "blocked")?,
        average_ms: row.try_get("average_ms")?,
        max_ms: row.try_get("max_ms")?,
    })
}

fn session_figures(row: &PgRow) -> Outcome<SessionFigures> {
    Ok(SessionFigures {
        session_id: row.try_get("session_id")?,
        count: count(row, "lines")?,
        injected: count(row, "injected")?,
        blocked: count(row, "blocked")?,
        active: count(row, "active")?,
        unprocessed: count(row, "unprocessed")?,
        last_at: time(row, "last_at")?.unwrap_or_default(),
    })
}

fn count(row: &PgRow, name: &str) -> Outcome<u64> {
    row.try_get(name).map(unsigned)
}

pub(super) async fn who_called(
    pool: &PgPool,
    tenant: &TenantId,
    tool_use_id: &str,
) -> Outcome<Option<ToolCaller>> {
    let sql = "SELECT l.session_id, l.agent_id, s.agent_type, s.role
               FROM hook_log l
               LEFT JOIN subagents s ON s.agent_id = l.agent_id AND s.tenant = l.tenant
               WHERE l.tool_use_id = $1 AND l.tenant = $2 ORDER BY l.id DESC LIMIT 1";
    let found =
        sqlx::query(sql).bind(tool_use_id).bind(tenant.as_str()).fetch_optional(pool).await?;
    let caller = |row: PgRow| {
        Ok(ToolCaller {
            session_id: row.try_get("session_id")?,
            agent_id: row.try_get("agent_id")?,
            agent_type: row.try_get("agent_type")?,
            role: row.try_get("role")?,
        })
    };
    found.map(caller).transpose()
}
