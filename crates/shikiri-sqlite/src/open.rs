//! The one place that opens database files.

use std::fs;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::busy::{self, Pauses};
use crate::create::{create_database, create_folder};
use crate::error::OpenError;
use crate::files::{has_leftovers, unfinished_restore};
use crate::lock::FileLock;
use crate::migrate;
use crate::set_aside::{Outcome, set_aside};

/// The WAL file is cut back to this after a checkpoint, so that one burst does not stay on disk.
const WAL_KEPT_BYTES: u32 = 32 * 1024 * 1024;

/// Pages are read with `pread` into this cache (in KiB), not mapped: on a mapped file a failing
/// disk is a signal that ends the process, instead of an error that is reported.
const CACHE_KIB: u32 = 16 * 1024;

/// How long writers may be kept out while a grown log waits for its last readers.
const RESTART_WAIT: Duration = Duration::from_millis(20);

/// When a commit counts as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Synchronous {
    /// On the disk: survives a power cut.
    Full,
    /// With the system: survives the end of the process.
    Normal,
}

#[derive(Clone, Debug)]
pub struct OpenOptions {
    pub synchronous: Synchronous,
    /// How long to wait for other processes.
    pub busy_timeout: Duration,
    /// Whether the last one to close moves the log into the file. A hook leaves that to others.
    pub checkpoint_on_close: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            synchronous: Synchronous::Full,
            busy_timeout: Duration::from_secs(5),
            checkpoint_on_close: true,
        }
    }
}

/// How long a connection waits for locks of other processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// As long as it was opened with.
    Usual,
    Never,
}

/// An open database. While it lives, nobody can move the files away.
#[derive(Debug)]
pub struct Database {
    // Before the lock: fields are dropped in order.
    connection: Connection,
    busy_timeout: Duration,
    set_aside: Option<PathBuf>,
    _lock: FileLock,
}

impl Database {
    /// Opens the database for writing; makes it, migrates it or sets a damaged one aside first
    /// where that is needed.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Self, OpenError> {
        let path = &real_path(path)?;
        create_folder(path)?;
        let mut kept_as = None;
        let mut pauses = Pauses::up_to(options.busy_timeout);
        loop {
            match try_open(path, options) {
                Ok((connection, lock)) => {
                    return Ok(Self {
                        connection,
                        busy_timeout: options.busy_timeout,
                        set_aside: kept_as,
                        _lock: lock,
                    });
                }
                Err(OpenError::Damaged { .. }) => match set_aside(path)? {
                    Outcome::Moved(target) => kept_as = Some(target),
                    Outcome::NotDamaged | Outcome::InUse if pauses.pause() => {}
                    _ => return Err(OpenError::DamagedInUse(path.clone())),
                },
                // Somebody moved it away between the look and the opening.
                Err(OpenError::Unreadable { .. }) if !path.exists() && pauses.pause() => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Opens an existing database of the current schema for reading only.
    pub fn open_reader(path: &Path, options: &OpenOptions) -> Result<Self, OpenError> {
        let path = &real_path(path)?;
        let lock = lock_existing(path, options.busy_timeout)?;
        let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY, options)
            .map_err(|error| OpenError::sqlite(path, error))?;
        let found = migrate::readable(path, &connection)?;
        if found < migrate::known() {
            return Err(OpenError::Older { path: path.clone(), found, known: migrate::known() });
        }
        let busy_timeout = options.busy_timeout;
        Ok(Self { connection, busy_timeout, set_aside: None, _lock: lock })
    }

    /// Where the damaged file was put that this opening found, if it found one.
    pub fn set_aside(&self) -> Option<&Path> {
        self.set_aside.as_deref()
    }

    /// Waits for other processes' locks no longer than this from now on.
    pub fn wait_for_locks(&mut self, wait: Wait) -> rusqlite::Result<()> {
        let limit = match wait {
            Wait::Usual => self.busy_timeout,
            Wait::Never => Duration::ZERO,
        };
        busy::install(&mut self.connection, limit)
    }

    /// Moves the log into the file as far as readers allow, without waiting for anybody.
    pub fn checkpoint(&self) -> rusqlite::Result<()> {
        self.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
    }

    /// Moves the log into the file and has the next write start it over. Waits a little for
    /// readers, and keeps writers out meanwhile: only for a log that has grown too long.
    pub fn checkpoint_and_restart(&mut self) -> rusqlite::Result<()> {
        busy::install(&mut self.connection, RESTART_WAIT)?;
        let done = self.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(()));
        self.wait_for_locks(Wait::Usual)?;
        done
    }
}

