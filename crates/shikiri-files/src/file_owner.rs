//! Changes the owner of files in an untrusted folder.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Gid, Mode, OFlags, Stat, Uid};

use crate::dir_walk::VisitedEntry;
use crate::error::{AtPath as _, FilesError};
use crate::file_access::{EntryKind, EntryStat};
use crate::untrusted_dir::UntrustedDir;

/// The user and group as which an engine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileOwner {
    pub uid: u32,
    pub gid: u32,
}

/// The result of a change of owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandOver {
    pub changed: usize,
    /// Files with hard links, and entries that could not be changed.
    pub refused: usize,
    /// False if there were more entries than allowed.
    pub is_complete: bool,
}

impl UntrustedDir {
    /// Gives this folder and the folders and regular files below it to `owner`. Links, pipes and other
    /// entries keep their owner. So does a regular file with hard links, whose other names may be
    /// outside of this folder.
    ///
    /// No engine may run here meanwhile: it could remove a hard link between the check and the change.
    pub fn hand_over(&self, owner: FileOwner, max_entries: usize) -> Result<HandOver, FilesError> {
        let here = Path::new(".");
        let mut done = HandOver::default();
        let own = rustix::fs::fstat(self).at(here)?;
        if !is_of(&own, owner) {
            change_owner(self.as_fd(), Some(owner), here)?;
            done.changed += 1;
        }
        let summary = self.walk_handles(max_entries, |found| {
            if EntryStat::of(found.stat).kind == EntryKind::Other || is_of(found.stat, owner) {
                return;
            }
            match hand_over_entry(&found, owner) {
                Ok(()) => done.changed += 1,
                Err(_) => done.refused += 1,
            }
        });
        done.is_complete = summary.is_complete;
        Ok(done)
    }
}

fn hand_over_entry(found: &VisitedEntry<'_>, owner: FileOwner) -> Result<(), FilesError> {
    let path = found.path.unwrap_or(Path::new("…"));
    let file = pin(found).at(path)?;
    // Checks the opened file, not the listed one.
    let stat = rustix::fs::fstat(&file).at(path)?;
    match EntryStat::of(&stat).kind {
        EntryKind::Other => Err(FilesError::NotRegular(path.to_owned())),
        EntryKind::File if stat.st_nlink > 1 && stat.st_uid != owner.uid => {
            Err(FilesError::ForeignHardLink(path.to_owned()))
        }
        _ => give_pinned(&file, owner).at(path),
    }
}

/// Holds on to an entry without opening it.
#[cfg(target_os = "linux")]
fn pin(found: &VisitedEntry<'_>) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(found.dir, found.name, flags, Mode::empty())
}

#[cfg(target_os = "linux")]
fn give_pinned(file: &OwnedFd, owner: FileOwner) -> rustix::io::Result<()> {
    let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
    rustix::fs::chownat(file, c"", Some(uid), Some(gid), rustix::fs::AtFlags::EMPTY_PATH)
}

#[cfg(not(target_os = "linux"))]
fn pin(found: &VisitedEntry<'_>) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::openat(found.dir, found.name, flags, Mode::empty())
}

#[cfg(not(target_os = "linux"))]
fn give_pinned(file: &OwnedFd, owner: FileOwner) -> rustix::io::Result<()> {
    let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
    rustix::fs::fchown(file, Some(uid), Some(gid))
}

fn is_of(stat: &Stat, owner: FileOwner) -> bool {
    (stat.st_uid, stat.st_gid) == (owner.uid, owner.gid)
}

/// Gives something that was just made to its owner.
pub(crate) fn change_owner(
    handle: BorrowedFd<'_>,
    owner: Option<FileOwner>,
    path: &Path,
) -> Result<(), FilesError> {
    let Some(owner) = owner else { return Ok(()) };
    let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
    rustix::fs::fchown(handle, Some(uid), Some(gid)).at(path)
}
