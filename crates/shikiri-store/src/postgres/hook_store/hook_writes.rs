//! Writes the changes of hook events, and removes rows of hooks.

use shikiri_model::hook::{
    HookLogEntry, HookRowChange, RoleSource, SUBAGENTS_MARK, SessionMark, SpawnCall,
    SubagentRecord, TranscriptOffset,
};
use shikiri_model::ids::TenantId;
use shikiri_model::time::Timestamp;
use sqlx::postgres::{PgConnection, PgPool};

use super::{file_touches, hook_rows, hook_sessions};
use crate::postgres::row_mapping::signed;

type Outcome<T> = Result<T, sqlx::Error>;

pub(super) async fn changes(
    tx: &mut PgConnection,
    tenant: &TenantId,
    changes: &[HookRowChange],
) -> Outcome<()> {
    for change in changes {
        write_one(tx, tenant, change).await?;
    }
    Ok(())
}

/// Locks the claimed rows, so that no other claimant can take them before this is written.
pub(super) async fn confirm(
    tx: &mut PgConnection,
    tenant: &TenantId,
    me: &str,
    confirmed: &[HookRowChange],
) -> Outcome<bool> {
    for change in confirmed {
        if !is_still_claimed(tx, tenant, me, change).await? {
            return Ok(false);
        }
    }
    changes(tx, tenant, confirmed).await?;
    Ok(true)
}

async fn is_still_claimed(
    tx: &mut PgConnection,
    tenant: &TenantId,
    me: &str,
    change: &HookRowChange,
) -> Outcome<bool> {
    match change {
        HookRowChange::Delivered { agent_id, .. } => {
            let sql = "SELECT claimed_by FROM subagents WHERE agent_id = $1 AND tenant = $2
                       FOR UPDATE";
            let claimed = sqlx::query_scalar(sql).bind(agent_id).bind(tenant.as_str());
            let claimed: Option<Option<String>> = claimed.fetch_optional(tx).await?;
            Ok(claimed.flatten().as_deref() == Some(me))
        }
        HookRowChange::Mark(confirmed) => Ok(hook_rows::locked_mark(tx, tenant, &confirmed.key)
            .await?
            .is_some_and(|mark| mark.is_claimed_by(me))),
        _ => Ok(true),
    }
}

async fn write_one(
    tx: &mut PgConnection,
    tenant: &TenantId,
    change: &HookRowChange,
) -> Outcome<()> {
    match change {
        HookRowChange::Subagent(agent) => put_subagent(tx, tenant, agent).await,
        HookRowChange::Spawn(spawn) => put_spawn(tx, tenant, spawn).await,
        HookRowChange::Mark(mark) => put_mark(tx, tenant, mark).await,
        HookRowChange::Session(session) => hook_sessions::put(tx, tenant, session).await,
        HookRowChange::ExpireMainMarks { session_id, status, at } => {
            let sql = "UPDATE sessions SET status = $2, expired_at = $3
                       WHERE session_id = $1 AND tenant = $4 AND NOT starts_with(hook_name, $5)";
            let expire = sqlx::query(sql).bind(session_id).bind(*status).bind(at.to_string());
            let expire = expire.bind(tenant.as_str()).bind(SUBAGENTS_MARK);
            expire.execute(tx).await.map(drop)
        }
        HookRowChange::Delivered { agent_id, key, at } => {
            let sql = "UPDATE subagents SET startup_processed = 1, startup_processed_at = $2,
                           delivered = $3, claimed_by = NULL, claimed_until = NULL
                       WHERE agent_id = $1 AND tenant = $4";
            let deliver = sqlx::query(sql).bind(agent_id).bind(at.to_string()).bind(key);
            deliver.bind(tenant.as_str()).execute(tx).await.map(drop)
        }
        HookRowChange::Unmatch { session_id, tool_use_id } => {
            let sql = "UPDATE task_spawns SET matched_agent_id = NULL
                       WHERE session_id = $1 AND tool_use_id = $2 AND tenant = $3";
            let unmatch = sqlx::query(sql).bind(session_id).bind(tool_use_id);
            unmatch.bind(tenant.as_str()).execute(tx).await.map(drop)
        }
        HookRowChange::Touch(touch) => file_touches::put(tx, tenant, touch).await,
        HookRowChange::Unbind { agent_id } => {
            let Some(mut agent) = hook_rows::lock_subagent(&mut *tx, tenant, agent_id).await?
            else {
                return Ok(());
            };
            agent.unbind();
            put_subagent(tx, tenant, &agent).await
        }
    }
}

pub(super) async fn log(
    tx: &mut PgConnection,
    tenant: &TenantId,
    session_id: &str,
    line: &HookLogEntry,
    at: Timestamp,
    duration_ms: i64,
) -> Outcome<()> {
    let sql =
        "INSERT INTO hook_log (tenant, session_id, hook_name, event_type, agent_id, timestamp,
                   result, details, duration_ms, tool_use_id)
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
    sqlx::query(sql)
        .bind(tenant.as_str())
        .bind(session_id)
        .bind(&line.hook_name)
        .bind(&line.event_type)
        .bind(&line.agent_id)
        .bind(at.to_string())
        .bind(line.result)
        .bind(line.details.as_ref().map(ToString::to_string))
        .bind(duration_ms)
        .bind(&line.tool_use_id)
        .execute(tx)
        .await
        .map(drop)
}

