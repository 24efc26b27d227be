//! The one place that opens database files.

use std::fs;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::busy::{self, Pauses};
use crate::create::{create_database, create_folder};
use crate::error::OpenError;
use crate::files::{has_leftovers, unfinished_restore};
use crate::lock::FileLock;
use crate::migrate;
use crate::set_aside::{Outcome, set_aside};

/// The WAL file is cut back to this after a checkpoint, so that one burst does not stay on disk.
const WAL_KEPT_BYTES: u32 = 32 * 1024 * 1024;

/// Pages are read with `pread` into this cache (in KiB), not mapped, which is the default: on a
/// mapped file a failing disk is a signal that ends the process, instead of an error that is
/// reported.
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
    /// For a process that is about to end. If nobody has the database open, it keeps everybody
    /// else out: what processes share need not be set up then, which takes longer than a write.
    pub brief: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            synchronous: Synchronous::Full,
            busy_timeout: Duration::from_secs(5),
            checkpoint_on_close: true,
            brief: false,
        }
    }
}

/// How long a connection waits for locks of other processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// As long as it was opened with.
    Usual,
    UpTo(Duration),
    Never,
}

/// Who else may use the database while this process has it open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Company {
    Others,
    Nobody,
}

impl Company {
    /// Whoever has it open now does not go because we wait.
    fn patience(self, options: &OpenOptions) -> Duration {
        match self {
            Self::Others => options.busy_timeout,
            Self::Nobody => Duration::ZERO,
        }
    }
}

/// An open database. While it lives, nobody can move the files away.
#[derive(Debug)]
pub struct Database {
    // Before the lock: fields are dropped in order.
    connection: Connection,
    busy_timeout: Duration,
    set_aside: Option<PathBuf>,
    is_alone: bool,
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
                Ok((connection, lock, company)) => {
                    return Ok(Self {
                        connection,
                        busy_timeout: options.busy_timeout,
                        set_aside: kept_as,
                        is_alone: company == Company::Nobody,
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
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
        let connection = connect(path, flags, options, Company::Others)
            .map_err(|error| OpenError::sqlite(path, error))?;
        let found = migrate::readable(path, &connection)?;
        if found < migrate::known() {
            return Err(OpenError::Older { path: path.clone(), found, known: migrate::known() });
        }
        let busy_timeout = options.busy_timeout;
        Ok(Self { connection, busy_timeout, set_aside: None, is_alone: false, _lock: lock })
    }

    /// Where the damaged file was put that this opening found, if it found one.
    pub fn set_aside(&self) -> Option<&Path> {
        self.set_aside.as_deref()
    }

    /// Whether everybody else is kept out; see [`OpenOptions::brief`].
    pub fn is_alone(&self) -> bool {
        self.is_alone
    }

    /// Waits for other processes' locks no longer than this from now on.
    pub fn wait_for_locks(&mut self, wait: Wait) -> rusqlite::Result<()> {
        let limit = match wait {
            Wait::Usual => self.busy_timeout,
            Wait::UpTo(limit) => limit,
            Wait::Never => Duration::ZERO,
        };
        busy::install(&mut self.connection, limit)
    }

    /// Moves the log into the file as far as readers allow, without waiting for anybody.
    pub fn checkpoint(&self) -> rusqlite::Result<()> {
        self.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
    }

    /// Moves the log into the file and leaves it short, as far as readers allow.
    pub fn shorten_log(&mut self) -> rusqlite::Result<()> {
        // First what has to wait for the disk: writers go on meanwhile.
        self.checkpoint()?;
        busy::install(&mut self.connection, RESTART_WAIT)?;
        self.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        self.wait_for_locks(Wait::Usual)?;
        // The first write to a new log waits for the disk as well: here, and not in a hook.
        self.execute(
            "INSERT OR REPLACE INTO facts (name, value)
             VALUES ('log_shortened_at', strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))",
            [],
        )
        .map(drop)
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

fn try_open(
    path: &Path,
    options: &OpenOptions,
) -> Result<(Connection, FileLock, Company), OpenError> {
    let (lock, company) = match options.brief {
        true => lock_briefly(path, options.busy_timeout)?,
        false => (FileLock::shared(path, options.busy_timeout)?, Company::Others),
    };
    match open_locked(path, options, company) {
        // Another program has it open, which knows nothing of our lock.
        Err(OpenError::Busy(_)) if company == Company::Nobody => {}
        opened => return opened.map(|connection| (connection, lock, company)),
    }
    drop(lock);
    let lock = FileLock::shared(path, options.busy_timeout)?;
    let connection = open_locked(path, options, Company::Others)?;
    Ok((connection, lock, Company::Others))
}

/// Joins those who stay, but waits for one who is alone: that one will soon be gone, and together
/// both would have to set up what processes share.
fn lock_briefly(path: &Path, limit: Duration) -> Result<(FileLock, Company), OpenError> {
    let mut pauses = Pauses::up_to(limit);
    loop {
        if let Some(lock) = FileLock::exclusive(path)? {
            return Ok((lock, Company::Nobody));
        }
        match FileLock::shared(path, Duration::ZERO) {
            Err(OpenError::Busy(_)) if pauses.pause() => {}
            locked => return locked.map(|lock| (lock, Company::Others)),
        }
    }
}

/// The caller holds the lock that goes with the company.
fn open_locked(
    path: &Path,
    options: &OpenOptions,
    company: Company,
) -> Result<Connection, OpenError> {
    let sqlite = |error| OpenError::sqlite(path, error);
    let mut connection = connect_or_create(path, || {
        connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE, options, company)
    })?;
    // First, so that another program's file is refused before anything is changed in it.
    let found = migrate::readable(path, &connection)?;
    busy::retry(company.patience(options), || use_wal(&connection)).map_err(sqlite)?;
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
        // There was none, and now there is: somebody else has made it.
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::CannotOpen) => connect(),
        connected => connected,
    };
    connected.map_err(|error| OpenError::sqlite(path, error))
}

/// Makes a database where there is none. The caller holds a lock.
fn create(path: &Path) -> Result<(), OpenError> {
    refuse_unfinished(path)?;
    if has_leftovers(path) {
        let cause = "its log was left without it".to_owned();
        return Err(OpenError::Damaged { path: path.to_owned(), cause });
    }
    create_database(path)
}

/// Reads the schema and changes nothing. The caller holds a lock.
pub(crate) fn look(path: &Path) -> Result<Connection, OpenError> {
    look_within(path, OpenOptions::default().busy_timeout)
}

pub(crate) fn look_within(path: &Path, busy_timeout: Duration) -> Result<Connection, OpenError> {
    let options = OpenOptions { busy_timeout, ..OpenOptions::default() };
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
    let connection = connect(path, flags, &options, Company::Others)
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

fn connect(
    path: &Path,
    flags: OpenFlags,
    options: &OpenOptions,
    company: Company,
) -> rusqlite::Result<Connection> {
    let patience = company.patience(options);
    busy::retry(patience, || {
        let mut connection = open_file(path, flags)?;
        busy::install(&mut connection, patience)?;
        // Until the file is known to be sound: closing must not write to a damaged one.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        // Else a statement with `LIMIT ?` is compiled anew whenever it is used.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY, true)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        // We have none: one that is there was put into the file to have us run it.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
        let synchronous = match options.synchronous {
            Synchronous::Full => "FULL",
            Synchronous::Normal => "NORMAL",
        };
        let locking_mode = match company {
            Company::Others => "NORMAL",
            Company::Nobody => "EXCLUSIVE",
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
