//! The store on PostgreSQL, for several nodes. Every node has one writing task with a connection
//! of its own (`writer`), a pool for reads (`reader`) and one connection on which it hears what
//! the others committed (`listen`).
//!
//! A stream's numbers are taken under that stream's row lock in the transaction of its events.
//! So they become visible in their order even when transactions of two nodes commit in another
//! order than they began, and a reader's cursor never passes an event that is still to come.

mod address;
mod fault;
mod hooks;
mod listen;
mod load;
mod maintain;
mod migrate;
mod notify;
mod reader;
mod rows;
mod write;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use shikiri_model::event::{Seq, StreamId};
use shikiri_model::ids::TenantId;
use shikiri_model::lease::{Guard, Lease};
use shikiri_model::record::{Record, RecordKey, RecordQuery};
use shikiri_model::time::Timestamp;
use sqlx::Row;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use self::listen::Listener;
pub use self::migrate::{MIGRATIONS, Migration};
use self::reader::retry;
use self::rows::clock_ms;
use self::writer::{Job, Writer};
use crate::clock::Clock;
use crate::commit::{Commit, Committed};
use crate::error::{CommitError, StoreError};
use crate::hooks::HookStore;
use crate::hub::Hub;
use crate::store::{Page, Store, StreamState};

/// Commits that may wait for the writer; beyond them `commit` itself waits.
const QUEUE: usize = 1_024;

/// How long a read waits for a connection.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);

/// A server that is just starting says so; it is worth the wait.
const START_UP_TRIES: u32 = 20;
const START_UP_PAUSE: Duration = Duration::from_millis(250);

#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// For tests. Without it time is the database's, the same for all nodes.
    pub clock: Option<Arc<dyn Clock>>,
    /// Of this node, writer and listener included.
    pub max_connections: u32,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self { clock: None, max_connections: 12 }
    }
}

#[derive(Debug)]
pub struct PostgresStore {
    pool: PgPool,
    hub: Arc<Hub>,
    clock: Option<Arc<dyn Clock>>,
    tag: String,
    /// The writer ends when this is dropped and the queue is empty.
    jobs: mpsc::Sender<Job>,
    listener: JoinHandle<()>,
}

impl PostgresStore {
    /// Connects, brings the schema up to date and begins to listen.
    pub async fn connect(url: &str, options: PostgresOptions) -> Result<Self, StoreError> {
        let (address, mut connection) = dial(url).await?;
        let migrated = migrate::migrate(&mut connection).await;
        migrated.map_err(|cause| cause.explained(&address))?;
        Self::begin(address, connection, options).await
    }

    /// The same for a database whose schema is up to date: any other is refused and left alone.
    pub async fn connect_current(url: &str, options: PostgresOptions) -> Result<Self, StoreError> {
        let (address, mut connection) = dial(url).await?;
        let looked = migrate::require_current(&mut connection).await;
        looked.map_err(|cause| cause.explained(&address))?;
        Self::begin(address, connection, options).await
    }

    async fn begin(
        address: PgConnectOptions,
        connection: PgConnection,
        options: PostgresOptions,
    ) -> Result<Self, StoreError> {
        let hub = Arc::new(Hub::default());
        let tag = format!("{:016x}", fault::random());
        let listener =
            Listener { options: address.clone(), hub: Arc::clone(&hub), tag: tag.clone() };
        let ears = listener.connect().await;
        let ears = ears.map_err(|cause| address::explain(&cause, &address))?;
        let (jobs, waiting) = mpsc::channel(QUEUE);
        let writer = Writer {
            options: address.clone(),
            clock: options.clock.clone(),
            hub: Arc::clone(&hub),
            tag: tag.clone(),
            connection: Some(connection),
            down: false,
        };
        tokio::spawn(writer.run(waiting));
        Ok(Self {
            pool: pool(address, options.max_connections.saturating_sub(2).max(1)),
            hub,
            clock: options.clock,
            tag,
            jobs,
            listener: tokio::spawn(listener.run(ears)),
        })
    }

    async fn lease_now(&self) -> Result<i64, StoreError> {
        match &self.clock {
            Some(clock) => Ok(clock.lease_now()),
            None => self.database_ms().await,
        }
    }

