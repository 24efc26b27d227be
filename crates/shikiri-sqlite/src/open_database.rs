//! The one place that opens database files.

use std::fs;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::busy_backoff::{self, BusyBackoff};
use crate::damage_recovery::{SetAsideOutcome, set_aside};
use crate::database_creation::{create_database, create_folder};
use crate::database_files::{has_leftovers, unfinished_restore};
use crate::error::OpenError;
use crate::file_lock::FileLock;
use crate::migrate;

/// The WAL file is truncated to this size after a checkpoint, so that a burst does not keep disk
/// space.
const WAL_KEPT_BYTES: u32 = 32 * 1024 * 1024;

/// Pages are read with `pread` into this cache (in KiB) instead of being mapped. With a mapped
/// file, a disk error is a signal that kills the process; with `pread` it is an error that can be
/// reported.
const CACHE_KIB: u32 = 16 * 1024;

/// How long writers may be blocked while a long log waits for its last readers.
const RESTART_WAIT: Duration = Duration::from_millis(20);

/// When a commit counts as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SynchronousMode {
    /// After it reached the disk: it survives a power cut.
    Full,
    /// After it reached the system: it survives the end of the process.
    Normal,
}

#[derive(Clone, Debug)]
pub struct DatabaseOptions {
    pub synchronous: SynchronousMode,
    /// How long to wait for other processes.
    pub busy_timeout: Duration,
    /// Whether the last connection moves the log into the file when it closes. A hook leaves that
    /// to other processes.
    pub checkpoint_on_close: bool,
    /// For a process that ends soon. If no other process has the database open, it excludes the
    /// others. The shared memory then need not be set up, which would take longer than a write.
    pub brief: bool,
}

impl Default for DatabaseOptions {
    fn default() -> Self {
        Self {
            synchronous: SynchronousMode::Full,
            busy_timeout: Duration::from_secs(5),
            checkpoint_on_close: true,
            brief: false,
        }
    }
}

/// How long a connection waits for locks of other processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockWait {
    /// The timeout that it was opened with.
    Usual,
    UpTo(Duration),
    Never,
}

/// Which other processes may use the database while this one has it open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DatabaseSharing {
    Others,
    Exclusive,
}

impl DatabaseSharing {
    /// A short wait is useless, because the other process has the database open for long.
    fn patience(self, options: &DatabaseOptions) -> Duration {
        match self {
            Self::Others => options.busy_timeout,
            Self::Exclusive => Duration::ZERO,
        }
    }
}

/// An open database. Its files cannot be moved away while it exists.
#[derive(Debug)]
pub struct SqliteDatabase {
    // Declared before the lock, because fields are dropped in order.
    connection: Connection,
    busy_timeout: Duration,
    set_aside: Option<PathBuf>,
    is_alone: bool,
    _lock: FileLock,
}

