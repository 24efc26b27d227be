//! Reports about hooks, and the removal of their rows.

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Result, Row, params, params_from_iter};
use shikiri_model::hook::{
    HookLogRecord, LogQuery, RoleSource, SubagentQuery, SubagentRecord, ToolCaller,
};
use shikiri_model::time::Timestamp;

use super::{SUBAGENT, find, put_subagent, subagent, time};

/// Subagents, newest first.
pub fn subagents(
    connection: &Connection,
    tenant: &str,
    query: &SubagentQuery,
) -> Result<Vec<SubagentRecord>> {
    let mut sql = format!("SELECT {SUBAGENT} FROM subagents WHERE tenant = ?");
    let mut values: Vec<Value> = vec![tenant.to_owned().into()];
    if let Some(session_id) = &query.session_id {
        sql.push_str(" AND session_id = ?");
        values.push(session_id.clone().into());
    }
    if let Some(state) = query.state {
        sql.push_str(" AND state = ?");
        values.push(state.as_str().to_owned().into());
    }
    if let Some(from) = query.from {
        sql.push_str(" AND created_at >= ?");
        values.push(from.to_string().into());
    }
    if let Some(before) = query.before {
        sql.push_str(" AND created_at < ?");
        values.push(before.to_string().into());
    }
    if let Some(after) = &query.after {
        sql.push_str(" AND (created_at, agent_id) < (?, ?)");
        values.push(after.created_at.to_string().into());
        values.push(after.id.clone().into());
    }
    sql.push_str(" ORDER BY created_at DESC, agent_id DESC LIMIT ?");
    values.push(i64::from(query.limit).into());
    connection
        .prepare_cached(&sql)?
        .query_map(params_from_iter(values), subagent)?
        .collect::<Result<_>>()
}

/// Sets the role of a subagent; None if there is no such subagent.
pub fn set_role(
    connection: &Connection,
    tenant: &str,
    agent_id: &str,
    role: &str,
    source: RoleSource,
) -> Result<Option<SubagentRecord>> {
    let Some(mut agent) = find(connection, tenant, agent_id)? else { return Ok(None) };
    (agent.role, agent.role_source) = (Some(role.to_owned()), Some(source));
    put_subagent(connection, tenant, &agent)?;
    Ok(Some(agent))
}

/// Removes a session's subagents, calls and marks; returns the number of subagents.
pub fn forget_session(connection: &Connection, tenant: &str, session_id: &str) -> Result<u64> {
    for sql in [
        "DELETE FROM task_spawns WHERE session_id = ?1 AND tenant = ?2",
        "DELETE FROM sessions WHERE session_id = ?1 AND tenant = ?2",
        "DELETE FROM hook_sessions WHERE session_id = ?1 AND tenant = ?2",
    ] {
        connection.execute(sql, [session_id, tenant])?;
    }
    let sql = "DELETE FROM subagents WHERE session_id = ?1 AND tenant = ?2";
    Ok(connection.execute(sql, [session_id, tenant])? as u64)
}

/// Lines of the log, newest first.
pub fn list_log(
    connection: &Connection,
    tenant: &str,
    query: &LogQuery,
) -> Result<Vec<HookLogRecord>> {
    let mut sql = String::from(
        "SELECT id, session_id, hook_name, event_type, agent_id, timestamp, result, details,
                duration_ms, tool_use_id
         FROM hook_log WHERE tenant = ?",
    );
    let mut values: Vec<Value> = vec![tenant.to_owned().into()];
    if let Some(session_id) = &query.session_id {
        sql.push_str(" AND session_id = ?");
        values.push(session_id.clone().into());
    }
    if let Some(before) = query.before {
        sql.push_str(" AND id < ?");
        values.push(before.into());
    }
    sql.push_str(" ORDER BY id DESC LIMIT ?");
    values.push(i64::from(query.limit).into());
    connection
        .prepare_cached(&sql)?
        .query_map(params_from_iter(values), line)?
        .collect::<Result<_>>()
}

