//! Hooks on PostgreSQL, with the same rows and decisions as on SQLite. Events of one session are
//! serialised by an advisory lock, because rows that do not exist yet cannot be locked.

use std::time::Duration;

use async_trait::async_trait;
use shikiri_model::hook::{
    EvidenceRequest, FileTouchQuery, FileTouchRecord, HookLogRecord, HookOutcome, HookRowChange,
    HookSession, HookSessionQuery, HookStats, HookUsageUpdate, LogQuery, RoleSource, SubagentQuery,
    SubagentRecord, ToolCaller, TranscriptOffset, decide,
};
use shikiri_model::ids::TenantId;
use shikiri_model::time::Timestamp;
use sqlx::postgres::PgConnection;
use sqlx::{Postgres, Transaction};
use tokio::time::Instant;

use super::PostgresStore;
use super::connection_url::within;
use super::error_class::{PostgresErrorClass, is_rolled_back, jitter, to_store_error};
use super::read_queries::retry;
use super::row_mapping::clock_ms;
use crate::error::StoreError;
use crate::hook_store::{HookEventInput, HookStore};

mod file_touches;
mod hook_reports;
mod hook_rows;
mod hook_sessions;
mod hook_writes;

pub(super) use hook_writes::erase;

/// How long to retry after conflicts and while the server restarts.
const RETRY_FOR: Duration = Duration::from_secs(2);
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// Longer than the server's own limits. Only a cut connection takes this long.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Runs the future `$work` in a transaction, and retries if that may help and nothing was written.
/// A macro, because a function cannot require that the future of a closure is `Send`.
macro_rules! in_transaction {
    ($pool:expr, $tx:ident => $work:expr) => {{
        let start = Instant::now();
        loop {
            let attempt = async {
                let mut transaction = within(TIMEOUT, $pool.begin()).await?;
                let $tx = &mut *transaction;
                let done = within(TIMEOUT, $work).await?;
                commit(transaction).await.map(|()| done)
            };
            match attempt.await {
                Err(failure) if failure.may_pass() && start.elapsed() < RETRY_FOR => {
                    tokio::time::sleep(jitter(RETRY_PAUSE)).await;
                }
                done => break done.map_err(HookTransactionError::into_store_error),
            }
        }
    }};
}

/// Why a transaction failed.
enum HookTransactionError {
    /// Nothing was written.
    Before(sqlx::Error),
    /// The server did not report the result of COMMIT.
    InCommit(sqlx::Error),
}

impl From<sqlx::Error> for HookTransactionError {
    fn from(cause: sqlx::Error) -> Self {
        Self::Before(cause)
    }
}

impl HookTransactionError {
    fn may_pass(&self) -> bool {
        match self {
            Self::Before(cause) => {
                matches!(
                    PostgresErrorClass::classify(cause),
                    PostgresErrorClass::Contention | PostgresErrorClass::Connection
                )
            }
            Self::InCommit(_) => false,
        }
    }

    fn into_store_error(self) -> StoreError {
        match self {
            Self::Before(cause) => to_store_error(&cause),
            Self::InCommit(cause) => StoreError::unknown(cause),
        }
    }
}

async fn commit(transaction: Transaction<'_, Postgres>) -> Result<(), HookTransactionError> {
    within(TIMEOUT, transaction.commit()).await.map_err(|cause: sqlx::Error| {
        match is_rolled_back(&cause) {
            true => HookTransactionError::Before(cause),
            false => HookTransactionError::InCommit(cause),
        }
    })
}

#[async_trait]
impl HookStore for PostgresStore {
    async fn handle_event(
        &self,
        tenant: &TenantId,
        turn: HookEventInput,
    ) -> Result<HookOutcome, StoreError> {
        let now = self.clock.as_ref().map(|clock| clock.now());
        in_transaction!(self.pool, tx => decide_and_write(tx, tenant, &turn, now))
    }

    async fn confirm(
        &self,
        tenant: &TenantId,
        me: &str,
        confirmed: Vec<HookRowChange>,
    ) -> Result<bool, StoreError> {
        in_transaction!(self.pool, tx => hook_writes::confirm(tx, tenant, me, &confirmed))
    }

    async fn read_to(&self, path: &str) -> Result<Option<TranscriptOffset>, StoreError> {
        retry(&self.pool, |pool| hook_rows::read_to(pool, path)).await
    }

    async fn subagent(
        &self,
        tenant: &TenantId,
        agent_id: &str,
    ) -> Result<Option<SubagentRecord>, StoreError> {
        retry(&self.pool, |pool| hook_rows::find(pool, tenant, agent_id)).await
    }

