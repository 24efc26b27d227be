//! Which agents used a file.

use shikiri_model::hook::{FileTouch, FileTouchQuery, FileTouchRecord, TouchOutcome};
use shikiri_model::ids::TenantId;
use sqlx::Row;
use sqlx::postgres::{PgConnection, PgPool, PgRow};

use super::hook_rows::time;

type Outcome<T> = Result<T, sqlx::Error>;

pub(super) async fn put(
    tx: &mut PgConnection,
    tenant: &TenantId,
    touch: &FileTouch,
) -> Outcome<()> {
    let sql =
        "INSERT INTO file_touches (tenant, session_id, agent_id, agent_type, role, tool, path,
                   name, removed, command, outcome, timestamp)
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";
    sqlx::query(sql)
        .bind(tenant.as_str())
        .bind(&touch.session_id)
        .bind(&touch.agent_id)
        .bind(&touch.agent_type)
        .bind(&touch.role)
        .bind(&touch.tool)
        .bind(&touch.path)
        .bind(&touch.name)
        .bind(i64::from(touch.removed))
        .bind(&touch.command)
        .bind(touch.outcome.as_str())
        .bind(touch.at.to_string())
        .execute(tx)
        .await
        .map(drop)
}

/// The calls that used a file, newest first.
pub(super) async fn list(
    pool: &PgPool,
    tenant: &TenantId,
    query: &FileTouchQuery,
) -> Outcome<Vec<FileTouchRecord>> {
    let sql = "SELECT t.session_id, t.agent_id, COALESCE(s.agent_type, t.agent_type) AS agent_type,
                      COALESCE(s.role, t.role) AS role, t.tool, t.path, t.name, t.removed,
                      t.command, t.outcome, t.timestamp
               FROM file_touches t
               LEFT JOIN subagents s ON s.agent_id = t.agent_id AND s.tenant = t.tenant
               WHERE t.tenant = $1
                 AND (t.path = ANY($2) OR t.name = $3 OR (t.removed <> 0 AND t.path = ANY($4)))
               ORDER BY t.id DESC LIMIT $5";
    let found = sqlx::query(sql)
        .bind(tenant.as_str())
        .bind(&query.paths)
        .bind(&query.name)
        .bind(query.folders())
        .bind(i64::from(query.limit))
        .fetch_all(pool)
        .await?;
    found.iter().map(touch).collect()
}

fn touch(row: &PgRow) -> Outcome<FileTouchRecord> {
    let outcome: String = row.try_get("outcome")?;
    let removed: i64 = row.try_get("removed")?;
    Ok(FileTouchRecord {
        session_id: row.try_get("session_id")?,
        agent_id: row.try_get("agent_id")?,
        agent_type: row.try_get("agent_type")?,
        role: row.try_get("role")?,
        tool: row.try_get("tool")?,
        path: row.try_get("path")?,
        name: row.try_get("name")?,
        removed: removed != 0,
        command: row.try_get("command")?,
        outcome: TouchOutcome::parse(&outcome).unwrap_or_default(),
        timestamp: time(row, "timestamp")?.unwrap_or_default(),
    })
}
