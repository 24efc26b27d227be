//! Names and moves of the files that make up one database.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// What SQLite puts beside the database file. The file itself is moved last: whoever finds it
/// gone may make a new one, and an old WAL beside a new file would be read into it.
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

/// True if the database file is missing but a companion of it was left.
pub(crate) fn has_leftovers(path: &Path) -> bool {
    !path.exists() && COMPANIONS.iter().any(|suffix| with_suffix(path, suffix).exists())
}

/// Moves a database with its companions to `<path>.<word>-<unix ms>`, where SQLite finds them
/// together again. The caller holds the exclusive lock.
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

/// What a restore left that was broken off before a database was in place again: the one that it
/// had moved away or, if there was none, its copy. Under a lock, no restore is under way.
pub(crate) fn unfinished_restore(path: &Path) -> Option<PathBuf> {
    if path.exists() {
        return None;
    }
    beside(path, "replaced").max().or_else(|| beside(path, "restoring").max())
}

/// The databases `<path>.<word>-…`.
pub(crate) fn beside(path: &Path, word: &str) -> impl Iterator<Item = PathBuf> {
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
        // What is not there needs no removing, and a scrap that stays does no harm.
        let _ = fs::remove_file(with_suffix(path, suffix));
    }
}

/// Makes new and changed names in the folder of `path` survive a power cut.
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
