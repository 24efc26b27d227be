//! The store in one SQLite file, which several processes can share.

mod batch_load;
mod batch_write;
mod commit_batch;
mod commit_replies;
mod error_mapping;
mod foreign_writes;
mod hook_store;
mod read_queries;
mod reader_pool;
mod row_mapping;
mod store_maintenance;
mod stream_cache;
mod total_rows;
mod write_queue;
mod writer_thread;

#[cfg(test)]
mod store_tests;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use async_trait::async_trait;
use rusqlite::Connection;
use shikiri_model::event::{Seq, StreamId};
use shikiri_model::ids::TenantId;
use shikiri_model::lease::{Lease, LeaseGuard};
use shikiri_model::record::{Record, RecordKey, RecordQuery};
use shikiri_model::time::Timestamp;
use shikiri_model::total::{StoredTotal, TotalQuery};
use shikiri_sqlite::{DatabaseOptions, SqliteDatabase, SynchronousMode};
use tokio::sync::oneshot;

use self::reader_pool::SqliteReaderPool;
use self::write_queue::{SqliteWriteJob, SqliteWriteQueue};
use self::writer_thread::SqliteWriter;
use crate::clock::{Clock, SystemClock};
use crate::commit::{Commit, CommitReceipt};
use crate::error::{CommitError, StoreError};
use crate::hook_store::HookStore;
use crate::hub::Hub;
use crate::store::{ChunkPage, Store, StreamState};

/// When a commit counts as done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SqliteDurability {
    /// It survives a power cut. (A commit that changes only leases survives only the end of the
    /// process: after a restart of the machine all leases have lapsed.)
    #[default]
    Full,
    /// It survives the end of the process.
    Normal,
}

#[derive(Clone, Debug)]
pub struct SqliteOptions {
    pub clock: Arc<dyn Clock>,
    pub durability: SqliteDurability,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self { clock: Arc::new(SystemClock), durability: SqliteDurability::default() }
    }
}

/// The largest commit that a caller writes on its own thread.
const LARGEST_HERE: usize = 64 * 1024;