    async fn subagents(
        &self,
        tenant: &TenantId,
        query: SubagentQuery,
    ) -> Result<Vec<SubagentRecord>, StoreError> {
        retry(&self.pool, |pool| hook_reports::subagents(pool, tenant, &query)).await
    }

    async fn sessions(
        &self,
        tenant: &TenantId,
        query: HookSessionQuery,
    ) -> Result<Vec<HookSession>, StoreError> {
        retry(&self.pool, |pool| hook_sessions::sessions(pool, tenant, &query)).await
    }

    async fn update_usage(
        &self,
        tenant: &TenantId,
        updates: Vec<HookUsageUpdate>,
    ) -> Result<(), StoreError> {
        in_transaction!(self.pool, tx => hook_sessions::update_usage(tx, tenant, &updates))
    }

    async fn set_role(
        &self,
        tenant: &TenantId,
        agent_id: &str,
        role: &str,
        source: RoleSource,
    ) -> Result<Option<SubagentRecord>, StoreError> {
        in_transaction!(self.pool, tx => hook_writes::set_role(tx, tenant, agent_id, role, source))
    }

    async fn forget_session(&self, tenant: &TenantId, session_id: &str) -> Result<u64, StoreError> {
        in_transaction!(self.pool, tx => forget_session(tx, tenant, session_id))
    }

    async fn log(
        &self,
        tenant: &TenantId,
        query: LogQuery,
    ) -> Result<Vec<HookLogRecord>, StoreError> {
        retry(&self.pool, |pool| hook_reports::list_log(pool, tenant, &query)).await
    }

    async fn stats(&self, tenant: &TenantId) -> Result<HookStats, StoreError> {
        retry(&self.pool, |pool| hook_reports::stats(pool, tenant)).await
    }

    async fn find_tool_caller(
        &self,
        tenant: &TenantId,
        tool_use_id: &str,
    ) -> Result<Option<ToolCaller>, StoreError> {
        retry(&self.pool, |pool| hook_reports::who_called(pool, tenant, tool_use_id)).await
    }

    async fn touches(
        &self,
        tenant: &TenantId,
        query: FileTouchQuery,
    ) -> Result<Vec<FileTouchRecord>, StoreError> {
        retry(&self.pool, |pool| file_touches::list(pool, tenant, &query)).await
    }

    async fn purge_log(&self, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
        retry(&self.pool, |pool| hook_writes::purge_log(pool, before, limit)).await
    }
}

async fn decide_and_write(
    tx: &mut PgConnection,
    tenant: &TenantId,
    turn: &HookEventInput,
    now: Option<Timestamp>,
) -> Result<HookOutcome, sqlx::Error> {
    let HookEventInput { payload, conventions, evidence, .. } = turn;
    let database_now = lock(tx, tenant, &payload.session_id).await?;
    let now = now.unwrap_or(database_now);
    let known = hook_rows::load(tx, tenant, &turn.needs()).await?;
    let outcome = decide(payload, &known, evidence, conventions, now);
    if let HookOutcome::Wants(EvidenceRequest::Start { waiting: Some(call) }) = &outcome {
        let waiting = HookRowChange::Spawn((**call).clone());
        hook_writes::changes(tx, tenant, &[waiting]).await?;
    }
    if let HookOutcome::Done(decision) = &outcome {
        hook_writes::changes(tx, tenant, &decision.changes).await?;
        for (path, read) in &turn.read {
            hook_writes::set_read_to(tx, path, *read, now).await?;
        }
        hook_writes::log(tx, tenant, &payload.session_id, &decision.log, now, turn.took_ms())
            .await?;
    }
    Ok(outcome)
}

async fn forget_session(
    tx: &mut PgConnection,
    tenant: &TenantId,
    session_id: &str,
) -> Result<u64, sqlx::Error> {
    lock(tx, tenant, session_id).await?;
    hook_writes::forget_session(tx, tenant, session_id).await
}

/// Locks out other events of the session until the end of the transaction; returns the time.
async fn lock(
    tx: &mut PgConnection,
    tenant: &TenantId,
    session_id: &str,
) -> Result<Timestamp, sqlx::Error> {
    sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended($1 || '/' || $2, 0))")
        .bind(tenant.as_str())
        .bind(session_id)
        .execute(&mut *tx)
        .await?;
    // Read after the wait for the lock, which may be long.
    let ms: i64 = sqlx::query_scalar(concat!("SELECT ", clock_ms!())).fetch_one(tx).await?;
    Ok(Timestamp::from_millis(ms))
}
