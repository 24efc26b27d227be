//! Sessions of Claude Code, and what was read about the usage of their agents.

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Result, Row, params, params_from_iter};
use shikiri_model::hook::{HookSession, HookSessionQuery, HookUsageUpdate};

use super::{time, word};

const SESSION: &str = "session_id, agent_type, transcript_path, created_at, counted_from,
    prompted_at, ended_at, usage, usage_complete";

pub(super) fn find(
    connection: &Connection,
    tenant: &str,
    session_id: &str,
) -> Result<Option<HookSession>> {
    let sql = format!("SELECT {SESSION} FROM hook_sessions WHERE session_id = ?1 AND tenant = ?2");
    connection.prepare_cached(&sql)?.query_row([session_id, tenant], session).optional()
}

pub(super) fn put(connection: &Connection, tenant: &str, session: &HookSession) -> Result<()> {
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO hook_sessions
                 (tenant, session_id, agent_type, transcript_path, created_at, counted_from,
                  prompted_at, ended_at, usage, usage_complete)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        )?
        .execute(params![
            tenant,
            session.session_id,
            session.agent_type,
            session.transcript_path,
            session.created_at.to_string(),
            session.counted_from.map(|at| at.to_string()),
            session.prompted_at.map(|at| at.to_string()),
            session.ended_at.map(|at| at.to_string()),
            session.usage,
            session.usage_complete,
        ])
        .map(drop)
}

/// Sessions, newest first.
pub fn sessions(
    connection: &Connection,
    tenant: &str,
    query: &HookSessionQuery,
) -> Result<Vec<HookSession>> {
    let mut sql = format!("SELECT {SESSION} FROM hook_sessions WHERE tenant = ?");
    let mut values: Vec<Value> = vec![tenant.to_owned().into()];
    let from = query.from.map(|at| at.to_string());
    let before = query.before.map(|at| at.to_string());
    for (condition, value) in [
        (" AND session_id = ?", query.session_id.clone()),
        (" AND created_at >= ?", from),
        (" AND created_at < ?", before),
    ] {
        if let Some(value) = value {
            sql.push_str(condition);
            values.push(value.into());
        }
    }
    sql.push_str(" ORDER BY created_at DESC, session_id DESC LIMIT ?");
    values.push(i64::from(query.limit).into());
    connection
        .prepare_cached(&sql)?
        .query_map(params_from_iter(values), session)?
        .collect::<Result<_>>()
}

/// Stores what was read, unless a later event has changed the row meanwhile.
pub fn update_usage(
    connection: &Connection,
    tenant: &str,
    updates: &[HookUsageUpdate],
) -> Result<()> {
    for update in updates {
        let (sql, id) = match &update.agent_id {
            Some(agent_id) => (
                "UPDATE subagents SET usage = ?3, usage_complete = ?4
                 WHERE agent_id = ?1 AND tenant = ?2 AND resumed_at IS ?5
                   AND usage_complete = 0 AND state = 'ended'",
                agent_id,
            ),
            None => (
                "UPDATE hook_sessions SET usage = ?3, usage_complete = ?4
                 WHERE session_id = ?1 AND tenant = ?2 AND prompted_at IS ?5
                   AND usage_complete = 0",
                &update.session_id,
            ),
        };
        let since = update.since.map(|at| at.to_string());
        connection.prepare_cached(sql)?.execute(params![
            id,
            tenant,
            update.usage,
            update.usage_complete,
            since
        ])?;
    }
    Ok(())
}

fn session(row: &Row<'_>) -> Result<HookSession> {
    Ok(HookSession {
        session_id: row.get(0)?,
        agent_type: word(row, 1)?,
        transcript_path: word(row, 2)?,
        created_at: time(row, 3)?.unwrap_or_default(),
        counted_from: time(row, 4)?,
        prompted_at: time(row, 5)?,
        ended_at: time(row, 6)?,
        usage: word(row, 7)?,
        usage_complete: row.get(8)?,
    })
}
