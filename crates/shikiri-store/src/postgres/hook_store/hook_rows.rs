//! Loads the rows that an event needs. The event's lock keeps them until the end of its
//! transaction.

use shikiri_model::hook::{
    DeliveryClaim, HookRows, HookRowsNeeded, RoleConfidence, RoleSource, SessionMark,
    SessionMarkKey, SpawnCall, SubagentRecord, SubagentState, TranscriptOffset,
};
use shikiri_model::ids::TenantId;
use shikiri_model::time::Timestamp;
use sqlx::postgres::{PgConnection, PgExecutor, PgRow};
use sqlx::{AssertSqlSafe, Row};

use super::hook_sessions;
use crate::postgres::row_mapping::unsigned;

type Outcome<T> = Result<T, sqlx::Error>;

pub(super) const SUBAGENT: &str = "agent_id, session_id, agent_type, role, role_source, confidence,
    created_at, startup_processed, startup_processed_at, task_match_index, tool_use_id,
    parent_agent_id, delivered, claimed_by, claimed_until, checked, state, ended_at, end_reason,
    usage, usage_complete, transcript_path, resumed_at";

/// The number of transcripts that one event reads again.
const MOST_UNREAD: i64 = 16;

const SPAWN: &str = "id, session_id, tool_use_id, transcript_index, subagent_type, role,
    prompt_hash, name, parent_agent_id, matched_agent_id, delivered, created_at, ended_at";

pub(super) async fn load(
    tx: &mut PgConnection,
    tenant: &TenantId,
    needs: &HookRowsNeeded,
) -> Outcome<HookRows> {
    let mut known = HookRows::default();
    if !needs.spawns.is_empty() {
        let sql = format!(
            "SELECT {SPAWN} FROM task_spawns
             WHERE session_id = $1 AND tool_use_id = ANY($2) AND tenant = $3 ORDER BY id"
        );
        let found = sqlx::query(AssertSqlSafe(sql))
            .bind(&needs.session_id)
            .bind(&needs.spawns)
            .bind(tenant.as_str())
            .fetch_all(&mut *tx)
            .await?;
        known.spawns = found.iter().map(spawn).collect::<Outcome<_>>()?;
    }
    let matched = known.spawns.iter().find_map(|spawn| spawn.matched_agent_id.as_ref());
    if let Some(id) = needs.agent_id.as_ref().or(matched.filter(|_| needs.matched)) {
        known.agent = lock_subagent(&mut *tx, tenant, id).await?;
    }
    if needs.pending {
        let sql = format!(
            "SELECT {SPAWN} FROM task_spawns
             WHERE session_id = $1 AND matched_agent_id IS NULL AND ended_at IS NULL AND tenant = $2
             ORDER BY id"
        );
        let found = of_session(tx, sql, tenant, needs).await?;
        known.pending = found.iter().map(spawn).collect::<Outcome<_>>()?;
    }
    if needs.active {
        let sql = format!(
            "SELECT {SUBAGENT} FROM subagents
             WHERE session_id = $1 AND state = 'active' AND tenant = $2
             ORDER BY created_at COLLATE \"C\", agent_id FOR UPDATE"
        );
        let found = of_session(tx, sql, tenant, needs).await?;
        known.active = found.iter().map(subagent).collect::<Outcome<_>>()?;
    }
    if needs.unread {
        let sql = format!(
            "SELECT {SUBAGENT} FROM subagents
             WHERE session_id = $1 AND state = 'ended' AND usage_complete = 0 AND tenant = $2
             ORDER BY created_at COLLATE \"C\", agent_id LIMIT {MOST_UNREAD} FOR UPDATE"
        );
        let found = of_session(tx, sql, tenant, needs).await?;
        known.unread = found.iter().map(subagent).collect::<Outcome<_>>()?;
    }
    if needs.session {
        known.session = hook_sessions::lock(tx, tenant, &needs.session_id).await?;
    }
    if needs.marks {
        let sql = "SELECT session_id, hook_name, created_at, last_tokens, status, expired_at
                   FROM sessions WHERE session_id = $1 AND tenant = $2 FOR UPDATE";
        let found = of_session(tx, sql.to_owned(), tenant, needs).await?;
        known.marks = found.iter().map(mark).collect::<Outcome<_>>()?;
    }
    Ok(known)
}

async fn of_session(
    tx: &mut PgConnection,
    sql: String,
    tenant: &TenantId,
    needs: &HookRowsNeeded,
) -> Outcome<Vec<PgRow>> {
    sqlx::query(AssertSqlSafe(sql))
        .bind(&needs.session_id)
        .bind(tenant.as_str())
        .fetch_all(tx)
        .await
}

/// Like `find`, with a row lock until the end of the transaction: confirming and setting a role do
/// not take the session's lock.
pub(super) async fn lock_subagent(
    tx: &mut PgConnection,
    tenant: &TenantId,
    agent_id: &str,
) -> Outcome<Option<SubagentRecord>> {
    let sql = "SELECT 1 FROM subagents WHERE agent_id = $1 AND tenant = $2 FOR UPDATE";
    sqlx::query(sql).bind(agent_id).bind(tenant.as_str()).execute(&mut *tx).await?;
    find(tx, tenant, agent_id).await
}

