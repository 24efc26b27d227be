//! The store on PostgreSQL, for several nodes. Each node has one writer task with its own
//! connection (`writer_task`), a pool for reads (`read_queries`) and one connection that listens
//! for commits of other nodes (`notify_listener`).
//!
//! The numbers of a stream are assigned under its row lock, in the transaction of its events. So
//! they become visible in order even if transactions of two nodes commit in another order than they
//! began, and a reader's cursor never passes an event that is still to come.

mod batch_load;
mod batch_write;
mod connection_url;
mod error_class;
mod hook_store;
mod migrate;
mod notify_listener;
mod read_queries;
mod row_mapping;
mod store_maintenance;
mod total_rows;
mod wake_notify;
mod writer_task;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use shikiri_model::event::{Seq, StreamId};
use shikiri_model::ids::TenantId;
use shikiri_model::lease::{Lease, LeaseGuard};
use shikiri_model::record::{Record, RecordKey, RecordQuery};
use shikiri_model::time::Timestamp;
use shikiri_model::total::{StoredTotal, TotalQuery};
use sqlx::Row;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

pub use self::migrate::{MIGRATIONS, PostgresMigration};
use self::notify_listener::NotifyListener;
use self::read_queries::retry;
use self::row_mapping::clock_ms;
use self::writer_task::{PostgresCommitJob, PostgresWriter};
use crate::clock::Clock;
use crate::commit::{Commit, CommitReceipt};
use crate::error::{CommitError, StoreError};
use crate::hook_store::HookStore;
use crate::hub::Hub;
use crate::store::{ChunkPage, Store, StreamState};

/// The most commits in the queue. When it is full, `commit` waits.
const QUEUE: usize = 1_024;

/// How long a read waits for a connection.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);

/// A server that is starting up reports that, and the connection is retried.
const START_UP_TRIES: u32 = 20;
const START_UP_PAUSE: Duration = Duration::from_millis(250);

#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// For tests. Without it the database's clock is used, which is the same for all nodes.
    pub clock: Option<Arc<dyn Clock>>,
    /// Connections of this node, including writer and listener.
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
    jobs: mpsc::Sender<PostgresCommitJob>,
    listener: JoinHandle<()>,
}

impl PostgresStore {
    /// Connects, migrates the schema and starts to listen.
    pub async fn connect(url: &str, options: PostgresOptions) -> Result<Self, StoreError> {
        let (address, mut connection) = connect_to_url(url).await?;
        let migrated = migrate::migrate(&mut connection).await;
        migrated.map_err(|cause| cause.into_store_error(&address))?;
        Self::begin(address, connection, options).await
    }

    /// Connects to a database with the current schema. Any other schema is refused and not changed.
    pub async fn connect_current(url: &str, options: PostgresOptions) -> Result<Self, StoreError> {
        let (address, mut connection) = connect_to_url(url).await?;
        let looked = migrate::require_current(&mut connection).await;
        looked.map_err(|cause| cause.into_store_error(&address))?;
        Self::begin(address, connection, options).await
    }

