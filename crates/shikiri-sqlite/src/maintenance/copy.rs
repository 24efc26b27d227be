//! Backup and restore.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};

use super::MaintenanceError;
use super::check::{Report, examine};
use crate::create::create_folder;
use crate::error::OpenError;
use crate::files::{
    beside, folder_of, has_leftovers, move_away, remove_with_companions, scratch_name, sync_folder,
    with_suffix,
};
use crate::lock::FileLock;
use crate::migrate;
use crate::open::{lock_existing, look, open_file, real_path};

/// Pages that are copied in one step.
const STEP_PAGES: i32 = 1_000;

/// Copies the database as it is now to `destination`, while others go on writing. The copy
/// appears under its name only when it is whole and has been checked.
pub fn backup(path: &Path, destination: &Path) -> Result<(), MaintenanceError> {
    let path = &real_path(path)?;
    let _lock = lock_existing(path, Duration::from_secs(5))?;
    if destination.exists() {
        return Err(MaintenanceError::Exists(destination.to_owned()));
    }
    let source = look(path)?;
    let scratch = scratch_name(destination, "partial");
    let made = copy_pages(path, &source, &scratch)
        .and_then(|()| verify(&scratch, destination))
        .and_then(|()| put_in_place(&scratch, destination));
    remove_with_companions(&scratch);
    made
}

/// Puts a backup in the place of the database. What was there is kept; its new name is returned.
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
        // Of restores that were broken off: the lock says that no other is under way.
        beside(path, "restoring").for_each(|left| remove_with_companions(&left));
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

/// A backup that nobody writes is copied as a file: it may lie where SQLite cannot put its log.
/// One with a log beside it is read through SQLite, so that the log counts.
fn fetch(source: &Path, scratch: &Path) -> Result<(), MaintenanceError> {
    if with_suffix(source, "-wal").exists() {
        return copy_pages(source, &look(source)?, scratch);
    }
    let mut from = File::open(source).map_err(|error| OpenError::unreadable(source, &error))?;
    let mut to = create_private(scratch)?;
    io::copy(&mut from, &mut to)
        .map(drop)
        .map_err(|source| MaintenanceError::Write { path: scratch.to_owned(), source })
}

/// A new file for its owner alone, from its first moment on.
fn create_private(path: &Path) -> Result<File, MaintenanceError> {
    let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    created.map_err(|source| MaintenanceError::Write { path: folder_of(path), source })
}

fn copy_pages(path: &Path, source: &Connection, to: &Path) -> Result<(), MaintenanceError> {
    // SQLite takes an empty file for a new database, and gives its log the same mode.
    drop(create_private(to)?);
    let copied = (|| {
        let mut target = open_file(to, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        // Within one read transaction the copy is of one state, and others' writes, which would
        // have SQLite begin it again each time, do not reach it.
        source.execute_batch("BEGIN DEFERRED; SELECT count(*) FROM sqlite_schema")?;
        let backup = Backup::new(source, &mut target)?;
        while backup.step(STEP_PAGES)? != StepResult::Done {}
        drop(backup);
        source.execute_batch("COMMIT")?;
        target.close().map_err(|(_, error)| error)
    })();
    copied.map_err(|error| OpenError::sqlite(path, error).into())
}

/// Checks a copy that only we know; problems are told of `named`.
fn verify(scratch: &Path, named: &Path) -> Result<(), MaintenanceError> {
    let unsound = |problem: String| MaintenanceError::Unsound { path: named.to_owned(), problem };
    let connection = look(scratch).map_err(|error| match error {
        OpenError::Newer { found, known, .. } => {
            OpenError::Newer { path: named.to_owned(), found, known }.into()
        }
        OpenError::Damaged { cause, .. } => unsound(cause),
        OpenError::Foreign(_) => OpenError::Foreign(named.to_owned()).into(),
        other => MaintenanceError::from(other),
    })?;
    let mut report = Report::default();
    examine(&connection, &mut report).map_err(|error| unsound(error.to_string()))?;
    if report.schema == 0 {
        return Err(unsound("it is empty".to_owned()));
    }
    debug_assert!(report.schema <= migrate::known());
    match report.problems.into_iter().next() {
        Some(problem) => Err(unsound(problem)),
        None => Ok(()),
    }
}

/// Links rather than renames: a file that came into being meanwhile is not overwritten.
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
