//! Backup and restore.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};

use super::MaintenanceError;
use super::integrity_check::{IntegrityReport, examine};
use crate::database_creation::create_folder;
use crate::database_files::{
    folder_of, has_leftovers, move_away, remove_with_companions, scratch_name, sibling_databases,
    sync_folder, with_suffix,
};
use crate::error::OpenError;
use crate::file_lock::FileLock;
use crate::migrate;
use crate::open_database::{lock_existing, open_checked, open_file, real_path};

/// Pages per copy step.
const STEP_PAGES: i32 = 1_000;

/// Copies the current state of the database to `destination` while others write. The copy gets its
/// name only after it is complete and checked.
pub fn backup(path: &Path, destination: &Path) -> Result<(), MaintenanceError> {
    let path = &real_path(path)?;
    let _lock = lock_existing(path, Duration::from_secs(5))?;
    if destination.exists() {
        return Err(MaintenanceError::Exists(destination.to_owned()));
    }
    let source = open_checked(path)?;
    let scratch = scratch_name(destination, "partial");
    let made = copy_pages(path, &source, &scratch)
        .and_then(|()| verify(&scratch, destination))
        .and_then(|()| put_in_place(&scratch, destination));
    remove_with_companions(&scratch);
    made
}

/// Replaces the database by a backup. The replaced database is kept, and its new path is returned.
pub fn restore(source: &Path, path: &Path) -> Result<Option<PathBuf>, MaintenanceError> {
    if !source.is_file() {
        return Err(OpenError::Missing(source.to_owned()).into());
    }
    let (source, path) = (&real_path(source)?, &real_path(path)?);
    create_folder(path)?;
    let Some(_lock) = FileLock::exclusive(path)? else {
        return Err(MaintenanceError::InUse(path.to_owned()));
    };
    let scratch = scratch_name(path, "restoring");
    let restored = fetch(source, &scratch)
        .and_then(|()| verify(&scratch, source))
        .and_then(|()| replace(&scratch, path));
    remove_with_companions(&scratch);
    if restored.is_ok() {
        // Remains of aborted restores. The lock ensures that no other restore is running.
        sibling_databases(path, "restoring").for_each(|left| remove_with_companions(&left));
    }
    restored
}

fn replace(scratch: &Path, path: &Path) -> Result<Option<PathBuf>, MaintenanceError> {
    let write = |source| MaintenanceError::Write { path: path.to_owned(), source };
    let replaced = if path.exists() || has_leftovers(path) {
        Some(move_away(path, "replaced").map_err(write)?)
    } else {
        None
    };
    put_in_place(scratch, path)?;
    Ok(replaced)
}

/// A backup without a log is copied as a file, because SQLite may not be able to create a log in
/// its folder. A backup with a log is read through SQLite, so that the log is included.
fn fetch(source: &Path, scratch: &Path) -> Result<(), MaintenanceError> {
    if with_suffix(source, "-wal").exists() {
        return copy_pages(source, &open_checked(source)?, scratch);
    }
    let mut from = File::open(source).map_err(|error| OpenError::unreadable(source, &error))?;
    let mut to = create_private(scratch)?;
    io::copy(&mut from, &mut to)
        .map(drop)
        .map_err(|source| MaintenanceError::Write { path: scratch.to_owned(), source })
}

/// Creates a file that only its owner can read.
fn create_private(path: &Path) -> Result<File, MaintenanceError> {
    let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    created.map_err(|source| MaintenanceError::Write { path: folder_of(path), source })
}

fn copy_pages(path: &Path, source: &Connection, to: &Path) -> Result<(), MaintenanceError> {
    // SQLite uses an empty file as a new database and gives its log the same mode.
    drop(create_private(to)?);
    let copied = (|| {
        let mut target = open_file(to, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        // Inside one read transaction the copy has one state. Without it, SQLite would restart the
        // copy after each write of another process.
        source.execute_batch("BEGIN DEFERRED; SELECT count(*) FROM sqlite_schema")?;
        let backup = Backup::new(source, &mut target)?;
        while backup.step(STEP_PAGES)? != StepResult::Done {}
        drop(backup);
        source.execute_batch("COMMIT")?;
        target.close().map_err(|(_, error)| error)
    })();
    copied.map_err(|error| OpenError::sqlite(path, error).into())
}

/// Checks a copy under its temporary name. Errors mention `named`.
fn verify(scratch: &Path, named: &Path) -> Result<(), MaintenanceError> {
    let unsound = |problem: String| MaintenanceError::Unsound { path: named.to_owned(), problem };
    let connection = open_checked(scratch).map_err(|error| match error {
        OpenError::Newer { found, known, .. } => {
            OpenError::Newer { path: named.to_owned(), found, known }.into()
        }
        OpenError::Damaged { cause, .. } => unsound(cause),
        OpenError::Foreign(_) => OpenError::Foreign(named.to_owned()).into(),
        other => MaintenanceError::from(other),
    })?;
    let mut report = IntegrityReport::default();
    examine(&connection, &mut report).map_err(|error| unsound(error.to_string()))?;
    if report.schema == 0 {
        return Err(unsound("it is empty".to_owned()));
    }
    debug_assert!(report.schema <= migrate::latest_version());
    match report.problems.into_iter().next() {
        Some(problem) => Err(unsound(problem)),
        None => Ok(()),
    }
}

/// Links instead of renaming, so that a file that was created meanwhile is not overwritten.
fn put_in_place(scratch: &Path, path: &Path) -> Result<(), MaintenanceError> {
    let placed = File::open(scratch)
        .and_then(|file| file.sync_all())
        .and_then(|()| fs::hard_link(scratch, path))
        .and_then(|()| sync_folder(path));
    placed.map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => MaintenanceError::Exists(path.to_owned()),
        _ => MaintenanceError::Write { path: folder_of(path), source },
    })
}