async fn put_subagent(
    tx: &mut PgConnection,
    tenant: &TenantId,
    agent: &SubagentRecord,
) -> Outcome<()> {
    let sql = "INSERT INTO subagents
                   (tenant, agent_id, session_id, agent_type, role, role_source, confidence,
                    created_at, startup_processed, startup_processed_at, task_match_index,
                    tool_use_id, parent_agent_id, delivered, claimed_by, claimed_until, checked,
                    state, ended_at, end_reason, usage, usage_complete, transcript_path,
                    resumed_at)
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17,
                       $18, $19, $20, $21, $22, $23, $24)
               ON CONFLICT (agent_id, tenant) DO UPDATE SET
                   session_id = EXCLUDED.session_id, agent_type = EXCLUDED.agent_type,
                   role = EXCLUDED.role, role_source = EXCLUDED.role_source,
                   confidence = EXCLUDED.confidence, created_at = EXCLUDED.created_at,
                   startup_processed = EXCLUDED.startup_processed,
                   startup_processed_at = EXCLUDED.startup_processed_at,
                   task_match_index = EXCLUDED.task_match_index,
                   tool_use_id = EXCLUDED.tool_use_id,
                   parent_agent_id = EXCLUDED.parent_agent_id, delivered = EXCLUDED.delivered,
                   claimed_by = EXCLUDED.claimed_by, claimed_until = EXCLUDED.claimed_until,
                   checked = EXCLUDED.checked, state = EXCLUDED.state,
                   ended_at = EXCLUDED.ended_at, end_reason = EXCLUDED.end_reason,
                   usage = EXCLUDED.usage, usage_complete = EXCLUDED.usage_complete,
                   transcript_path = EXCLUDED.transcript_path,
                   resumed_at = EXCLUDED.resumed_at";
    sqlx::query(sql)
        .bind(tenant.as_str())
        .bind(&agent.agent_id)
        .bind(&agent.session_id)
        .bind(&agent.agent_type)
        .bind(&agent.role)
        .bind(agent.role_source.map(RoleSource::as_str))
        .bind(agent.confidence.as_str())
        .bind(agent.created_at.to_string())
        .bind(i64::from(agent.startup_processed))
        .bind(agent.startup_processed_at.map(|at| at.to_string()))
        .bind(agent.task_match_index)
        .bind(&agent.tool_use_id)
        .bind(&agent.parent_agent_id)
        .bind(&agent.delivered)
        .bind(agent.claim.as_ref().map(|claim| claim.by.as_str()))
        .bind(agent.claim.as_ref().map(|claim| claim.until.to_string()))
        .bind(i64::from(agent.checked))
        .bind(agent.state.as_str())
        .bind(agent.ended_at.map(|at| at.to_string()))
        .bind(&agent.end_reason)
        .bind(&agent.usage)
        .bind(i64::from(agent.usage_complete))
        .bind(&agent.transcript_path)
        .bind(agent.resumed_at.map(|at| at.to_string()))
        .execute(tx)
        .await
        .map(drop)
}

/// An update keeps the row's id, because subagents refer to it.
async fn put_spawn(tx: &mut PgConnection, tenant: &TenantId, spawn: &SpawnCall) -> Outcome<()> {
    let sql = "INSERT INTO task_spawns
                   (tenant, session_id, tool_use_id, transcript_index, subagent_type, role,
                    prompt_hash, name, parent_agent_id, matched_agent_id, delivered, created_at,
                    ended_at)
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
               ON CONFLICT (session_id, tool_use_id, tenant) DO UPDATE SET
                   matched_agent_id = EXCLUDED.matched_agent_id, delivered = EXCLUDED.delivered,
                   ended_at = EXCLUDED.ended_at";
    sqlx::query(sql)
        .bind(tenant.as_str())
        .bind(&spawn.session_id)
        .bind(&spawn.tool_use_id)
        .bind(spawn.transcript_index)
        .bind(&spawn.subagent_type)
        .bind(&spawn.role)
        .bind(&spawn.prompt_hash)
        .bind(&spawn.name)
        .bind(&spawn.parent_agent_id)
        .bind(&spawn.matched_agent_id)
        .bind(&spawn.delivered)
        .bind(spawn.created_at.to_string())
        .bind(spawn.ended_at.map(|at| at.to_string()))
        .execute(tx)
        .await
        .map(drop)
}