impl Deref for Database {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl DerefMut for Database {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }
}

/// SQLite names the log after the file that a link points to; so must the lock.
pub(crate) fn real_path(path: &Path) -> Result<PathBuf, OpenError> {
    let path = match fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() => {
            fs::canonicalize(path).map_err(|error| OpenError::unreadable(path, &error))?
        }
        _ => path.to_owned(),
    };
    if path.is_dir() {
        return Err(OpenError::IsFolder(path));
    }
    Ok(path)
}

/// For those who only look: where there is no database, not even the lock file is made.
pub(crate) fn lock_existing(path: &Path, limit: Duration) -> Result<FileLock, OpenError> {
    let there = path.try_exists().map_err(|error| OpenError::unreadable(path, &error))?;
    if !there && unfinished_restore(path).is_none() {
        return Err(OpenError::Missing(path.to_owned()));
    }
    let lock = FileLock::shared(path, limit)?;
    refuse_unfinished(path)?;
    if path.exists() { Ok(lock) } else { Err(OpenError::Missing(path.to_owned())) }
}

/// The caller holds a lock.
fn refuse_unfinished(path: &Path) -> Result<(), OpenError> {
    match unfinished_restore(path) {
        Some(left) => Err(OpenError::Unfinished { path: path.to_owned(), left }),
        None => Ok(()),
    }
}

fn try_open(path: &Path, options: &OpenOptions) -> Result<(Connection, FileLock), OpenError> {
    let lock = FileLock::shared(path, options.busy_timeout)?;
    refuse_unfinished(path)?;
    if has_leftovers(path) {
        let cause = "its log was left without it".to_owned();
        return Err(OpenError::Damaged { path: path.to_owned(), cause });
    }
    if !path.exists() {
        create_database(path)?;
    }
    let sqlite = |error| OpenError::sqlite(path, error);
    let mut connection =
        connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE, options).map_err(sqlite)?;
    // First, so that another program's file is refused before anything is changed in it.
    migrate::readable(path, &connection)?;
    busy::retry(options.busy_timeout, || use_wal(&connection)).map_err(sqlite)?;
    migrate::migrate(path, &mut connection)?;
    connection
        .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, !options.checkpoint_on_close)
        .map_err(sqlite)?;
    Ok((connection, lock))
}

/// Reads the schema and changes nothing. The caller holds a lock.
pub(crate) fn look(path: &Path) -> Result<Connection, OpenError> {
    let options = OpenOptions::default();
    let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE, &options)
        .map_err(|error| OpenError::sqlite(path, error))?;
    migrate::readable(path, &connection)?;
    Ok(connection)
}

/// For a file that is being built and is seen by nobody: fast, not safe.
pub(crate) fn build_connection(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    let connection = open_file(path, flags)?;
    connection.execute_batch("PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY;")?;
    Ok(connection)
}

/// A plain connection, for copying whole databases.
pub(crate) fn open_file(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    // No URI: a file may be called `file:x?mode=memory`. No mutex: a connection is used by one
    // thread at a time, which the compiler checks.
    #[expect(clippy::disallowed_methods, reason = "the one place that opens database files")]
    Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)
}

fn connect(path: &Path, flags: OpenFlags, options: &OpenOptions) -> rusqlite::Result<Connection> {
    busy::retry(options.busy_timeout, || {
        let mut connection = open_file(path, flags)?;
        busy::install(&mut connection, options.busy_timeout)?;
        // Until the file is known to be sound: closing must not write to a damaged one.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        // Else a statement with `LIMIT ?` is compiled anew whenever it is used.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        let synchronous = match options.synchronous {
            Synchronous::Full => "FULL",
            Synchronous::Normal => "NORMAL",
        };
        connection.execute_batch(&format!(
            "PRAGMA foreign_keys = ON;
             PRAGMA trusted_schema = OFF;
             PRAGMA synchronous = {synchronous};
             PRAGMA cache_size = -{CACHE_KIB};
             PRAGMA mmap_size = 0;
             PRAGMA journal_size_limit = {WAL_KEPT_BYTES};"
        ))?;
        Ok(connection)
    })
}

/// Files are made in WAL mode; this is for an empty file that somebody else made.
fn use_wal(connection: &Connection) -> rusqlite::Result<()> {
    let mode: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
    if mode != "wal" {
        connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "open_tests.rs"]
mod tests;