impl SqliteDatabase {
    /// Opens the database for writing. If needed, it first creates it, migrates it, or sets a
    /// damaged one aside.
    pub fn open(path: &Path, options: &DatabaseOptions) -> Result<Self, OpenError> {
        let path = &real_path(path)?;
        create_folder(path)?;
        let mut kept_as = None;
        let mut pauses = BusyBackoff::up_to(options.busy_timeout);
        loop {
            match try_open(path, options) {
                Ok((connection, lock, company)) => {
                    return Ok(Self {
                        connection,
                        busy_timeout: options.busy_timeout,
                        set_aside: kept_as,
                        is_alone: company == DatabaseSharing::Exclusive,
                        _lock: lock,
                    });
                }
                Err(OpenError::Damaged { .. }) => match set_aside(path)? {
                    SetAsideOutcome::Moved(target) => kept_as = Some(target),
                    SetAsideOutcome::NotDamaged | SetAsideOutcome::InUse if pauses.pause() => {}
                    _ => return Err(OpenError::DamagedInUse(path.clone())),
                },
                // Another process moved the file away before it was opened.
                Err(OpenError::Unreadable { .. }) if !path.exists() && pauses.pause() => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Opens an existing database of the current schema for reading only.
    pub fn open_reader(path: &Path, options: &DatabaseOptions) -> Result<Self, OpenError> {
        let path = &real_path(path)?;
        let lock = lock_existing(path, options.busy_timeout)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
        let connection = connect(path, flags, options, DatabaseSharing::Others)
            .map_err(|error| OpenError::sqlite(path, error))?;
        let found = migrate::check_readable(path, &connection)?;
        if found < migrate::latest_version() {
            return Err(OpenError::Older {
                path: path.clone(),
                found,
                known: migrate::latest_version(),
            });
        }
        let busy_timeout = options.busy_timeout;
        Ok(Self { connection, busy_timeout, set_aside: None, is_alone: false, _lock: lock })
    }

    /// The new path of the damaged file, if opening found one.
    pub fn set_aside(&self) -> Option<&Path> {
        self.set_aside.as_deref()
    }

    /// Whether other processes are excluded; see [`DatabaseOptions::brief`].
    pub fn is_exclusive(&self) -> bool {
        self.is_alone
    }

    /// Sets how long to wait for locks of other processes from now on.
    pub fn wait_for_locks(&mut self, wait: LockWait) -> rusqlite::Result<()> {
        let limit = match wait {
            LockWait::Usual => self.busy_timeout,
            LockWait::UpTo(limit) => limit,
            LockWait::Never => Duration::ZERO,
        };
        busy_backoff::install(&mut self.connection, limit)
    }

    /// Moves the log into the file as far as readers allow, without waiting.
    pub fn checkpoint(&self) -> rusqlite::Result<()> {
        self.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
    }

    /// Moves the log into the file and truncates it, as far as readers allow.
    pub fn truncate_wal(&mut self) -> rusqlite::Result<()> {
        // First the part that waits for the disk, while writers can continue.
        self.checkpoint()?;
        busy_backoff::install(&mut self.connection, RESTART_WAIT)?;
        self.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        self.wait_for_locks(LockWait::Usual)?;
        // The first write to a new log waits for the disk as well. It is done here and not in a
        // hook.
        self.execute(
            "INSERT OR REPLACE INTO facts (name, value)
             VALUES ('log_shortened_at', strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))",
            [],
        )
        .map(drop)
    }

    /// Moves the log into the file, so that the next write restarts it. Waits briefly for readers
    /// and blocks writers meanwhile, so this is only for a log that is too long.
    pub fn checkpoint_and_restart(&mut self) -> rusqlite::Result<()> {
        busy_backoff::install(&mut self.connection, RESTART_WAIT)?;
        let done = self.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(()));
        self.wait_for_locks(LockWait::Usual)?;
        done
    }
}

impl Deref for SqliteDatabase {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl DerefMut for SqliteDatabase {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }
}

/// SQLite names the log after the target of a link, and so must the lock.
pub(crate) fn real_path(path: &Path) -> Result<PathBuf, OpenError> {
    let (path, found) = match fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() => {
            let path =
                fs::canonicalize(path).map_err(|error| OpenError::unreadable(path, &error))?;
            let found = fs::metadata(&path);
            (path, found)
        }
        found => (path.to_owned(), found),
    };
    if found.is_ok_and(|found| found.is_dir()) {
        return Err(OpenError::IsFolder(path));
    }
    Ok(path)
}

/// For read-only commands: if there is no database, not even the lock file is created.
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

fn try_open(
    path: &Path,
    options: &DatabaseOptions,
) -> Result<(Connection, FileLock, DatabaseSharing), OpenError> {
    let (lock, company) = match options.brief {
        true => lock_exclusive_or_join(path, options.busy_timeout)?,
        false => (FileLock::shared(path, options.busy_timeout)?, DatabaseSharing::Others),
    };
    match open_locked(path, options, company) {
        // Another program has it open, which does not use our lock.
        Err(OpenError::Busy(_)) if company == DatabaseSharing::Exclusive => {}
        opened => return opened.map(|connection| (connection, lock, company)),
    }
    drop(lock);
    let lock = FileLock::shared(path, options.busy_timeout)?;
    let connection = open_locked(path, options, DatabaseSharing::Others)?;
    Ok((connection, lock, DatabaseSharing::Others))
}

/// Takes the shared lock, but waits for a process with the exclusive lock. That process ends soon,
/// and two processes would have to set up the shared memory.
fn lock_exclusive_or_join(
    path: &Path,
    limit: Duration,
) -> Result<(FileLock, DatabaseSharing), OpenError> {
    let mut pauses = BusyBackoff::up_to(limit);
    loop {
        if let Some(lock) = FileLock::exclusive(path)? {
            return Ok((lock, DatabaseSharing::Exclusive));
        }
        match FileLock::shared(path, Duration::ZERO) {
            Err(OpenError::Busy(_)) if pauses.pause() => {}
            locked => return locked.map(|lock| (lock, DatabaseSharing::Others)),
        }
    }
}

