//! Reads, on a few connections of their own: WAL readers wait for no writer, and see only what is
//! committed.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use shikiri_sqlite::{Database, OpenOptions};
use tokio::sync::Semaphore;

use super::fault::{open_error, store_error};
use crate::error::StoreError;

/// Reads at one time. More would only wait for each other in the kernel.
const CONNECTIONS: usize = 8;

/// Short reads are made on the caller's thread while they take no longer than this: the runtime's
/// thread can do nothing else meanwhile (docs/decisions/0007).
const PROMPT: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(super) struct Readers {
    path: PathBuf,
    options: OpenOptions,
    idle: Mutex<Vec<Database>>,
    turns: Semaphore,
    /// The last short read was one.
    is_prompt: AtomicBool,
}

/// Why a read gave no answer.
pub(super) enum ReadFault {
    Sqlite(rusqlite::Error),
    Store(StoreError),
}

impl From<rusqlite::Error> for ReadFault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<StoreError> for ReadFault {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Readers {
    pub(super) fn new(path: PathBuf, options: OpenOptions) -> Self {
        let turns = Semaphore::new(CONNECTIONS);
        Self { path, options, idle: Mutex::default(), turns, is_prompt: AtomicBool::new(false) }
    }

    /// Closes the connections that are not in use. The writer's, closed last, then leaves no log.
    pub(super) fn close_idle(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Runs a `read` of a few rows where the caller is, if that is known to be quick.
    pub(super) async fn read_short<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&Connection) -> Result<T, ReadFault> + Send + 'static,
    ) -> Result<T, StoreError> {
        let readers = Arc::clone(self);
        let timed = move |database: &Connection| {
            let started = Instant::now();
            let outcome = read(database);
            readers.is_prompt.store(started.elapsed() < PROMPT, Ordering::Relaxed);
            outcome
        };
        let idle = self.is_prompt.load(Ordering::Relaxed).then(|| self.take_idle()).flatten();
        let Some(database) = idle else { return self.read(timed).await };
        let outcome = self.read_on(database, timed);
        // Who reads in a loop must let others run now and then.
        tokio::task::consume_budget().await;
        outcome
    }

    /// Runs `read` on a thread that may block, all of it on one state of the database.
    pub(super) async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&Connection) -> Result<T, ReadFault> + Send + 'static,
    ) -> Result<T, StoreError> {
        let _turn = self.turns.acquire().await.map_err(StoreError::unavailable)?;
        let readers = Arc::clone(self);
        tokio::task::spawn_blocking(move || readers.read_now(read))
            .await
            .map_err(|error| StoreError::unavailable(format!("a read was given up: {error}")))?
    }

    fn read_now<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, ReadFault>,
    ) -> Result<T, StoreError> {
        let database = match self.take_idle() {
            Some(database) => database,
            None => Database::open_reader(&self.path, &self.options)
                .map_err(|error| open_error(&error))?,
        };
        self.read_on(database, read)
    }

    fn take_idle(&self) -> Option<Database> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    fn read_on<T>(
        &self,
        database: Database,
        read: impl FnOnce(&Connection) -> Result<T, ReadFault>,
    ) -> Result<T, StoreError> {
        let outcome = snapshot(&database, read);
        // A connection whose transaction cannot be ended is dropped, which ends it.
        if database.is_autocommit() {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(database);
        }
        outcome.map_err(|fault| match fault {
            ReadFault::Sqlite(error) => store_error(&error),
            ReadFault::Store(error) => error,
        })
    }
}

fn snapshot<T>(
    connection: &Connection,
    read: impl FnOnce(&Connection) -> Result<T, ReadFault>,
) -> Result<T, ReadFault> {
    connection.prepare_cached("BEGIN DEFERRED")?.execute([])?;
    let outcome = read(connection);
    connection.prepare_cached("COMMIT")?.execute([])?;
    outcome
}
