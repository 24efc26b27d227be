//! The store in one SQLite file, which several processes may share.

mod answers;
mod batch;
mod fault;
mod hooks;
mod known;
mod load;
mod queries;
mod queue;
mod reader;
mod rows;
mod tail;
mod upkeep;
mod write;
mod writer;

#[cfg(test)]
mod store_tests;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use async_trait::async_trait;
use rusqlite::Connection;
use shikiri_model::event::{Seq, StreamId};
use shikiri_model::ids::TenantId;
use shikiri_model::lease::{Guard, Lease};
use shikiri_model::record::{Record, RecordKey, RecordQuery};
use shikiri_model::time::Timestamp;
use shikiri_sqlite::{Database, OpenOptions, Synchronous};
use tokio::sync::oneshot;

use self::queue::{Job, Queue};
use self::reader::Readers;
use self::writer::Writer;
use crate::clock::{Clock, SystemClock};
use crate::commit::{Commit, Committed};
use crate::error::{CommitError, StoreError};
use crate::hooks::HookStore;
use crate::hub::Hub;
use crate::store::{Page, Store, StreamState};

/// When a commit counts as done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// It survives a power cut. (A change of leases alone survives only the end of the process:
    /// no holder outlives the machine, and after a restart all leases have lapsed.)
    #[default]
    Full,
    /// It survives the end of the process.
    Normal,
}

#[derive(Clone, Debug)]
pub struct SqliteOptions {
    pub clock: Arc<dyn Clock>,
    pub durability: Durability,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self { clock: Arc::new(SystemClock), durability: Durability::default() }
    }
}

/// A caller writes no more than this on its own thread.
const LARGEST_HERE: usize = 64 * 1024;

