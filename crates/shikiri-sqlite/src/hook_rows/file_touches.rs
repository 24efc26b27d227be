//! Which agents used a file.

use rusqlite::types::Value;
use rusqlite::{Connection, Result, Row, params, params_from_iter};
use shikiri_model::hook::{FileTouch, FileTouchQuery, FileTouchRecord, TouchOutcome};

use super::{time, word};

pub(super) fn put(connection: &Connection, tenant: &str, touch: &FileTouch) -> Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO file_touches (tenant, session_id, agent_id, agent_type, role, tool, path,
                 name, removed, command, outcome, timestamp)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
        )?
        .execute(params![
            tenant,
            touch.session_id,
            touch.agent_id,
            touch.agent_type,
            touch.role,
            touch.tool,
            touch.path,
            touch.name,
            touch.removed,
            touch.command,
            touch.outcome.as_str(),
            touch.at.to_string(),
        ])
        .map(drop)
}

/// The calls that used a file, newest first.
pub fn list_touches(
    connection: &Connection,
    tenant: &str,
    query: &FileTouchQuery,
) -> Result<Vec<FileTouchRecord>> {
    let folders = query.folders();
    let marks = |count: usize| vec!["?"; count].join(", ");
    let sql = format!(
        "SELECT t.session_id, t.agent_id, COALESCE(s.agent_type, t.agent_type),
                COALESCE(s.role, t.role), t.tool, t.path, t.name, t.removed, t.command, t.outcome,
                t.timestamp
         FROM file_touches t
         LEFT JOIN subagents s ON s.agent_id = t.agent_id AND s.tenant = t.tenant
         WHERE t.tenant = ?
           AND (t.path IN ({}) OR t.name = ? OR (t.removed <> 0 AND t.path IN ({})))
         ORDER BY t.id DESC LIMIT ?",
        marks(query.paths.len()),
        marks(folders.len())
    );
    let text = |text: &String| Value::from(text.clone());
    let mut values: Vec<Value> = vec![tenant.to_owned().into()];
    values.extend(query.paths.iter().map(text));
    values.push(query.name.clone().into());
    values.extend(folders.iter().map(text));
    values.push(i64::from(query.limit).into());
    connection.prepare(&sql)?.query_map(params_from_iter(values), touch)?.collect()
}

fn touch(row: &Row<'_>) -> Result<FileTouchRecord> {
    Ok(FileTouchRecord {
        session_id: row.get(0)?,
        agent_id: row.get(1)?,
        agent_type: row.get(2)?,
        role: row.get(3)?,
        tool: row.get(4)?,
        path: row.get(5)?,
        name: row.get(6)?,
        removed: row.get(7)?,
        command: row.get(8)?,
        outcome: word(row, 9)?.and_then(|word| TouchOutcome::parse(&word)).unwrap_or_default(),
        timestamp: time(row, 10)?.unwrap_or_default(),
    })
}