fn line(row: &Row<'_>) -> Result<HookLogRecord> {
    let details: Option<String> = row.get(7)?;
    Ok(HookLogRecord {
        id: row.get(0)?,
        session_id: row.get(1)?,
        hook_name: row.get(2)?,
        event_type: row.get(3)?,
        agent_id: row.get(4)?,
        timestamp: time(row, 5)?.unwrap_or_default(),
        result: row.get(6)?,
        details: details.and_then(|text| serde_json::from_str(&text).ok()),
        duration_ms: row.get(8)?,
        tool_use_id: row.get(9)?,
    })
}

/// The caller of an MCP tool, by Claude Code's id of the call.
pub fn find_tool_caller(
    connection: &Connection,
    tenant: &str,
    tool_use_id: &str,
) -> Result<Option<ToolCaller>> {
    connection
        .prepare_cached(
            "SELECT l.session_id, l.agent_id, s.agent_type, s.role
             FROM hook_log l
             LEFT JOIN subagents s ON s.agent_id = l.agent_id AND s.tenant = l.tenant
             WHERE l.tool_use_id = ?1 AND l.tenant = ?2 ORDER BY l.id DESC LIMIT 1",
        )?
        .query_row([tool_use_id, tenant], |row| {
            Ok(ToolCaller {
                session_id: row.get(0)?,
                agent_id: row.get(1)?,
                agent_type: row.get(2)?,
                role: row.get(3)?,
            })
        })
        .optional()
}

/// Whether the oldest line of the log, or the oldest use of a file, is older than `before`.
pub fn has_old_log(connection: &Connection, before: Timestamp) -> Result<bool> {
    connection
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM (SELECT timestamp FROM hook_log ORDER BY id LIMIT 1)
                            WHERE timestamp < ?1)
                 OR EXISTS (SELECT 1 FROM (SELECT timestamp FROM file_touches ORDER BY id LIMIT 1)
                            WHERE timestamp < ?1)",
        )?
        .query_row([before.to_string()], |row| row.get(0))
}

/// Removes up to `limit` lines of the log and uses of files from before `before`. Lines are in the order of their
/// times, so only the oldest are checked.
pub fn purge_log(connection: &Connection, before: Timestamp, limit: u32) -> Result<u64> {
    let mut removed = 0;
    for sql in [
        "DELETE FROM hook_log WHERE id IN (
             SELECT id FROM (SELECT id, timestamp FROM hook_log ORDER BY id LIMIT ?2)
             WHERE timestamp < ?1)",
        "DELETE FROM file_touches WHERE id IN (
             SELECT id FROM (SELECT id, timestamp FROM file_touches ORDER BY id LIMIT ?2)
             WHERE timestamp < ?1)",
    ] {
        let purge = connection.prepare_cached(sql)?.execute(params![before.to_string(), limit])?;
        removed += purge as u64;
    }
    Ok(removed)
}

/// Removes up to `limit` rows of a tenant from each table; returns the number of rows.
pub fn erase(connection: &Connection, tenant: &str, limit: u32) -> Result<u64> {
    let mut removed = 0;
    for sql in [
        "DELETE FROM subagents WHERE (agent_id, tenant) IN
             (SELECT agent_id, tenant FROM subagents WHERE tenant = ?1 LIMIT ?2)",
        "DELETE FROM sessions WHERE (session_id, hook_name, tenant) IN
             (SELECT session_id, hook_name, tenant FROM sessions WHERE tenant = ?1 LIMIT ?2)",
        "DELETE FROM hook_sessions WHERE (session_id, tenant) IN
             (SELECT session_id, tenant FROM hook_sessions WHERE tenant = ?1 LIMIT ?2)",
        "DELETE FROM task_spawns WHERE id IN
             (SELECT id FROM task_spawns WHERE tenant = ?1 LIMIT ?2)",
        "DELETE FROM hook_log WHERE id IN (SELECT id FROM hook_log WHERE tenant = ?1 LIMIT ?2)",
        "DELETE FROM file_touches WHERE id IN
             (SELECT id FROM file_touches WHERE tenant = ?1 LIMIT ?2)",
    ] {
        removed += connection.execute(sql, params![tenant, limit])? as u64;
    }
    Ok(removed)
}
