//! Hooks on PostgreSQL: the same rows and the same decisions as on SQLite. Events of one session
//! take turns by a lock of their own, since what an event finds missing cannot be locked.

use std::time::Duration;

use async_trait::async_trait;
use shikiri_model::hook::{
    CalledBy, Change, HookStats, LogQuery, Logged, Outcome, ReadTo, RoleSource, Subagent,
    SubagentQuery, decide,
};
use shikiri_model::ids::TenantId;
use shikiri_model::time::Timestamp;
use sqlx::postgres::PgConnection;
use sqlx::{Postgres, Transaction};
use tokio::time::Instant;

use super::PostgresStore;
use super::address::within;
use super::fault::{Fault, jitter, refusal, rolled_back};
use super::reader::retry;
use super::rows::clock_ms;
use crate::error::StoreError;
use crate::hooks::{HookStore, HookTurn};

mod reports;
mod rows;
mod write;

pub(super) use write::erase;

/// For events that collide with others, and for a server that restarts.
const RETRY_FOR: Duration = Duration::from_secs(2);
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// Longer than the server's own limits: only a cut connection takes this long.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Does the work, a future, in a transaction; again if that may help and nothing was written. (A
/// function could not promise that the future of a closure may change threads.)
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
                done => break done.map_err(Failure::told),
            }
        }
    }};
}

/// Why a transaction failed.
enum Failure {
    /// Nothing was written.
    Before(sqlx::Error),
    /// The server did not say how COMMIT ended.
    InCommit(sqlx::Error),
}

impl From<sqlx::Error> for Failure {
    fn from(cause: sqlx::Error) -> Self {
        Self::Before(cause)
    }
}

impl Failure {
    fn may_pass(&self) -> bool {
        match self {
            Self::Before(cause) => {
                matches!(Fault::of(cause), Fault::Contention | Fault::Connection)
            }
            Self::InCommit(_) => false,
        }
    }

    fn told(self) -> StoreError {
        match self {
            Self::Before(cause) => refusal(&cause),
            Self::InCommit(cause) => StoreError::unknown(cause),
        }
    }
}

async fn commit(transaction: Transaction<'_, Postgres>) -> Result<(), Failure> {
    within(TIMEOUT, transaction.commit()).await.map_err(|cause: sqlx::Error| {
        match rolled_back(&cause) {
            true => Failure::Before(cause),
            false => Failure::InCommit(cause),
        }
    })
}

#[async_trait]
impl HookStore for PostgresStore {
    async fn take(&self, tenant: &TenantId, turn: HookTurn) -> Result<Outcome, StoreError> {
        let now = self.clock.as_ref().map(|clock| clock.now());
        in_transaction!(self.pool, tx => settle(tx, tenant, &turn, now))
    }

    async fn confirm(
        &self,
        tenant: &TenantId,
        me: &str,
        told: Vec<Change>,
    ) -> Result<bool, StoreError> {
        in_transaction!(self.pool, tx => write::confirm(tx, tenant, me, &told))
    }

    async fn read_to(&self, path: &str) -> Result<Option<ReadTo>, StoreError> {
        retry(&self.pool, |pool| rows::read_to(pool, path)).await
    }

    async fn subagent(
        &self,
        tenant: &TenantId,
        agent_id: &str,
    ) -> Result<Option<Subagent>, StoreError> {
        retry(&self.pool, |pool| rows::find(pool, tenant, agent_id)).await
    }

    async fn subagents(
        &self,
        tenant: &TenantId,
        query: SubagentQuery,
    ) -> Result<Vec<Subagent>, StoreError> {
        retry(&self.pool, |pool| reports::subagents(pool, tenant, &query)).await
    }

    async fn set_role(
        &self,
        tenant: &TenantId,
        agent_id: &str,
        role: &str,
        source: RoleSource,
    ) -> Result<Option<Subagent>, StoreError> {
        in_transaction!(self.pool, tx => write::set_role(tx, tenant, agent_id, role, source))
    }

    async fn forget_session(&self, tenant: &TenantId, session_id: &str) -> Result<u64, StoreError> {
        in_transaction!(self.pool, tx => forget_session(tx, tenant, session_id))
    }

    async fn log(&self, tenant: &TenantId, query: LogQuery) -> Result<Vec<Logged>, StoreError> {
        retry(&self.pool, |pool| reports::logged(pool, tenant, &query)).await
    }

    async fn stats(&self, tenant: &TenantId) -> Result<HookStats, StoreError> {
        retry(&self.pool, |pool| reports::stats(pool, tenant)).await
    }

    async fn who_called(
        &self,
        tenant: &TenantId,
        tool_use_id: &str,
    ) -> Result<Option<CalledBy>, StoreError> {
        retry(&self.pool, |pool| reports::who_called(pool, tenant, tool_use_id)).await
    }

    async fn purge_log(&self, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
        retry(&self.pool, |pool| write::purge_log(pool, before, limit)).await
    }
}

async fn settle(
    tx: &mut PgConnection,
    tenant: &TenantId,
    turn: &HookTurn,
    now: Option<Timestamp>,
) -> Result<Outcome, sqlx::Error> {
    let HookTurn { payload, conventions, evidence, .. } = turn;
    let database_now = lock(tx, tenant, &payload.session_id).await?;
    let now = now.unwrap_or(database_now);
    let known = rows::load(tx, tenant, &turn.needs()).await?;
    let outcome = decide(payload, &known, evidence, conventions, now);
    if let Outcome::Done(decision) = &outcome {
        write::changes(tx, tenant, &decision.changes).await?;
        for (path, read) in &turn.read {
            write::set_read_to(tx, path, *read, now).await?;
        }
        write::log(tx, tenant, &payload.session_id, &decision.log, now, turn.took_ms()).await?;
    }
    Ok(outcome)
}

async fn forget_session(
    tx: &mut PgConnection,
    tenant: &TenantId,
    session_id: &str,
) -> Result<u64, sqlx::Error> {
    lock(tx, tenant, session_id).await?;
    write::forget_session(tx, tenant, session_id).await
}

/// Keeps other events of the session out until the end of the transaction; returns the time.
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
    // After the wait: the time before it may be long ago.
    let ms: i64 = sqlx::query_scalar(concat!("SELECT ", clock_ms!())).fetch_one(tx).await?;
    Ok(Timestamp::from_millis(ms))
}
