//! The rows of hooks, read and written inside the caller's transaction by hook processes and the
//! server.

mod file_touches;
mod hook_reports;
mod hook_sessions;
mod hook_stats;

use rusqlite::{Connection, OptionalExtension, Result, Row, params};
use shikiri_model::hook::{
    DeliveryClaim, HookLogEntry, HookRowChange, HookRows, HookRowsNeeded, RoleConfidence,
    RoleSource, SUBAGENTS_MARK, SessionMark, SessionMarkKey, SpawnCall, SubagentRecord,
    SubagentState, TranscriptOffset,
};
use shikiri_model::time::Timestamp;

pub use file_touches::list_touches;
pub use hook_reports::{
    erase, find_tool_caller, forget_session, has_old_log, list_log, purge_log, set_role, subagents,
};
pub use hook_sessions::{sessions, update_usage};
pub use hook_stats::stats;

const SUBAGENT: &str = "agent_id, session_id, agent_type, role, role_source, confidence,
    created_at, startup_processed, startup_processed_at, task_match_index, tool_use_id,
    parent_agent_id, delivered, claimed_by, claimed_until, checked, state, ended_at, end_reason,
    usage, usage_complete, transcript_path, resumed_at";

/// The number of transcripts that one event reads again.
const MOST_UNREAD: i64 = 16;

const SPAWN: &str = "id, session_id, tool_use_id, transcript_index, subagent_type, role,
    prompt_hash, name, parent_agent_id, matched_agent_id, delivered, created_at, ended_at";

const LOG: &str = "INSERT INTO hook_log (tenant, session_id, hook_name, event_type, agent_id,
        timestamp, result, details, duration_ms, tool_use_id)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";

/// Compiles the usual statements before the transaction, because others wait while it is open.
pub fn prepare(connection: &Connection, needs: &HookRowsNeeded) -> Result<()> {
    connection.prepare_cached(LOG)?;
    if needs.agent_id.is_some() {
        connection.prepare_cached(&find_sql())?;
    }
    Ok(())
}

/// The rows that an event needs.
pub fn load(connection: &Connection, tenant: &str, needs: &HookRowsNeeded) -> Result<HookRows> {
    let mut known = HookRows::default();
    for tool_use_id in &needs.spawns {
        let sql = format!(
            "SELECT {SPAWN} FROM task_spawns
             WHERE session_id = ?1 AND tool_use_id = ?2 AND tenant = ?3"
        );
        let found = connection
            .prepare_cached(&sql)?
            .query_row([&needs.session_id, tool_use_id, tenant], spawn)
            .optional()?;
        known.spawns.extend(found);
    }
    let matched = known.spawns.iter().find_map(|spawn| spawn.matched_agent_id.as_ref());
    if let Some(id) = needs.agent_id.as_ref().or(matched.filter(|_| needs.matched)) {
        known.agent = find(connection, tenant, id)?;
    }
    if needs.pending {
        let sql = format!(
            "SELECT {SPAWN} FROM task_spawns
             WHERE session_id = ?1 AND matched_agent_id IS NULL AND ended_at IS NULL AND tenant = ?2
             ORDER BY id"
        );
        let mut select = connection.prepare_cached(&sql)?;
        known.pending =
            select.query_map([&needs.session_id, tenant], spawn)?.collect::<Result<_>>()?;
    }
    if needs.active {
        let sql = format!(
            "SELECT {SUBAGENT} FROM subagents
             WHERE session_id = ?1 AND state = 'active' AND tenant = ?2
             ORDER BY created_at, agent_id"
        );
        let mut select = connection.prepare_cached(&sql)?;
        known.active =
            select.query_map([&needs.session_id, tenant], subagent)?.collect::<Result<_>>()?;
    }
    if needs.unread {
        let sql = format!(
            "SELECT {SUBAGENT} FROM subagents
             WHERE session_id = ?1 AND state = 'ended' AND usage_complete = 0 AND tenant = ?2
             ORDER BY created_at, agent_id LIMIT ?3"
        );
        let mut select = connection.prepare_cached(&sql)?;
        let found = select.query_map(params![needs.session_id, tenant, MOST_UNREAD], subagent)?;
        known.unread = found.collect::<Result<_>>()?;
    }
    if needs.session {
        known.session = hook_sessions::find(connection, tenant, &needs.session_id)?;
    }
    if needs.marks {
        let mut select = connection.prepare_cached(
            "SELECT session_id, hook_name, created_at, last_tokens, status, expired_at
             FROM sessions WHERE session_id = ?1 AND tenant = ?2",
        )?;
        known.marks =
            select.query_map([&needs.session_id, tenant], mark)?.collect::<Result<_>>()?;
    }
    Ok(known)
}

