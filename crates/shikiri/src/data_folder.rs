//! `<root>/.shikiri/`: created at first start, readable for its owner only. Several processes may
//! start at once, so everything here is created atomically, and all agree on one admin key. A
//! folder or a key from another user is not used.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use shikiri_model::key::SecretToken;
use shikiri_runtime::private_file::{self, PrivateFileError};

use crate::exit::{Exit, Failure};
use crate::trust::tracked_files;

/// The data folder's name in the project's.
const NAME: &str = ".shikiri";
/// Files that people write and share. This program creates everything else, on this machine.
const SHARED: &[&str] = &["conventions.toml", "providers.toml", ".gitignore", "agents"];
/// A key has about 50 bytes.
const MAX_KEY_BYTES: u64 = 1_024;
/// The next step for a key that does not belong to this store.
const NEW_KEY: &str = "if this folder is yours, `shikiri keys rotate-admin` makes a new one";

/// The prefix of keys.
pub(crate) const KEY_PREFIX: &str = "shk_";

/// Refuses a data folder that comes from another user: through a link, with another owner, or in a
/// repository. A missing or unreadable folder is left to the code that uses it.
pub fn check(root: &Path) -> Result<(), Failure> {
    let folder = root.join(NAME);
    let Ok(found) = folder.symlink_metadata() else { return Ok(()) };
    check_owner(&folder, &found)?;
    let tracked = tracked_files(root, Path::new(NAME)).map_err(|error| {
        let what = format!("git's index cannot be read ({error})");
        Failure::new(Exit::Unavailable, what, "mend it, or choose another folder")
    })?;
    let is_foreign = |path: &&PathBuf| {
        let inside = path.components().nth(1);
        let is_shared = inside.is_some_and(|part| SHARED.iter().any(|it| part.as_os_str() == *it));
        !is_shared && root.join(path).symlink_metadata().is_ok()
    };
    let Some(foreign) = tracked.iter().find(is_foreign) else { return Ok(()) };
    let what = format!("{} is tracked by git, so it is not used", root.join(foreign).display());
    let name = foreign.display();
    let next = format!("remove it, or if it is yours take it out with `git rm --cached {name}`");
    Err(Failure::new(Exit::Refused, what, &next))
}

fn check_owner(folder: &Path, found: &fs::Metadata) -> Result<(), Failure> {
    let shown = folder.display();
    if found.is_symlink() {
        let what = format!("{shown} is a link, so it is not used");
        return Err(Failure::new(Exit::Refused, what, "remove it; a folder is made in its place"));
    }
    if found.uid() != geteuid().as_raw() {
        let what = format!("{shown} belongs to another user (uid {})", found.uid());
        return Err(Failure::new(Exit::Refused, what, "work as that user, or in another folder"));
    }
    Ok(())
}

/// Creates the folder and its missing contents.
pub fn prepare(folder: &Path) -> Result<(), Failure> {
    if let Ok(found) = folder.symlink_metadata() {
        check_owner(folder, &found)?;
    }
    shikiri_hook::hook_project::prepare_folder(folder).map_err(|error| unusable(folder, &error))?;
    let workspaces = folder.join("workspaces");
    shikiri_hook::hook_project::make_folder(&workspaces)
        .map_err(|error| unusable(&workspaces, &error))
}

/// Writes a new admin key into its file; false if another process has written one.
pub fn make_admin_key(path: &Path, key: &SecretToken) -> Result<bool, Failure> {
    make_key(path, key).map_err(|error| unusable(path, &error))
}

/// A key file that this store does not know.
pub fn unknown_key(path: &Path) -> Failure {
    let what = format!("{} holds a key that this store does not know", path.display());
    Failure::new(Exit::Refused, what, &format!("it is not used; {NEW_KEY}"))
}

/// Backups of damaged store files, oldest first.
pub fn damaged_copies(store: &Path) -> Vec<PathBuf> {
    let (Some(folder), Some(name)) = (store.parent(), store.file_name().and_then(|n| n.to_str()))
    else {
        return Vec::new();
    };
    let start = format!("{name}.damaged-");
    let is_copy = |name: &str| {
        name.strip_prefix(&start).is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit()))
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut copies: Vec<_> =
        names.filter(|name| is_copy(name)).map(|name| folder.join(name)).collect();
    copies.sort();
    copies
}

/// Locks the folder against other processes of this machine that create its contents. None if
/// another process holds the lock.
pub fn try_lock(folder: &Path) -> Result<Option<File>, Failure> {
    let file = File::open(folder).map_err(|error| unusable(folder, &error))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(error)) => Err(unusable(folder, &error)),
    }
}