/// The caller holds the lock for this sharing mode.
fn open_locked(
    path: &Path,
    options: &DatabaseOptions,
    company: DatabaseSharing,
) -> Result<Connection, OpenError> {
    let sqlite = |error| OpenError::sqlite(path, error);
    let mut connection = connect_or_create(path, || {
        connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE, options, company)
    })?;
    // Checked first, so that another program's file is refused unchanged.
    let found = migrate::check_readable(path, &connection)?;
    busy_backoff::retry(company.patience(options), || use_wal(&connection)).map_err(sqlite)?;
    migrate::migrate(path, &mut connection, found)?;
    connection
        .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, !options.checkpoint_on_close)
        .map_err(sqlite)?;
    Ok(connection)
}

/// The caller holds a lock.
fn connect_or_create(
    path: &Path,
    connect: impl Fn() -> rusqlite::Result<Connection>,
) -> Result<Connection, OpenError> {
    let connected = match connect() {
        Err(_) if !path.exists() => {
            create(path)?;
            connect()
        }
        // Another process created the file in between.
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::CannotOpen) => connect(),
        connected => connected,
    };
    connected.map_err(|error| OpenError::sqlite(path, error))
}

/// Creates a missing database. The caller holds a lock.
fn create(path: &Path) -> Result<(), OpenError> {
    refuse_unfinished(path)?;
    if has_leftovers(path) {
        let cause = "its log was left without it".to_owned();
        return Err(OpenError::Damaged { path: path.to_owned(), cause });
    }
    create_database(path)
}

/// Reads the schema and changes nothing. The caller holds a lock.
pub(crate) fn open_checked(path: &Path) -> Result<Connection, OpenError> {
    open_checked_within(path, DatabaseOptions::default().busy_timeout)
}

pub(crate) fn open_checked_within(
    path: &Path,
    busy_timeout: Duration,
) -> Result<Connection, OpenError> {
    let options = DatabaseOptions { busy_timeout, ..DatabaseOptions::default() };
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
    let connection = connect(path, flags, &options, DatabaseSharing::Others)
        .map_err(|error| OpenError::sqlite(path, error))?;
    migrate::check_readable(path, &connection)?;
    Ok(connection)
}

/// For a file that is being built and not visible yet: fast, not durable.
pub(crate) fn build_connection(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    let connection = open_file(path, flags)?;
    connection.execute_batch("PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY;")?;
    Ok(connection)
}

/// A plain connection, for copying whole databases.
pub(crate) fn open_file(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    // No URI: a file may be called `file:x?mode=memory`. No mutex: the compiler ensures that one
    // thread at a time uses a connection.
    #[expect(clippy::disallowed_methods, reason = "the one place that opens database files")]
    Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)
}

fn connect(
    path: &Path,
    flags: OpenFlags,
    options: &DatabaseOptions,
    company: DatabaseSharing,
) -> rusqlite::Result<Connection> {
    let patience = company.patience(options);
    busy_backoff::retry(patience, || {
        let mut connection = open_file(path, flags)?;
        busy_backoff::install(&mut connection, patience)?;
        // Until the file is known to be sound, closing must not write to it.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        // Without this, a statement with `LIMIT ?` is compiled again for every use.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY, true)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        // Shikiri has no triggers. A trigger in the file was put there to run code.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
        let synchronous = match options.synchronous {
            SynchronousMode::Full => "FULL",
            SynchronousMode::Normal => "NORMAL",
        };
        let locking_mode = match company {
            DatabaseSharing::Others => "NORMAL",
            DatabaseSharing::Exclusive => "EXCLUSIVE",
        };
        let kept = match options.brief {
            true => String::new(),
            false => format!(
                "PRAGMA cache_size = -{CACHE_KIB}; PRAGMA journal_size_limit = {WAL_KEPT_BYTES};
                 PRAGMA secure_delete = FAST;"
            ),
        };
        connection.execute_batch(&format!(
            "PRAGMA locking_mode = {locking_mode}; PRAGMA synchronous = {synchronous}; {kept}"
        ))?;
        Ok(connection)
    })
}

/// Files are created in WAL mode. This is for an empty file of another program.
fn use_wal(connection: &Connection) -> rusqlite::Result<()> {
    let mode: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
    if mode != "wal" {
        connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "open_database_tests.rs"]
mod tests;
