//! A cluster's folder and the marks on it that tell a later run whose it was.
//!
//! `shikiri-testpg-PID-RANDOM/` holds `creator` (the pid file), `guard`, `data/` and `log`. The
//! creator's pid is in the name, so that even a folder whose marks were never written can be
//! judged.

use std::fs::{self, DirBuilder, File};
use std::io::Read;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::account::Account;
use crate::error::Error;
use crate::process;

const PREFIX: &str = "shikiri-testpg-";

/// Makes a fresh folder that belongs to the account and carries our mark.
pub(crate) fn create(account: Account) -> Result<PathBuf, Error> {
    let creator = std::process::id();
    let name = format!("{PREFIX}{creator}-{}", random_hex(4)?);
    let folder = account.temporary_root().join(name);
    DirBuilder::new()
        .mode(0o700)
        .create(&folder)
        .map_err(|cause| Error::file("make the folder", &folder, &cause))?;
    let started = process::start_time(creator).unwrap_or_default();
    let path = folder.join("creator");
    fs::write(&path, mark(creator, started, &process::pid_namespace()))
        .map_err(|cause| Error::file("write", &path, &cause))?;
    account.give(&folder)?;
    Ok(folder)
}

pub(crate) fn data(folder: &Path) -> PathBuf {
    folder.join("data")
}

pub(crate) fn log(folder: &Path) -> PathBuf {
    folder.join("log")
}

/// The server that runs on this folder. The id in a pid file may be used again by another process, so
/// the process must have been started with this data folder.
pub(crate) fn server(folder: &Path) -> Option<u32> {
    let data = data(folder);
    let pid_file = fs::read_to_string(data.join("postmaster.pid")).ok()?;
    let pid = pid_file.lines().next()?.trim().parse().ok()?;
    process::start_time(pid)?;
    process::has_argument(pid, &data).then_some(pid)
}

/// The pid in a folder's name, if it is the name of one of our folders.
pub(crate) fn creator_in_name(name: &str) -> Option<u32> {
    let (pid, random) = name.strip_prefix(PREFIX)?.split_once('-')?;
    if random.is_empty() {
        return None;
    }
    pid.parse().ok()
}

/// Whether the process that made this folder is gone. In doubt it is not.
pub(crate) fn is_abandoned(folder: &Path, creator: u32) -> bool {
    let alive_since = process::start_time(creator);
    let Ok(mark) = fs::read_to_string(folder.join("creator")) else {
        return alive_since.is_none();
    };
    let mut lines = mark.lines().skip(1);
    let started = lines.next().and_then(|line| line.parse::<u64>().ok());
    let namespace = lines.next().unwrap_or_default();
    // A number taken over by a younger process does not keep the folder alive.
    namespace == process::pid_namespace() && (alive_since.is_none() || alive_since != started)
}

fn mark(creator: u32, started: u64, namespace: &str) -> String {
    format!("{creator}\n{started}\n{namespace}\n")
}

pub(crate) fn random_hex(bytes: usize) -> Result<String, Error> {
    let source = Path::new("/dev/urandom");
    let mut random = vec![0; bytes];
    File::open(source)
        .and_then(|mut file| file.read_exact(&mut random))
        .map_err(|cause| Error::file("read", source, &cause))?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_names_carry_a_creator() {
        assert_eq!(creator_in_name("shikiri-testpg-42-00ff00ff"), Some(42));
        for other in ["shikiri-testpg-42-", "shikiri-testpg-x-00", "shikiri-42-00", "pgdata"] {
            assert_eq!(creator_in_name(other), None, "{other}");
        }
    }

    #[test]
    fn a_folder_is_abandoned_only_if_its_very_creator_is_gone() {
        // Not a name that a sweep would look at: others may start clusters right now.
        let this = std::process::id();
        let folder = std::env::temp_dir().join(format!("shikiri-marks-{this}"));
        fs::create_dir_all(&folder).expect("a folder");
        let started = process::start_time(this).expect("we run");
        let here = process::pid_namespace();
        let judge = |started: u64, namespace: &str| {
            fs::write(folder.join("creator"), mark(this, started, namespace)).expect("a mark");
            is_abandoned(&folder, this)
        };

        assert!(!judge(started, &here), "its creator runs");
        assert!(judge(started - 1, &here), "our pid, but an earlier process's start time");
        assert!(!judge(started - 1, "pid:[1]"), "another namespace is not ours to judge");
        fs::remove_file(folder.join("creator")).expect("removed");
        assert!(!is_abandoned(&folder, this), "no mark yet, but the named process runs");
        assert!(is_abandoned(&folder, u32::MAX), "no mark, and no such process");

        fs::remove_dir_all(&folder).expect("removed");
    }
}