/// Replaces the key.
pub fn replace_key(path: &Path, key: &SecretToken) -> Result<(), Failure> {
    let replaced = write_key(path, key, |scratch| fs::rename(scratch, path));
    replaced.map_err(|error| unusable(path, &error))
}

/// None if there is no file. A file that others can read or could have written is refused.
pub fn read_key(path: &Path) -> Result<Option<SecretToken>, Failure> {
    let opened = private_file::open(path).map_err(|error| match error {
        PrivateFileError::Io(error) => unusable(path, &error),
        error => {
            let what = format!("{} {error}, so it is not used", path.display());
            Failure::new(Exit::Refused, what, &format!("remove it; {NEW_KEY}"))
        }
    })?;
    let Some(file) = opened else { return Ok(None) };
    let mut text = String::new();
    file.take(MAX_KEY_BYTES).read_to_string(&mut text).map_err(|error| unusable(path, &error))?;
    match text.trim() {
        key if key.len() >= 20 && key.starts_with(KEY_PREFIX) => {
            Ok(Some(SecretToken::from_caller(key)))
        }
        _ => {
            let what = format!("{} does not hold a key", path.display());
            Err(Failure::new(Exit::Failed, what, "`shikiri keys rotate-admin` makes a new one"))
        }
    }
}

/// False if there is a key already.
fn make_key(path: &Path, key: &SecretToken) -> io::Result<bool> {
    write_key(path, key, |scratch| match fs::hard_link(scratch, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        linked => linked.map(|()| true),
    })
}

/// Writes the whole key to a temporary file, which `publish` then moves into place.
fn write_key<T>(
    path: &Path,
    key: &SecretToken,
    publish: impl FnOnce(&Path) -> io::Result<T>,
) -> io::Result<T> {
    let scratch = scratch_name(path);
    let written = (|| {
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&scratch)?;
        writeln!(file, "{}", key.reveal())?;
        file.sync_all()?;
        publish(&scratch)
    })();
    // A file that was not created, or was moved, needs no removal.
    let _ = fs::remove_file(&scratch);
    let placed = written?;
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()?;
    Ok(placed)
}

/// A name that no other process or thread uses.
fn scratch_name(path: &Path) -> PathBuf {
    use std::hash::{BuildHasher as _, RandomState};
    let drawn = RandomState::new().hash_one(std::process::id());
    path.with_extension(format!("new-{}-{drawn:016x}", std::process::id()))
}

fn unusable(path: &Path, error: &io::Error) -> Failure {
    let next = match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "make it readable and writable for this user, or choose another folder with \
             CLAUDE_PROJECT_DIR"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "make room on the disk",
        _ => "choose another folder with CLAUDE_PROJECT_DIR",
    };
    Failure::new(Exit::Unavailable, format!("cannot use {}: {error}", path.display()), next)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn the_folder_is_private_and_git_sees_only_what_people_write() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join(".shikiri");
        prepare(&folder).unwrap();
        prepare(&folder).unwrap();
        assert_eq!(mode(&folder), 0o700);
        assert!(folder.join("workspaces").is_dir());
        let ignored = fs::read_to_string(folder.join(".gitignore")).unwrap();
        assert_eq!(ignored, "*\n!conventions.toml\n!providers.toml\n");
    }

    #[test]
    fn of_many_that_start_at_once_one_makes_the_key() {
        let root = tempfile::tempdir().unwrap();
        let path = &root.path().join("admin.key");
        let made: Vec<bool> = std::thread::scope(|scope| {
            let start =
                |n| scope.spawn(move || make_admin_key(path, &SecretToken::mint([n; 32])).unwrap());
            let starts: Vec<_> = (0..16).map(start).collect();
            starts.into_iter().map(|start| start.join().unwrap()).collect()
        });
        assert_eq!(made.iter().filter(|made| **made).count(), 1, "one of them made it");
        assert!(read_key(path).unwrap().is_some());
        assert_eq!(mode(path), 0o600);
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1, "scratch files were left");
    }

    #[test]
    fn a_file_that_holds_no_key_is_not_read_as_one() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("admin.key");
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(read_key(&path).unwrap_err().code(), 1);
        assert!(!make_admin_key(&path, &SecretToken::mint([1; 32])).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "");
    }

    #[test]
    fn a_key_is_replaced_whole_and_stays_private() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("admin.key");
        fs::write(&path, "nonsense").unwrap();
        replace_key(&path, &SecretToken::mint([1; 32])).unwrap();
        let key = read_key(&path).unwrap().unwrap();
        assert_eq!(key.reveal(), SecretToken::mint([1; 32]).reveal());
        assert_eq!(mode(&path), 0o600);
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1, "scratch files were left");
    }
}
