//! Names and moves of the files of one database.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// The files that SQLite puts beside the database file. The database file is moved last: a process
/// that finds it missing may create a new one, and an old WAL would be read into that.
const COMPANIONS: [&str; 3] = ["-wal", "-shm", "-journal"];

pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

pub(crate) fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Whether the database file is missing but one of its companions exists.
pub(crate) fn has_leftovers(path: &Path) -> bool {
    !path.exists() && COMPANIONS.iter().any(|suffix| with_suffix(path, suffix).exists())
}

/// Moves a database and its companions to `<path>.<word>-<unix ms>`, where SQLite can open them.
/// The caller holds the exclusive lock.
pub(crate) fn move_away(path: &Path, word: &str) -> io::Result<PathBuf> {
    let mut stamp = unix_ms();
    let mut target = with_suffix(path, &format!(".{word}-{stamp}"));
    while target.exists() {
        stamp += 1;
        target = with_suffix(path, &format!(".{word}-{stamp}"));
    }
    for suffix in COMPANIONS.iter().chain(&[""]) {
        match fs::rename(with_suffix(path, suffix), with_suffix(&target, suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    sync_folder(path)?;
    Ok(target)
}

/// The remains of a restore that was aborted before a database was in place: the database that it
/// had moved away, else its copy. The caller holds a lock, so no restore is running.
pub(crate) fn unfinished_restore(path: &Path) -> Option<PathBuf> {
    if path.exists() {
        return None;
    }
    sibling_databases(path, "replaced").max().or_else(|| sibling_databases(path, "restoring").max())
}

/// Databases with names like `<path>.<word>-…`.
pub(crate) fn sibling_databases(path: &Path, word: &str) -> impl Iterator<Item = PathBuf> {
    let folder = folder_of(path);
    let start = with_suffix(Path::new(path.file_name().unwrap_or_default()), &format!(".{word}-"));
    let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name()).filter_map(move |name| {
        let bytes = name.as_encoded_bytes();
        let is_companion = COMPANIONS.iter().any(|suffix| bytes.ends_with(suffix.as_bytes()));
        let is_named = bytes.starts_with(start.as_os_str().as_encoded_bytes());
        (is_named && !is_companion).then(|| folder.join(name))
    })
}

pub(crate) fn remove_with_companions(path: &Path) {
    for suffix in COMPANIONS.iter().chain(&[""]) {
        // Errors are ignored: the file may be missing, and a remaining one is harmless.
        let _ = fs::remove_file(with_suffix(path, suffix));
    }
}

/// Makes file names in the folder of `path` durable.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(folder_of(path))?.sync_all()
}

/// A name beside `path` that no other process or thread uses.
pub(crate) fn scratch_name(path: &Path, word: &str) -> PathBuf {
    use std::hash::{BuildHasher, RandomState};
    let drawn = RandomState::new().hash_one(std::process::id());
    with_suffix(path, &format!(".{word}-{}-{drawn:016x}", std::process::id()))
}

#[expect(clippy::disallowed_methods, reason = "part of a file name; nothing is decided by it")]
pub(crate) fn unix_ms() -> u128 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default()
        .as_millis()
}