#[derive(Debug)]
pub struct SqliteStore {
    queue: Arc<Queue>,
    readers: Arc<Readers>,
    hub: Arc<Hub>,
    clock: Arc<dyn Clock>,
    writer: Arc<Mutex<Writer>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl SqliteStore {
    /// Opens the file, making or migrating it if needed, and starts the writer thread. Blocks.
    pub fn open(path: &Path, options: SqliteOptions) -> Result<Self, StoreError> {
        let SqliteOptions { clock, durability } = options;
        let synchronous = match durability {
            Durability::Full => Synchronous::Full,
            Durability::Normal => Synchronous::Normal,
        };
        let open_options = OpenOptions { synchronous, ..OpenOptions::default() };
        let database =
            Database::open(path, &open_options).map_err(|error| fault::open_error(&error))?;
        let queue = Arc::new(Queue::new());
        let jobs = Arc::clone(&queue);
        // Once somebody waits, the writer must look out for other processes.
        let hub = Arc::new(Hub::calling(move || jobs.nudge()));
        let mut writer = Writer::new(database, durability, Arc::clone(&clock), Arc::clone(&hub))
            .map_err(|error| fault::store_error(&error))?;
        let boot = upkeep::boot_id();
        // Looked for first: whoever only reads should wait for no other process's write.
        if !upkeep::is_noted(&writer.database, &boot).map_err(|error| fault::store_error(&error))? {
            writer
                .transaction(|connection, _, _| upkeep::note_boot(connection, &boot))
                .map_err(|fault| fault.error)?;
        }
        let writer = Arc::new(Mutex::new(writer));
        let (jobs, shared) = (Arc::clone(&queue), Arc::clone(&writer));
        let thread = std::thread::Builder::new()
            .name("shikiri-writer".to_owned())
            .spawn(move || Writer::run(&shared, &jobs))
            .map_err(StoreError::unavailable)?;
        let readers = Arc::new(Readers::new(path.to_owned(), open_options));
        Ok(Self { queue, readers, hub, clock, writer, thread: Mutex::new(Some(thread)) })
    }

    /// Has the writer thread do `work` in a transaction of its own.
    async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let task = Box::new(move |writer: &mut Writer| {
            let outcome = writer.transaction(|connection, known, _| {
                // It may remove streams that are remembered.
                known.clear();
                work(connection)
            });
            let _ = reply.send(outcome.map_err(|fault| fault.error));
        });
        self.queue.push(Job::Task(task)).await?;
        answer.await.map_err(|_| answer_lost())?
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn commit(&self, commit: Commit) -> Result<Committed, CommitError> {
        let here =
            (commit.size() <= LARGEST_HERE).then(|| self.queue.borrow(&self.writer)).flatten();
        if let Some(outcome) = here.and_then(|mut w| w.commit_here(&commit, &self.queue)) {
            // Who commits in a loop must let others run now and then.
            tokio::task::consume_budget().await;
            return outcome;
        }
        let (reply, answer) = oneshot::channel();
        self.queue.push(Job::Commit { commit, reply }).await?;
        answer.await.map_err(|_| answer_lost())?
    }

    async fn read(
        &self,
        tenant: &TenantId,
        stream: &StreamId,
        after: Seq,
        max_bytes: usize,
    ) -> Result<Page, StoreError> {
        let (tenant, stream) = (tenant.clone(), stream.clone());
        self.readers.read(move |c| queries::read(c, &tenant, &stream, after, max_bytes)).await
    }

    async fn stream(
        &self,
        tenant: &TenantId,
        stream: &StreamId,
    ) -> Result<Option<StreamState>, StoreError> {
        let (tenant, stream) = (tenant.clone(), stream.clone());
        let found =
            self.readers.read_short(move |c| queries::stream_row(c, &tenant, &stream)).await?;
        Ok(found.map(|(_, state)| state))
    }

    async fn get(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        let key = key.clone();
        self.readers.read_short(move |c| queries::get(c, &key)).await
    }

    async fn find(
        &self,
        kind: &'static str,
        tenant: &TenantId,
        unique: &str,
    ) -> Result<Option<Record>, StoreError> {
        let (tenant, unique) = (tenant.clone(), unique.to_owned());
        self.readers.read_short(move |c| queries::find(c, kind, &tenant, &unique)).await
    }

    async fn list(&self, query: RecordQuery) -> Result<Vec<Record>, StoreError> {
        self.readers.read_short(move |c| queries::list(c, query)).await
    }

    async fn next_due(&self, kind: &'static str) -> Result<Option<Timestamp>, StoreError> {
        self.readers.read_short(move |c| queries::next_due(c, kind)).await
    }

    async fn lease(&self, name: &str) -> Result<Option<(Lease, bool)>, StoreError> {
        let (name, now) = (name.to_owned(), self.clock.lease_now());
        self.readers.read_short(move |c| queries::lease(c, &name, now)).await
    }

    async fn lapsed_leases(&self, prefix: &str) -> Result<Vec<Lease>, StoreError> {
        let (prefix, now) = (prefix.to_owned(), self.clock.lease_now());
        self.readers.read(move |c| queries::lapsed_leases(c, &prefix, now)).await
    }

    async fn forget_lease(&self, guard: &Guard) -> Result<(), StoreError> {
        let (guard, now) = (guard.clone(), self.clock.lease_now());
        self.write(move |c| upkeep::forget_lease(c, &guard, now)).await
    }

    async fn purge(&self, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
        // Looked for beside the writer, which then only removes, a little at a time.
        let old = self.readers.read(move |c| Ok(upkeep::old_chunks(c, before, limit)?)).await?;
        let mut gone = 0;
        for slice in old.chunks(upkeep::SLICE) {
            let slice = slice.to_vec();
            gone += self.write(move |c| upkeep::remove(c, &slice)).await?;
        }
        Ok(gone)
    }

    async fn erase(&self, tenant: &TenantId) -> Result<(), StoreError> {
        loop {
            let tenant = tenant.clone();
            if !self.write(move |c| upkeep::erase(c, &tenant)).await? {
                break;
            }
        }
        // Whoever follows one of its streams finds that it is gone.
        self.hub.publish_all();
        Ok(())
    }

    async fn stored_bytes(
        &self,
        tenant: &TenantId,
        kinds: &'static [&'static str],
    ) -> Result<u64, StoreError> {
        let tenant = tenant.clone();
        self.readers.read(move |c| queries::stored_bytes(c, &tenant, kinds)).await
    }

    async fn probe(&self) -> Result<(), StoreError> {
        let now = self.clock.now();
        self.readers.read(upkeep::refuse_newer).await?;
        self.write(move |c| upkeep::probe(c, now)).await
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

/// The writer took the job and ended before it told what became of it.
fn answer_lost() -> StoreError {
    StoreError::unknown("the writer has ended")
}

impl Drop for SqliteStore {
    /// Waits for what was handed in, so that the file is closed when the store is gone.
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
