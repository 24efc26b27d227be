//! `<root>/.shikiri/`: made at first start, readable for its owner only. Several processes may
//! start at once: whatever is made here is made whole or not at all, and all agree on one admin
//! key.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use shikiri_model::key::Secret;

use crate::exit::{Exit, Failure};

/// How keys begin.
pub(crate) const KEY_PREFIX: &str = "shk_";

/// Makes the folder and what belongs in it, as far as it is missing.
pub fn prepare(folder: &Path) -> Result<(), Failure> {
    shikiri_hook::place::prepare(folder).map_err(|error| unusable(folder, &error))?;
    let workspaces = folder.join("workspaces");
    shikiri_hook::place::make_folder(&workspaces).map_err(|error| unusable(&workspaces, &error))
}

/// The admin key of a folder.
pub struct AdminKey {
    pub secret: Secret,
    /// There was none: this process made it.
    pub is_new: bool,
}

/// The admin key of this folder, made of `fresh` if there is none yet.
pub fn admin_key(
    path: &Path,
    fresh: impl FnOnce() -> Result<Secret, Failure>,
) -> Result<AdminKey, Failure> {
    if let Some(secret) = read_key(path)? {
        return Ok(AdminKey { secret, is_new: false });
    }
    let is_new = make_key(path, &fresh()?).map_err(|error| unusable(path, &error))?;
    // Another process may have been first: the file decides, not what we made.
    let secret = read_key(path)?.ok_or_else(|| {
        let what = format!("{} disappeared while it was made", path.display());
        Failure::new(Exit::Failed, what, "start again")
    })?;
    Ok(AdminKey { secret, is_new })
}

/// Puts a key in the place of whatever is there.
pub fn replace_key(path: &Path, key: &Secret) -> Result<(), Failure> {
    let replaced = write_key(path, key, |scratch| fs::rename(scratch, path));
    replaced.map_err(|error| unusable(path, &error))
}

/// None if there is no file.
pub fn read_key(path: &Path) -> Result<Option<Secret>, Failure> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unusable(path, &error)),
    };
    match text.trim() {
        key if key.len() >= 20 && key.starts_with(KEY_PREFIX) => Ok(Some(Secret::from_caller(key))),
        _ => {
            let what = format!("{} does not hold a key", path.display());
            Err(Failure::new(Exit::Failed, what, "`shikiri keys rotate-admin` makes a new one"))
        }
    }
}

/// False if a key is there already.
fn make_key(path: &Path, key: &Secret) -> io::Result<bool> {
    write_key(path, key, |scratch| match fs::hard_link(scratch, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        linked => linked.map(|()| true),
    })
}

/// Writes the whole key under another name, which `place` then puts into place.
fn write_key<T>(
    path: &Path,
    key: &Secret,
    place: impl FnOnce(&Path) -> io::Result<T>,
) -> io::Result<T> {
    let scratch = scratch_name(path);
    let written = (|| {
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&scratch)?;
        writeln!(file, "{}", key.reveal())?;
        file.sync_all()?;
        place(&scratch)
    })();
    // What could not be made, or was moved, needs no removing.
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
    fn many_that_start_at_once_agree_on_one_key() {
        let root = tempfile::tempdir().unwrap();
        let path = &root.path().join("admin.key");
        let keys: Vec<AdminKey> = std::thread::scope(|scope| {
            let starts: Vec<_> = (0..16)
                .map(|n| {
                    scope.spawn(move || admin_key(path, || Ok(Secret::mint([n; 32]))).unwrap())
                })
                .collect();
            starts.into_iter().map(|s| s.join().unwrap()).collect()
        });
        assert!(keys.iter().all(|key| key.secret.reveal() == keys[0].secret.reveal()));
        assert_eq!(keys.iter().filter(|key| key.is_new).count(), 1, "one of them made it");
        assert_eq!(mode(path), 0o600);
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1, "scratch files were left");
    }

    #[test]
    fn a_file_that_holds_no_key_is_not_replaced() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("admin.key");
        fs::write(&path, "").unwrap();
        assert!(admin_key(&path, || Ok(Secret::mint([1; 32]))).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "");
    }

    #[test]
    fn a_key_is_replaced_whole_and_stays_private() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("admin.key");
        fs::write(&path, "nonsense").unwrap();
        replace_key(&path, &Secret::mint([1; 32])).unwrap();
        let key = read_key(&path).unwrap().unwrap();
        assert_eq!(key.reveal(), Secret::mint([1; 32]).reveal());
        assert_eq!(mode(&path), 0o600);
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1, "scratch files were left");
    }
}
