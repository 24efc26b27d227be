//! Reads, on a few connections of their own. WAL readers do not wait for the writer and see only
//! committed data.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use shikiri_sqlite::{DatabaseOptions, SqliteDatabase};
use tokio::sync::Semaphore;

use super::error_mapping::{open_error, store_error};
use crate::error::StoreError;

/// The most parallel reads. More would wait for each other in the kernel.
const CONNECTIONS: usize = 8;

/// Short reads run on the caller's thread while they take no longer than this, because they block a
/// thread of the runtime (docs/decisions/0007).
const PROMPT: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(super) struct SqliteReaderPool {
    path: PathBuf,
    options: DatabaseOptions,
    idle: Mutex<Vec<SqliteDatabase>>,
    turns: Semaphore,
    /// Whether the last short read was fast.
    is_prompt: AtomicBool,
}

/// Why a read failed.
pub(super) enum SqliteReadError {
    Sqlite(rusqlite::Error),
    Store(StoreError),
}

impl From<rusqlite::Error> for SqliteReadError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<StoreError> for SqliteReadError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl SqliteReaderPool {
    pub(super) fn new(path: PathBuf, options: DatabaseOptions) -> Self {
        let turns = Semaphore::new(CONNECTIONS);
        Self { path, options, idle: Mutex::default(), turns, is_prompt: AtomicBool::new(false) }
    }

    /// Closes idle connections. The writer's connection is closed last and then removes the log.
    pub(super) fn close_idle(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Runs a read of a few rows on the caller's thread, if such reads are fast.
    pub(super) async fn read_short<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&Connection) -> Result<T, SqliteReadError> + Send + 'static,
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
        // A caller that reads in a loop must yield now and then.
        tokio::task::consume_budget().await;
        outcome
    }

    /// Runs `read` on a blocking thread, with one snapshot of the database.
    pub(super) async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&Connection) -> Result<T, SqliteReadError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let _turn = self.turns.acquire().await.map_err(StoreError::unavailable)?;
        let readers = Arc::clone(self);
        tokio::task::spawn_blocking(move || readers.read_now(read))
            .await
            .map_err(|error| StoreError::unavailable(format!("a read was given up: {error}")))?
    }

    fn read_now<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, SqliteReadError>,
    ) -> Result<T, StoreError> {
        let database = match self.take_idle() {
            Some(database) => database,
            None => SqliteDatabase::open_reader(&self.path, &self.options)
                .map_err(|error| open_error(&error))?,
        };
        self.read_on(database, read)
    }

    fn take_idle(&self) -> Option<SqliteDatabase> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    fn read_on<T>(
        &self,
        database: SqliteDatabase,
        read: impl FnOnce(&Connection) -> Result<T, SqliteReadError>,
    ) -> Result<T, StoreError> {
        let outcome = snapshot(&database, read);
        // A connection whose transaction cannot be ended is dropped, which ends it.
        if database.is_autocommit() {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(database);
        }
        outcome.map_err(|fault| match fault {
            SqliteReadError::Sqlite(error) => store_error(&error),
            SqliteReadError::Store(error) => error,
        })
    }
}

fn snapshot<T>(
    connection: &Connection,
    read: impl FnOnce(&Connection) -> Result<T, SqliteReadError>,
) -> Result<T, SqliteReadError> {
    connection.prepare_cached("BEGIN DEFERRED")?.execute([])?;
    let outcome = read(connection);
    connection.prepare_cached("COMMIT")?.execute([])?;
    outcome
}