pub fn find(
    connection: &Connection,
    tenant: &str,
    agent_id: &str,
) -> Result<Option<SubagentRecord>> {
    connection.prepare_cached(&find_sql())?.query_row([agent_id, tenant], subagent).optional()
}

fn find_sql() -> String {
    format!("SELECT {SUBAGENT} FROM subagents WHERE agent_id = ?1 AND tenant = ?2")
}

/// Writes the changes of a decision.
pub fn write(connection: &Connection, tenant: &str, changes: &[HookRowChange]) -> Result<()> {
    changes.iter().try_for_each(|change| match change {
        HookRowChange::Subagent(agent) => put_subagent(connection, tenant, agent),
        HookRowChange::Spawn(spawn) => put_spawn(connection, tenant, spawn),
        HookRowChange::Mark(mark) => put_mark(connection, tenant, mark),
        HookRowChange::Session(session) => hook_sessions::put(connection, tenant, session),
        HookRowChange::ExpireMainMarks { session_id, status, at } => connection
            .prepare_cached(
                "UPDATE sessions SET status = ?2, expired_at = ?3
                 WHERE session_id = ?1 AND tenant = ?4
                   AND substr(hook_name, 1, length(?5)) <> ?5",
            )?
            .execute(params![session_id, status, at.to_string(), tenant, SUBAGENTS_MARK])
            .map(drop),
        HookRowChange::Delivered { agent_id, key, at } => connection
            .prepare_cached(
                "UPDATE subagents SET startup_processed = 1, startup_processed_at = ?2,
                                      delivered = ?3, claimed_by = NULL, claimed_until = NULL
                 WHERE agent_id = ?1 AND tenant = ?4",
            )?
            .execute(params![agent_id, at.to_string(), key, tenant])
            .map(drop),
        HookRowChange::Unmatch { session_id, tool_use_id } => connection
            .prepare_cached(
                "UPDATE task_spawns SET matched_agent_id = NULL
                 WHERE session_id = ?1 AND tool_use_id = ?2 AND tenant = ?3",
            )?
            .execute([session_id, tool_use_id, tenant])
            .map(drop),
        HookRowChange::Touch(touch) => file_touches::put(connection, tenant, touch),
        HookRowChange::Unbind { agent_id } => match find(connection, tenant, agent_id)? {
            Some(mut agent) => {
                agent.unbind();
                put_subagent(connection, tenant, &agent)
            }
            None => Ok(()),
        },
    })
}

/// Confirms an answer that this claimant delivered. Returns false and writes nothing if the claim
/// was lost: another claimant then gives the same answer.
pub fn confirm(
    connection: &Connection,
    tenant: &str,
    me: &str,
    confirmed: &[HookRowChange],
) -> Result<bool> {
    for change in confirmed {
        if !is_still_claimed(connection, tenant, me, change)? {
            return Ok(false);
        }
    }
    write(connection, tenant, confirmed)?;
    Ok(true)
}

