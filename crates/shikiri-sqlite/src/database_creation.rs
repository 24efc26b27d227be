//! Creates the database at the first start. The file is built under another name and then linked
//! into place, so no process sees a database without its tables. If several processes start at
//! once, one of them wins.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt as _};
use std::path::Path;

use crate::database_files::{folder_of, remove_with_companions, scratch_name, sync_folder};
use crate::error::OpenError;
use crate::migrate::migrate;
use crate::open_database::build_connection;

/// Creates the folder, readable only by its owner, if it is missing.
pub(crate) fn create_folder(path: &Path) -> Result<(), OpenError> {
    let folder = folder_of(path);
    if folder.is_dir() {
        return Ok(());
    }
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)
        .map_err(|source| OpenError::NoFolder { folder, source })
}

/// Creates the database if it is still missing.
pub(crate) fn create_database(path: &Path) -> Result<(), OpenError> {
    let scratch = scratch_name(path, "new");
    let made = build(&scratch).and_then(|()| link(&scratch, path));
    remove_with_companions(&scratch);
    made
}

fn build(scratch: &Path) -> Result<(), OpenError> {
    let sqlite = |error| OpenError::sqlite(scratch, error);
    // Created for its owner only, whatever the folder's mode. SQLite uses an empty file as a new
    // database and gives its log the same mode.
    (OpenOptions::new().write(true).create_new(true).mode(0o600).open(scratch))
        .map_err(|source| OpenError::folder(scratch, source))?;
    let mut connection = build_connection(scratch).map_err(sqlite)?;
    migrate(scratch, &mut connection, 0)?;
    // Set last, because tables are created faster without a log. The mode is stored in the file.
    connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(())).map_err(sqlite)?;
    connection.close().map_err(|(_, error)| sqlite(error))?;
    File::open(scratch)
        .and_then(|file| file.sync_all())
        .map_err(|source| OpenError::folder(scratch, source))
}

fn link(scratch: &Path, path: &Path) -> Result<(), OpenError> {
    match fs::hard_link(scratch, path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(OpenError::folder(path, error))
        }
        // Another process created the database first.
        _ => sync_folder(path).map_err(|source| OpenError::folder(path, source)),
    }
}