pub(super) async fn find(
    executor: impl PgExecutor<'_>,
    tenant: &TenantId,
    agent_id: &str,
) -> Outcome<Option<SubagentRecord>> {
    let sql = format!("SELECT {SUBAGENT} FROM subagents WHERE agent_id = $1 AND tenant = $2");
    let found = sqlx::query(AssertSqlSafe(sql))
        .bind(agent_id)
        .bind(tenant.as_str())
        .fetch_optional(executor)
        .await?;
    found.as_ref().map(subagent).transpose()
}

pub(super) fn subagent(row: &PgRow) -> Outcome<SubagentRecord> {
    let claimed_by: Option<String> = row.try_get("claimed_by")?;
    let source = word(row, "role_source")?;
    let confidence = word(row, "confidence")?;
    let state = word(row, "state")?;
    Ok(SubagentRecord {
        agent_id: row.try_get("agent_id")?,
        session_id: row.try_get("session_id")?,
        agent_type: row.try_get("agent_type")?,
        role: row.try_get("role")?,
        role_source: source.and_then(|word| RoleSource::parse(&word)),
        confidence: confidence.and_then(|word| RoleConfidence::parse(&word)).unwrap_or_default(),
        created_at: time(row, "created_at")?.unwrap_or_default(),
        startup_processed: row.try_get::<i64, _>("startup_processed")? != 0,
        startup_processed_at: time(row, "startup_processed_at")?,
        task_match_index: row.try_get("task_match_index")?,
        tool_use_id: row.try_get("tool_use_id")?,
        parent_agent_id: row.try_get("parent_agent_id")?,
        delivered: row.try_get("delivered")?,
        claim: claimed_by
            .zip(time(row, "claimed_until")?)
            .map(|(by, until)| DeliveryClaim { by, until }),
        checked: row.try_get::<i64, _>("checked")? != 0,
        state: state.and_then(|word| SubagentState::parse(&word)).unwrap_or_default(),
        ended_at: time(row, "ended_at")?,
        end_reason: row.try_get("end_reason")?,
        usage: row.try_get("usage")?,
        usage_complete: row.try_get::<i64, _>("usage_complete")? != 0,
        transcript_path: row.try_get("transcript_path")?,
        resumed_at: time(row, "resumed_at")?,
    })
}

fn spawn(row: &PgRow) -> Outcome<SpawnCall> {
    Ok(SpawnCall {
        id: row.try_get("id")?,
        session_id: row.try_get("session_id")?,
        tool_use_id: row.try_get("tool_use_id")?,
        transcript_index: row.try_get("transcript_index")?,
        subagent_type: word(row, "subagent_type")?.unwrap_or_default(),
        role: row.try_get("role")?,
        prompt_hash: word(row, "prompt_hash")?.unwrap_or_default(),
        name: row.try_get("name")?,
        parent_agent_id: row.try_get("parent_agent_id")?,
        matched_agent_id: row.try_get("matched_agent_id")?,
        delivered: row.try_get("delivered")?,
        created_at: time(row, "created_at")?.unwrap_or_default(),
        ended_at: time(row, "ended_at")?,
    })
}

fn mark(row: &PgRow) -> Outcome<SessionMark> {
    let last_tokens: Option<i64> = row.try_get("last_tokens")?;
    let (session_id, hook_name) = (row.try_get("session_id")?, row.try_get("hook_name")?);
    Ok(SessionMark {
        key: SessionMarkKey { session_id, hook_name },
        created_at: time(row, "created_at")?.unwrap_or_default(),
        last_tokens: unsigned(last_tokens.unwrap_or(0)),
        status: row.try_get("status")?,
        expired_at: time(row, "expired_at")?,
    })
}

pub(super) async fn locked_mark(
    tx: &mut PgConnection,
    tenant: &TenantId,
    key: &SessionMarkKey,
) -> Outcome<Option<SessionMark>> {
    let sql = "SELECT session_id, hook_name, created_at, last_tokens, status, expired_at
               FROM sessions WHERE session_id = $1 AND hook_name = $2 AND tenant = $3 FOR UPDATE";
    let found = sqlx::query(sql).bind(&key.session_id).bind(&key.hook_name).bind(tenant.as_str());
    found.fetch_optional(tx).await?.as_ref().map(mark).transpose()
}

pub(super) async fn read_to(
    executor: impl PgExecutor<'_>,
    path: &str,
) -> Outcome<Option<TranscriptOffset>> {
    let sql = "SELECT inode, read_to, lines FROM transcripts WHERE path = $1";
    let found = sqlx::query(sql).bind(path).fetch_optional(executor).await?;
    let place = |row: PgRow| {
        Ok(TranscriptOffset {
            inode: unsigned(row.try_get("inode")?),
            offset: unsigned(row.try_get("read_to")?),
            lines: unsigned(row.try_get("lines")?),
        })
    };
    found.map(place).transpose()
}

fn word(row: &PgRow, name: &str) -> Outcome<Option<String>> {
    row.try_get(name)
}

/// A time that another program wrote in another format counts as missing.
pub(super) fn time(row: &PgRow, name: &str) -> Outcome<Option<Timestamp>> {
    Ok(word(row, name)?.and_then(|text| text.parse().ok()))
}