    async fn database_ms(&self) -> Result<i64, StoreError> {
        let sql = concat!("SELECT ", clock_ms!());
        retry(&self.pool, |pool| sqlx::query_scalar(sql).fetch_one(pool)).await
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

async fn dial(url: &str) -> Result<(PgConnectOptions, PgConnection), StoreError> {
    let address = address::parse(url)?;
    match first_connection(&address).await {
        Ok(connection) => Ok((address, connection)),
        Err(cause) => Err(address::explain(&cause, &address)),
    }
}

async fn first_connection(address: &PgConnectOptions) -> Result<PgConnection, sqlx::Error> {
    for _ in 0..START_UP_TRIES {
        match address::connect(address).await {
            Err(sqlx::Error::Database(cause)) if cause.code().as_deref() == Some("57P03") => {
                tokio::time::sleep(START_UP_PAUSE).await;
            }
            other => return other,
        }
    }
    address::connect(address).await
}

/// Connections are not tested before use, which would double every read's way to the server:
/// `retry` deals with the dead ones.
fn pool(address: PgConnectOptions, size: u32) -> PgPool {
    PgPoolOptions::new()
        .max_connections(size)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .test_before_acquire(false)
        .after_connect(|connection, _| Box::pin(address::set_up(connection)))
        .connect_lazy_with(address)
}

#[async_trait]
impl Store for PostgresStore {
    async fn commit(&self, commit: Commit) -> Result<Committed, CommitError> {
        let (reply, answer) = oneshot::channel();
        let gone = || StoreError::unavailable("the writer has stopped");
        // Unconstrained: tokio's budget would send a busy task away before it has its place in
        // the queue, and commits of one caller would overtake each other.
        let hand_in = tokio::task::unconstrained(self.jobs.send(Job { commit, reply }));
        hand_in.await.map_err(|_| gone())?;
        answer.await.unwrap_or_else(|_| Err(StoreError::unknown("the writer has stopped").into()))
    }

    async fn read(
        &self,
        tenant: &TenantId,
        stream: &StreamId,
        after: Seq,
        max_bytes: usize,
    ) -> Result<Page, StoreError> {
        reader::read(&self.pool, tenant, stream, after, max_bytes).await
    }

    async fn stream(
        &self,
        tenant: &TenantId,
        stream: &StreamId,
    ) -> Result<Option<StreamState>, StoreError> {
        reader::stream(&self.pool, tenant, stream).await
    }

    async fn get(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        reader::get(&self.pool, key).await
    }

    async fn find(
        &self,
        kind: &'static str,
        tenant: &TenantId,
        unique: &str,
    ) -> Result<Option<Record>, StoreError> {
        reader::find(&self.pool, kind, tenant, unique).await
    }

    async fn list(&self, query: RecordQuery) -> Result<Vec<Record>, StoreError> {
        reader::list(&self.pool, &query).await
    }

    async fn next_due(&self, kind: &'static str) -> Result<Option<Timestamp>, StoreError> {
        reader::next_due(&self.pool, kind).await
    }

    async fn lease(&self, name: &str) -> Result<Option<(Lease, bool)>, StoreError> {
        let sql = concat!(
            "SELECT name, owner, fence, expires_at, expires_at <= COALESCE($2, ",
            clock_ms!(),
            ") AS lapsed FROM leases WHERE name = $1"
        );
        let now = self.clock.as_ref().map(|clock| clock.lease_now());
        let row =
            retry(&self.pool, |pool| sqlx::query(sql).bind(name).bind(now).fetch_optional(pool))
                .await?;
        row.map(|row| Ok((rows::lease(&row)?, row.try_get("lapsed")?)))
            .transpose()
            .map_err(|cause: sqlx::Error| fault::refusal(&cause))
    }

    async fn lapsed_leases(&self, prefix: &str) -> Result<Vec<Lease>, StoreError> {
        let sql = "SELECT name, owner, fence, expires_at FROM leases
                   WHERE starts_with(name, $1) AND expires_at <= $2 ORDER BY name";
        let now = self.lease_now().await?;
        let rows =
            retry(&self.pool, |pool| sqlx::query(sql).bind(prefix).bind(now).fetch_all(pool))
                .await?;
        rows.iter()
            .map(rows::lease)
            .collect::<Result<_, _>>()
            .map_err(|cause| fault::refusal(&cause))
    }

    async fn forget_lease(&self, guard: &Guard) -> Result<(), StoreError> {
        let sql = "DELETE FROM leases WHERE name = $1 AND fence = $2 AND expires_at <= $3";
        let now = self.lease_now().await?;
        retry(&self.pool, |pool| {
            sqlx::query(sql)
                .bind(&guard.name)
                .bind(rows::signed(guard.fence))
                .bind(now)
                .execute(pool)
        })
        .await
        .map(drop)
    }

    async fn purge(&self, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
        retry(&self.pool, |pool| maintain::purge(pool, before, limit)).await
    }

    async fn erase(&self, tenant: &TenantId) -> Result<(), StoreError> {
        maintain::erase(&self.pool, tenant, &self.tag)
            .await
            .map_err(|cause| fault::refusal(&cause))?;
        self.hub.publish_all();
        Ok(())
    }

    async fn stored_bytes(
        &self,
        tenant: &TenantId,
        kinds: &'static [&'static str],
    ) -> Result<u64, StoreError> {
        reader::stored_bytes(&self.pool, tenant, kinds).await
    }

    async fn probe(&self) -> Result<(), StoreError> {
        let found = retry(&self.pool, migrate::newest_applied).await?;
        migrate::refuse_newer(found)?;
        retry(&self.pool, maintain::probe).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        match &self.clock {
            Some(clock) => Ok(clock.now()),
            None => self.database_ms().await.map(Timestamp::from_millis),
        }
    }

    fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    fn hooks(&self) -> &dyn HookStore {
        self
    }

    fn backend(&self) -> &'static str {
        "postgres"
    }
}
