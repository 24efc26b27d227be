//! The folder that keeps installed peers, and cargo-deny, longer than the clone. An entry's name
//! contains its program and the wanted versions, so other versions get another entry. It appears
//! completely or not at all.

use std::env;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::cargo::workspace_root;

/// Part of every entry's name: raised when entries are created differently.
const LAYOUT: &str = "1";

pub(crate) struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// `SHIKIRI_PEERS_DIR`, else beside the build folder that `.ci/run` keeps, else in the clone.
    pub(crate) fn of_this_user() -> Cache {
        let home = || env::home_dir().map(|home| home.join(".cache"));
        let caches = || env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
        let folder = match env::var_os("SHIKIRI_PEERS_DIR") {
            Some(ordered) => PathBuf::from(ordered),
            None => caches()
                .map(|caches| caches.join("shikiri-peers"))
                .unwrap_or_else(|| workspace_root().join("target/peers")),
        };
        // Children run in other folders.
        Cache { folder: std::path::absolute(&folder).unwrap_or(folder) }
    }

    /// The path of a peer's entry, whether or not it exists.
    pub(crate) fn entry(&self, peer: &str, wanted: &[&str]) -> PathBuf {
        let mut hash = Fnv::default();
        for part in [LAYOUT, env::consts::ARCH].iter().chain(wanted) {
            hash.add(part.as_bytes());
            // No text contains this byte, so that parts cannot be confused.
            hash.add(&[0xff]);
        }
        self.folder.join(format!("{peer}-{:016x}", hash.0))
    }

    /// Creates an entry, unless another process did so in the meantime. It is installed elsewhere
    /// and moved into place at the end, so that no process sees half of it.
    pub(crate) fn make(
        &self,
        entry: &Path,
        install: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<()> {
        let _held = self.lock()?;
        if entry.is_dir() {
            return Ok(());
        }
        let aside = self.folder.join("unfinished");
        // Left by a killed run; no other process works there while the lock is held.
        remove(&aside)?;
        fs::create_dir(&aside).with_context(|| format!("cannot make {}", aside.display()))?;
        let installed = install(&aside);
        if installed.is_err() {
            remove(&aside)?;
            return installed;
        }
        fs::rename(&aside, entry).with_context(|| format!("cannot make {}", entry.display()))
    }

    /// One installer at a time, for all clones of this user. The lock ends with the value, and with
    /// the process.
    fn lock(&self) -> Result<File> {
        let path = self.folder.join("lock");
        fs::create_dir_all(&self.folder)
            .and_then(|()| File::create(&path))
            .and_then(|file| {
                match file.try_lock() {
                    Ok(()) => {}
                    Err(TryLockError::WouldBlock) => {
                        eprintln!("waiting for another run that installs into this folder");
                        file.lock()?;
                    }
                    Err(TryLockError::Error(error)) => return Err(error),
                }
                Ok(file)
            })
            .with_context(|| format!("cannot lock {}", path.display()))
    }
}

fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

/// FNV-1a: the standard library's hash may change with Rust, which would reinstall everything.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use anyhow::bail;

    use super::*;

    /// A test's own cache, removed at the end.
    struct Own(Cache);

    impl Own {
        fn new(test: &str) -> Own {
            let folder = env::temp_dir().join(format!("peers-{test}-{}", std::process::id()));
            Own(Cache { folder })
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0.folder).unwrap();
            let mut names: Vec<_> =
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    impl Drop for Own {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0.folder);
        }
    }

    #[test]
    fn the_hash_is_the_published_one() {
        let mut hash = Fnv::default();
        hash.add(b"foobar");
        assert_eq!(hash.0, 0x8594_4171_f739_67e8);
    }

    #[test]
    fn other_versions_are_another_entry() {
        let cache = &Own::new("names").0;
        let one = cache.entry("node", &["22.1", "3.11"]);
        assert_eq!(one, cache.entry("node", &["22.1", "3.11"]));
        for other in [&["22.2", "3.11"][..], &["22.1", "3.12"], &["22.13.11"], &["22.13", ".11"]] {
            assert_ne!(one, cache.entry("node", other));
        }
    }

    #[test]
    fn a_failed_installation_leaves_nothing() {
        let own = Own::new("failed");
        let entry = own.0.entry("node", &[]);
        let failing = |aside: &Path| {
            fs::write(aside.join("half"), "")?;
            bail!("no network")
        };
        let error = own.0.make(&entry, failing).unwrap_err();
        assert_eq!(error.to_string(), "no network");
        assert_eq!(own.names(), ["lock"]);
    }

    #[test]
    fn what_a_killed_run_left_is_not_taken_over() {
        let own = Own::new("killed");
        let entry = own.0.entry("node", &[]);
        fs::create_dir_all(own.0.folder.join("unfinished")).unwrap();
        fs::write(own.0.folder.join("unfinished/half"), "").unwrap();
        own.0.make(&entry, |aside| Ok(fs::write(aside.join("whole"), "")?)).unwrap();
        let inside: Vec<_> =
            fs::read_dir(&entry).unwrap().map(|file| file.unwrap().file_name()).collect();
        assert_eq!(inside, ["whole"]);
    }

    #[test]
    fn of_many_at_once_one_installs() {
        let own = Own::new("many");
        let entry = own.0.entry("node", &[]);
        let installed = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let count = |_: &Path| {
                        installed.fetch_add(1, Ordering::SeqCst);
                        Ok(())
                    };
                    own.0.make(&entry, count).unwrap();
                    assert!(entry.is_dir());
                });
            }
        });
        assert_eq!(installed.into_inner(), 1);
    }
}