async fn put_mark(tx: &mut PgConnection, tenant: &TenantId, mark: &SessionMark) -> Outcome<()> {
    let sql = "INSERT INTO sessions
                   (session_id, hook_name, tenant, created_at, last_tokens, status, expired_at)
               VALUES ($1, $2, $3, $4, $5, $6, $7)
               ON CONFLICT (session_id, hook_name, tenant) DO UPDATE SET
                   created_at = EXCLUDED.created_at, last_tokens = EXCLUDED.last_tokens,
                   status = EXCLUDED.status, expired_at = EXCLUDED.expired_at";
    sqlx::query(sql)
        .bind(&mark.key.session_id)
        .bind(&mark.key.hook_name)
        .bind(tenant.as_str())
        .bind(mark.created_at.to_string())
        .bind(signed(mark.last_tokens))
        .bind(&mark.status)
        .bind(mark.expired_at.map(|at| at.to_string()))
        .execute(tx)
        .await
        .map(drop)
}

pub(super) async fn set_read_to(
    tx: &mut PgConnection,
    path: &str,
    read: TranscriptOffset,
    now: Timestamp,
) -> Outcome<()> {
    let sql = "INSERT INTO transcripts (path, inode, read_to, lines, updated_at)
               VALUES ($1, $2, $3, $4, $5)
               ON CONFLICT (path) DO UPDATE SET
                   inode = EXCLUDED.inode, read_to = EXCLUDED.read_to, lines = EXCLUDED.lines,
                   updated_at = EXCLUDED.updated_at";
    sqlx::query(sql)
        .bind(path)
        .bind(signed(read.inode))
        .bind(signed(read.offset))
        .bind(signed(read.lines))
        .bind(now.to_string())
        .execute(tx)
        .await
        .map(drop)
}

pub(super) async fn set_role(
    tx: &mut PgConnection,
    tenant: &TenantId,
    agent_id: &str,
    role: &str,
    source: RoleSource,
) -> Outcome<Option<SubagentRecord>> {
    // Only these columns, because an event may be changing the others.
    let sql = "UPDATE subagents SET role = $3, role_source = $4
               WHERE agent_id = $1 AND tenant = $2";
    let update = sqlx::query(sql).bind(agent_id).bind(tenant.as_str());
    update.bind(role).bind(source.as_str()).execute(&mut *tx).await?;
    hook_rows::find(tx, tenant, agent_id).await
}

pub(super) async fn forget_session(
    tx: &mut PgConnection,
    tenant: &TenantId,
    session_id: &str,
) -> Outcome<u64> {
    let mut subagents = 0;
    for sql in [
        "DELETE FROM task_spawns WHERE session_id = $1 AND tenant = $2",
        "DELETE FROM sessions WHERE session_id = $1 AND tenant = $2",
        "DELETE FROM hook_sessions WHERE session_id = $1 AND tenant = $2",
        "DELETE FROM subagents WHERE session_id = $1 AND tenant = $2",
    ] {
        let delete = sqlx::query(sql).bind(session_id).bind(tenant.as_str());
        subagents = delete.execute(&mut *tx).await?.rows_affected();
    }
    Ok(subagents)
}

/// Lines are in the order of their times, so only the oldest are checked.
pub(super) async fn purge_log(pool: &PgPool, before: Timestamp, limit: u32) -> Outcome<u64> {
    let mut removed = 0;
    for sql in [
        "DELETE FROM hook_log WHERE id IN (
             SELECT id FROM (SELECT id, timestamp FROM hook_log ORDER BY id LIMIT $2) o
             WHERE o.timestamp COLLATE \"C\" < $1)",
        "DELETE FROM file_touches WHERE id IN (
             SELECT id FROM (SELECT id, timestamp FROM file_touches ORDER BY id LIMIT $2) o
             WHERE o.timestamp COLLATE \"C\" < $1)",
    ] {
        let purge = sqlx::query(sql).bind(before.to_string()).bind(i64::from(limit));
        removed += purge.execute(pool).await?.rows_affected();
    }
    Ok(removed)
}

/// Removes a tenant's rows in batches.
pub(in crate::postgres) async fn erase(
    pool: &PgPool,
    tenant: &TenantId,
    at_once: i64,
) -> Outcome<()> {
    for sql in [
        "DELETE FROM subagents WHERE tenant = $1 AND agent_id IN
             (SELECT agent_id FROM subagents WHERE tenant = $1 LIMIT $2)",
        "DELETE FROM sessions WHERE tenant = $1 AND (session_id, hook_name) IN
             (SELECT session_id, hook_name FROM sessions WHERE tenant = $1 LIMIT $2)",
        "DELETE FROM hook_sessions WHERE tenant = $1 AND session_id IN
             (SELECT session_id FROM hook_sessions WHERE tenant = $1 LIMIT $2)",
        "DELETE FROM task_spawns WHERE id IN
             (SELECT id FROM task_spawns WHERE tenant = $1 LIMIT $2)",
        "DELETE FROM hook_log WHERE id IN (SELECT id FROM hook_log WHERE tenant = $1 LIMIT $2)",
        "DELETE FROM file_touches WHERE id IN
             (SELECT id FROM file_touches WHERE tenant = $1 LIMIT $2)",
    ] {
        loop {
            let erased = sqlx::query(sql).bind(tenant.as_str()).bind(at_once).execute(pool).await?;
            if erased.rows_affected() == 0 {
                break;
            }
        }
    }
    Ok(())
}