    async fn begin(
        address: PgConnectOptions,
        connection: PgConnection,
        options: PostgresOptions,
    ) -> Result<Self, StoreError> {
        let hub = Arc::new(Hub::default());
        let tag = format!("{:016x}", error_class::random());
        let listener =
            NotifyListener { options: address.clone(), hub: Arc::clone(&hub), tag: tag.clone() };
        let ears = listener.connect().await;
        let ears = ears.map_err(|cause| connection_url::connect_error(&cause, &address))?;
        let (jobs, waiting) = mpsc::channel(QUEUE);
        let writer = PostgresWriter {
            options: address.clone(),
            clock: options.clock.clone(),
            hub: Arc::clone(&hub),
            tag: tag.clone(),
            slot: total_rows::choose_slot(),
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

async fn connect_to_url(url: &str) -> Result<(PgConnectOptions, PgConnection), StoreError> {
    let address = connection_url::parse(url)?;
    match first_connection(&address).await {
        Ok(connection) => Ok((address, connection)),
        Err(cause) => Err(connection_url::connect_error(&cause, &address)),
    }
}

async fn first_connection(address: &PgConnectOptions) -> Result<PgConnection, sqlx::Error> {
    for _ in 0..START_UP_TRIES {
        match connection_url::connect(address).await {
            Err(sqlx::Error::Database(cause)) if cause.code().as_deref() == Some("57P03") => {
                tokio::time::sleep(START_UP_PAUSE).await;
            }
            other => return other,
        }
    }
    connection_url::connect(address).await
}

/// Connections are not tested before use, because that would double the round trips of every read.
/// `retry` handles dead ones.
fn pool(address: PgConnectOptions, size: u32) -> PgPool {
    PgPoolOptions::new()
        .max_connections(size)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .test_before_acquire(false)
        .after_connect(|connection, _| Box::pin(connection_url::set_up(connection)))
        .connect_lazy_with(address)
}

#[async_trait]
impl Store for PostgresStore {
    async fn commit(&self, commit: Commit) -> Result<CommitReceipt, CommitError> {
        let (reply, answer) = oneshot::channel();
        let gone = || StoreError::unavailable("the writer has stopped");
        // Unconstrained: tokio's budget could yield before the commit has its place in the queue,
        // and commits of one caller would overtake each other.
        let hand_in =
            tokio::task::unconstrained(self.jobs.send(PostgresCommitJob { commit, reply }));
        hand_in.await.map_err(|_| gone())?;
        answer.await.unwrap_or_else(|_| Err(StoreError::unknown("the writer has stopped").into()))
    }

    async fn read(
        &self,
        tenant: &TenantId,
        stream: &StreamId,
        after: Seq,
        max_bytes: usize,
    ) -> Result<ChunkPage, StoreError> {
        read_queries::read(&self.pool, tenant, stream, after, max_bytes).await
    }

    async fn stream(
        &self,
        tenant: &TenantId,
        stream: &StreamId,
    ) -> Result<Option<StreamState>, StoreError> {
        read_queries::stream(&self.pool, tenant, stream).await
    }

    async fn get(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        read_queries::get(&self.pool, key).await
    }

    async fn find(
        &self,
        kind: &'static str,
        tenant: &TenantId,
        unique: &str,
    ) -> Result<Option<Record>, StoreError> {
        read_queries::find(&self.pool, kind, tenant, unique).await
    }

    async fn list(&self, query: RecordQuery) -> Result<Vec<Record>, StoreError> {
        read_queries::list(&self.pool, &query).await
    }

    async fn totals(&self, query: TotalQuery) -> Result<Vec<StoredTotal>, StoreError> {
        total_rows::totals(&self.pool, &query).await
    }

    async fn next_due(&self, kind: &'static str) -> Result<Option<Timestamp>, StoreError> {
        read_queries::next_due(&self.pool, kind).await
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
        row.map(|row| Ok((row_mapping::lease(&row)?, row.try_get("lapsed")?)))
            .transpose()
            .map_err(|cause: sqlx::Error| error_class::to_store_error(&cause))
    }

    async fn lapsed_leases(&self, prefix: &str) -> Result<Vec<Lease>, StoreError> {
        let sql = "SELECT name, owner, fence, expires_at FROM leases
                   WHERE starts_with(name, $1) AND expires_at <= $2 ORDER BY name";
        let now = self.lease_now().await?;
        let rows =
            retry(&self.pool, |pool| sqlx::query(sql).bind(prefix).bind(now).fetch_all(pool))
                .await?;
        rows.iter()
            .map(row_mapping::lease)
            .collect::<Result<_, _>>()
            .map_err(|cause| error_class::to_store_error(&cause))
    }

    async fn forget_lease(&self, guard: &LeaseGuard) -> Result<(), StoreError> {
        let sql = "DELETE FROM leases WHERE name = $1 AND fence = $2 AND expires_at <= $3";
        let now = self.lease_now().await?;
        retry(&self.pool, |pool| {
            sqlx::query(sql)
                .bind(&guard.name)
                .bind(row_mapping::signed(guard.fence))
                .bind(now)
                .execute(pool)
        })
        .await
        .map(drop)
    }

    async fn purge(&self, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
        retry(&self.pool, |pool| store_maintenance::purge(pool, before, limit)).await
    }

    async fn erase(&self, tenant: &TenantId) -> Result<(), StoreError> {
        store_maintenance::erase(&self.pool, tenant, &self.tag)
            .await
            .map_err(|cause| error_class::to_store_error(&cause))?;
        self.hub.publish_all();
        Ok(())
    }

    async fn erase_streams(
        &self,
        tenant: &TenantId,
        streams: &[StreamId],
    ) -> Result<(), StoreError> {
        store_maintenance::erase_streams(&self.pool, tenant, streams, &self.tag)
            .await
            .map_err(|cause| error_class::to_store_error(&cause))?;
        self.hub.publish_all();
        Ok(())
    }

    async fn stored_bytes(
        &self,
        tenant: &TenantId,
        kinds: &'static [&'static str],
    ) -> Result<u64, StoreError> {
        read_queries::stored_bytes(&self.pool, tenant, kinds).await
    }

    async fn probe(&self) -> Result<(), StoreError> {
        let found = retry(&self.pool, migrate::newest_applied).await?;
        migrate::refuse_newer(found)?;
        retry(&self.pool, store_maintenance::probe).await
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