#[derive(Debug)]
pub struct SqliteStore {
    queue: Arc<SqliteWriteQueue>,
    readers: Arc<SqliteReaderPool>,
    hub: Arc<Hub>,
    clock: Arc<dyn Clock>,
    writer: Arc<Mutex<SqliteWriter>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl SqliteStore {
    /// Opens the file, creates or migrates it if needed, and starts the writer thread. Blocking.
    pub fn open(path: &Path, options: SqliteOptions) -> Result<Self, StoreError> {
        let SqliteOptions { clock, durability } = options;
        let synchronous = match durability {
            SqliteDurability::Full => SynchronousMode::Full,
            SqliteDurability::Normal => SynchronousMode::Normal,
        };
        let open_options = DatabaseOptions { synchronous, ..DatabaseOptions::default() };
        let database = SqliteDatabase::open(path, &open_options)
            .map_err(|error| error_mapping::open_error(&error))?;
        let queue = Arc::new(SqliteWriteQueue::new());
        let jobs = Arc::clone(&queue);
        // Once there is a subscriber, the writer must watch for other processes' writes.
        let hub = Arc::new(Hub::with_first_subscriber_callback(move || jobs.wake_and_watch()));
        let mut writer =
            SqliteWriter::new(database, durability, Arc::clone(&clock), Arc::clone(&hub))
                .map_err(|error| error_mapping::store_error(&error))?;
        let boot = store_maintenance::boot_id();
        // Checked first, so that a read-only use does not wait for another process's write.
        if !store_maintenance::is_boot_recorded(&writer.database, &boot)
            .map_err(|error| error_mapping::store_error(&error))?
        {
            writer
                .transaction(|connection, _, _| store_maintenance::record_boot(connection, &boot))
                .map_err(|fault| fault.error)?;
        }
        let writer = Arc::new(Mutex::new(writer));
        let (jobs, shared) = (Arc::clone(&queue), Arc::clone(&writer));
        let thread = std::thread::Builder::new()
            .name("shikiri-writer".to_owned())
            .spawn(move || SqliteWriter::run(&shared, &jobs))
            .map_err(StoreError::unavailable)?;
        let readers = Arc::new(SqliteReaderPool::new(path.to_owned(), open_options));
        Ok(Self { queue, readers, hub, clock, writer, thread: Mutex::new(Some(thread)) })
    }

    /// Runs `work` on the writer thread in its own transaction.
    async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let task = Box::new(move |writer: &mut SqliteWriter| {
            let outcome = writer.transaction(|connection, known, _| {
                // It may remove cached streams.
                known.clear();
                work(connection)
            });
            let _ = reply.send(outcome.map_err(|fault| fault.error));
        });
        self.queue.push(SqliteWriteJob::Task(task)).await?;
        answer.await.map_err(|_| answer_lost())?
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn commit(&self, commit: Commit) -> Result<CommitReceipt, CommitError> {
        let here = (commit.size() <= LARGEST_HERE)
            .then(|| self.queue.try_borrow_writer(&self.writer))
            .flatten();
        if let Some(outcome) =
            here.and_then(|mut w| w.commit_on_caller_thread(&commit, &self.queue))
        {
            // A caller that commits in a loop must yield now and then.
            tokio::task::consume_budget().await;
            return outcome;
        }
        let (reply, answer) = oneshot::channel();
        self.queue.push(SqliteWriteJob::Commit { commit, reply }).await?;
        answer.await.map_err(|_| answer_lost())?
    }

    async fn read(
        &self,
        tenant: &TenantId,
        stream: &StreamId,
        after: Seq,
        max_bytes: usize,
    ) -> Result<ChunkPage, StoreError> {
        let (tenant, stream) = (tenant.clone(), stream.clone());
        self.readers.read(move |c| read_queries::read(c, &tenant, &stream, after, max_bytes)).await
    }

    async fn stream(
        &self,
        tenant: &TenantId,
        stream: &StreamId,
    ) -> Result<Option<StreamState>, StoreError> {
        let (tenant, stream) = (tenant.clone(), stream.clone());
        let found =
            self.readers.read_short(move |c| read_queries::stream_row(c, &tenant, &stream)).await?;
        Ok(found.map(|(_, state)| state))
    }

    async fn get(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        let key = key.clone();
        self.readers.read_short(move |c| read_queries::get(c, &key)).await
    }

    async fn find(
        &self,
        kind: &'static str,
        tenant: &TenantId,
        unique: &str,
    ) -> Result<Option<Record>, StoreError> {
        let (tenant, unique) = (tenant.clone(), unique.to_owned());
        self.readers.read_short(move |c| read_queries::find(c, kind, &tenant, &unique)).await
    }

    async fn list(&self, query: RecordQuery) -> Result<Vec<Record>, StoreError> {
        self.readers.read_short(move |c| read_queries::list(c, query)).await
    }

    async fn totals(&self, query: TotalQuery) -> Result<Vec<StoredTotal>, StoreError> {
        self.readers.read_short(move |c| total_rows::totals(c, &query)).await
    }

    async fn next_due(&self, kind: &'static str) -> Result<Option<Timestamp>, StoreError> {
        self.readers.read_short(move |c| read_queries::next_due(c, kind)).await
    }

    async fn lease(&self, name: &str) -> Result<Option<(Lease, bool)>, StoreError> {
        let (name, now) = (name.to_owned(), self.clock.lease_now());
        self.readers.read_short(move |c| read_queries::lease(c, &name, now)).await
    }

    async fn lapsed_leases(&self, prefix: &str) -> Result<Vec<Lease>, StoreError> {
        let (prefix, now) = (prefix.to_owned(), self.clock.lease_now());
        self.readers.read(move |c| read_queries::lapsed_leases(c, &prefix, now)).await
    }

    async fn forget_lease(&self, guard: &LeaseGuard) -> Result<(), StoreError> {
        let (guard, now) = (guard.clone(), self.clock.lease_now());
        self.write(move |c| store_maintenance::forget_lease(c, &guard, now)).await
    }

    async fn purge(&self, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
        // Searched outside the writer, which then removes in small steps.
        let old = self
            .readers
            .read(move |c| Ok(store_maintenance::old_chunks(c, before, limit)?))
            .await?;
        let mut gone = 0;
        for slice in old.chunks(store_maintenance::SLICE) {
            let slice = slice.to_vec();
            gone += self.write(move |c| store_maintenance::remove(c, &slice)).await?;
        }
        Ok(gone)
    }

    async fn erase(&self, tenant: &TenantId) -> Result<(), StoreError> {
        loop {
            let tenant = tenant.clone();
            if !self.write(move |c| store_maintenance::erase(c, &tenant)).await? {
                break;
            }
        }
        // Wakes subscribers of its streams, which find that they are gone.
        self.hub.publish_all();
        Ok(())
    }

    async fn erase_streams(
        &self,
        tenant: &TenantId,
        streams: &[StreamId],
    ) -> Result<(), StoreError> {
        for stream in streams {
            loop {
                let (tenant, stream) = (tenant.clone(), stream.clone());
                let erase =
                    move |c: &Connection| store_maintenance::erase_stream(c, &tenant, &stream);
                if !self.write(erase).await? {
                    break;
                }
            }
        }
        self.hub.publish_all();
        Ok(())
    }

    async fn stored_bytes(
        &self,
        tenant: &TenantId,
        kinds: &'static [&'static str],
    ) -> Result<u64, StoreError> {
        let tenant = tenant.clone();
        self.readers.read(move |c| read_queries::stored_bytes(c, &tenant, kinds)).await
    }

    async fn probe(&self) -> Result<(), StoreError> {
        let now = self.clock.now();
        self.readers.read(store_maintenance::refuse_newer).await?;
        self.write(move |c| store_maintenance::probe(c, now)).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        Ok(self.clock.now())
    }

    fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    fn hooks(&self) -> &dyn HookStore {
        self
    }

    fn backend(&self) -> &'static str {
        "sqlite"
    }
}

/// The writer took the job and ended before it sent a result.
fn answer_lost() -> StoreError {
    StoreError::unknown("the writer has ended")
}

impl Drop for SqliteStore {
    /// Waits for the queued jobs, so that the file is closed when the store is gone.
    fn drop(&mut self) {
        self.readers.close_idle();
        self.queue.close();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the writer thread had ended with a panic");
        }
    }
}