fn is_still_claimed(
    connection: &Connection,
    tenant: &str,
    me: &str,
    change: &HookRowChange,
) -> Result<bool> {
    match change {
        HookRowChange::Delivered { agent_id, .. } => {
            let agent = find(connection, tenant, agent_id)?;
            Ok(agent.and_then(|agent| agent.claim).is_some_and(|claim| claim.by == me))
        }
        HookRowChange::Mark(confirmed) => {
            let session_id = confirmed.key.session_id.clone();
            let needs = HookRowsNeeded { session_id, marks: true, ..HookRowsNeeded::default() };
            let marks = load(connection, tenant, &needs)?.marks;
            let claimed = marks.iter().find(|mark| mark.key == confirmed.key);
            Ok(claimed.is_some_and(|mark| mark.is_claimed_by(me)))
        }
        _ => Ok(true),
    }
}

/// Adds a row to the log.
pub fn log(
    connection: &Connection,
    tenant: &str,
    session_id: &str,
    line: &HookLogEntry,
    at: Timestamp,
    duration_ms: i64,
) -> Result<()> {
    connection
        .prepare_cached(LOG)?
        .execute(params![
            tenant,
            session_id,
            line.hook_name,
            line.event_type,
            line.agent_id,
            at.to_string(),
            line.result,
            line.details.as_ref().map(ToString::to_string),
            duration_ms,
            line.tool_use_id,
        ])
        .map(drop)
}

fn put_subagent(connection: &Connection, tenant: &str, agent: &SubagentRecord) -> Result<()> {
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO subagents
                 (tenant, agent_id, session_id, agent_type, role, role_source, confidence,
                  created_at, startup_processed, startup_processed_at, task_match_index,
                  tool_use_id, parent_agent_id, delivered, claimed_by, claimed_until, checked,
                  state, ended_at, end_reason, usage, usage_complete, transcript_path, resumed_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17,
                     ?18, ?19, ?20, ?21, ?22, ?23, ?24)",
        )?
        .execute(params![
            tenant,
            agent.agent_id,
            agent.session_id,
            agent.agent_type,
            agent.role,
            agent.role_source.map(RoleSource::as_str),
            agent.confidence.as_str(),
            agent.created_at.to_string(),
            agent.startup_processed,
            agent.startup_processed_at.map(|at| at.to_string()),
            agent.task_match_index,
            agent.tool_use_id,
            agent.parent_agent_id,
            agent.delivered,
            agent.claim.as_ref().map(|claim| claim.by.as_str()),
            agent.claim.as_ref().map(|claim| claim.until.to_string()),
            agent.checked,
            agent.state.as_str(),
            agent.ended_at.map(|at| at.to_string()),
            agent.end_reason,
            agent.usage,
            agent.usage_complete,
            agent.transcript_path,
            agent.resumed_at.map(|at| at.to_string()),
        ])
        .map(drop)
}

/// An update keeps the row's id, because subagents refer to it.
fn put_spawn(connection: &Connection, tenant: &str, spawn: &SpawnCall) -> Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO task_spawns
                 (tenant, session_id, tool_use_id, transcript_index, subagent_type, role,
                  prompt_hash, name, parent_agent_id, matched_agent_id, delivered, created_at,
                  ended_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
             ON CONFLICT (session_id, tool_use_id, tenant) DO UPDATE SET
                 matched_agent_id = excluded.matched_agent_id, delivered = excluded.delivered,
                 ended_at = excluded.ended_at",
        )?
        .execute(params![
            tenant,
            spawn.session_id,
            spawn.tool_use_id,
            spawn.transcript_index,
            spawn.subagent_type,
            spawn.role,
            spawn.prompt_hash,
            spawn.name,
            spawn.parent_agent_id,
            spawn.matched_agent_id,
            spawn.delivered,
            spawn.created_at.to_string(),
            spawn.ended_at.map(|at| at.to_string()),
        ])
        .map(drop)
}

fn put_mark(connection: &Connection, tenant: &str, mark: &SessionMark) -> Result<()> {
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO sessions
                 (session_id, hook_name, tenant, created_at, last_tokens, status, expired_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?
        .execute(params![
            mark.key.session_id,
            mark.key.hook_name,
            tenant,
            mark.created_at.to_string(),
            i64::try_from(mark.last_tokens).unwrap_or(i64::MAX),
            mark.status,
            mark.expired_at.map(|at| at.to_string()),
        ])
        .map(drop)
}

fn subagent(row: &Row<'_>) -> Result<SubagentRecord> {
    let claimed_by: Option<String> = row.get(13)?;
    Ok(SubagentRecord {
        agent_id: row.get(0)?,
        session_id: row.get(1)?,
        agent_type: row.get(2)?,
        role: row.get(3)?,
        role_source: word(row, 4)?.and_then(|word| RoleSource::parse(&word)),
        confidence: word(row, 5)?.and_then(|word| RoleConfidence::parse(&word)).unwrap_or_default(),
        created_at: time(row, 6)?.unwrap_or_default(),
        startup_processed: row.get(7)?,
        startup_processed_at: time(row, 8)?,
        task_match_index: row.get(9)?,
        tool_use_id: row.get(10)?,
        parent_agent_id: row.get(11)?,
        delivered: row.get(12)?,
        claim: claimed_by.zip(time(row, 14)?).map(|(by, until)| DeliveryClaim { by, until }),
        checked: row.get(15)?,
        state: word(row, 16)?.and_then(|word| SubagentState::parse(&word)).unwrap_or_default(),
        ended_at: time(row, 17)?,
        end_reason: row.get(18)?,
        usage: row.get(19)?,
        usage_complete: row.get(20)?,
        transcript_path: row.get(21)?,
        resumed_at: time(row, 22)?,
    })
}

fn spawn(row: &Row<'_>) -> Result<SpawnCall> {
    Ok(SpawnCall {
        id: row.get(0)?,
        session_id: row.get(1)?,
        tool_use_id: row.get(2)?,
        transcript_index: row.get(3)?,
        subagent_type: row.get(4)?,
        role: row.get(5)?,
        prompt_hash: row.get(6)?,
        name: row.get(7)?,
        parent_agent_id: row.get(8)?,
        matched_agent_id: row.get(9)?,
        delivered: row.get(10)?,
        created_at: time(row, 11)?.unwrap_or_default(),
        ended_at: time(row, 12)?,
    })
}

fn mark(row: &Row<'_>) -> Result<SessionMark> {
    let last_tokens: i64 = row.get(3)?;
    Ok(SessionMark {
        key: SessionMarkKey { session_id: row.get(0)?, hook_name: row.get(1)? },
        created_at: time(row, 2)?.unwrap_or_default(),
        last_tokens: u64::try_from(last_tokens).unwrap_or(0),
        status: row.get(4)?,
        expired_at: time(row, 5)?,
    })
}

fn word(row: &Row<'_>, index: usize) -> Result<Option<String>> {
    row.get(index)
}

/// A time that another program wrote in another format counts as missing.
fn time(row: &Row<'_>, index: usize) -> Result<Option<Timestamp>> {
    Ok(word(row, index)?.and_then(|text| text.parse().ok()))
}

pub fn read_to(connection: &Connection, path: &str) -> Result<Option<TranscriptOffset>> {
    connection
        .prepare_cached("SELECT inode, read_to, lines FROM transcripts WHERE path = ?1")?
        .query_row([path], |row| {
            let whole = |index| row.get(index).map(|n: i64| u64::try_from(n).unwrap_or(0));
            Ok(TranscriptOffset { inode: whole(0)?, offset: whole(1)?, lines: whole(2)? })
        })
        .optional()
}

pub fn set_read_to(
    connection: &Connection,
    path: &str,
    read: TranscriptOffset,
    now: Timestamp,
) -> Result<()> {
    let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO transcripts (path, inode, read_to, lines, updated_at)
             VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute(params![
            path,
            whole(read.inode),
            whole(read.offset),
            whole(read.lines),
            now.to_string()
        ])
        .map(drop)
}

#[cfg(test)]
#[path = "hook_rows_tests.rs"]
mod tests;
