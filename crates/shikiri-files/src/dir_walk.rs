//! Lists an untrusted folder: one level, or all levels.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, Mode, OFlags, Stat};

use crate::error::{AtPath as _, FilesError};
use crate::file_access::{EntryKind, EntryStat};
use crate::untrusted_dir::{UntrustedDir, open_folder};

/// Levels of a walk that stay open. The walk returns to higher levels by `..`.
const OPEN_LEVELS: usize = 32;
/// Longer paths are not reported, because no function accepts them.
const MAX_PATH: usize = 4_096;

/// An entry of one folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    pub name: OsString,
    pub stat: EntryStat,
}

/// An entry that a walk has come to.
#[derive(Clone, Copy, Debug)]
pub struct WalkEntry<'a> {
    /// Below the folder in which the walk began; None if it is too long.
    pub path: Option<&'a Path>,
    pub stat: EntryStat,
}

/// How a walk went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalkSummary {
    pub entries: usize,
    /// Folders that may not be read.
    pub unreadable: usize,
    /// False if there were more entries than allowed, or the tree was changed under the walk.
    pub is_complete: bool,
}

/// Where an entry is: relative to an open folder.
pub(crate) struct VisitedEntry<'a> {
    pub(crate) dir: BorrowedFd<'a>,
    pub(crate) name: &'a CStr,
    pub(crate) stat: &'a Stat,
    pub(crate) path: Option<&'a Path>,
}

impl UntrustedDir {
    /// The first entries of this folder, in no order.
    pub fn entries(&self, max_entries: usize) -> Result<Vec<DirEntry>, FilesError> {
        let here = Path::new(".");
        let mut entries = Vec::new();
        for entry in Dir::read_from(self).at(here)? {
            let entry = entry.at(here)?;
            let name = entry.file_name();
            if is_dots(name) {
                continue;
            }
            if entries.len() >= max_entries {
                break;
            }
            // Entries that were removed meanwhile are skipped.
            let Ok(stat) = rustix::fs::statat(self, name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            let name = OsString::from_vec(name.to_bytes().to_vec());
            entries.push(DirEntry { name, stat: EntryStat::of(&stat) });
        }
        Ok(entries)
    }

    /// Goes through everything below this folder, up to so many entries of any kind.
    pub fn walk(&self, max_entries: usize, mut visit: impl FnMut(WalkEntry<'_>)) -> WalkSummary {
        self.walk_handles(max_entries, |found| {
            visit(WalkEntry { path: found.path, stat: EntryStat::of(found.stat) });
        })
    }

    pub(crate) fn walk_handles(
        &self,
        max_entries: usize,
        mut visit: impl FnMut(VisitedEntry<'_>),
    ) -> WalkSummary {
        let mut walk = DirWalk { max_entries, path: Vec::new(), summary: WalkSummary::default() };
        walk.summary.is_complete = walk.run(self, &mut visit).is_ok();
        walk.summary
    }
}

/// The walk ends before the tree does.
struct WalkIncomplete;

struct DirWalk {
    max_entries: usize,
    /// Of the folder that is looked at, as far as it is told.
    path: Vec<u8>,
    summary: WalkSummary,
}

/// A folder on the way down.
struct WalkLevel {
    /// None once the walk is far below.
    handle: Option<OwnedFd>,
    /// Which folder it is.
    stat: Stat,
    /// Folders in it that are still to be visited.
    folders: Vec<CString>,
    /// Of its path; None if that is too long.
    path_len: Option<usize>,
}

impl DirWalk {
    fn run(
        &mut self,
        root: &UntrustedDir,
        visit: &mut impl FnMut(VisitedEntry<'_>),
    ) -> Result<(), WalkIncomplete> {
        let handle = root.as_fd().try_clone_to_owned().map_err(|_| WalkIncomplete)?;
        let mut levels = vec![self.look_at(handle, Some(0), visit)?];
        while let Some(level) = levels.last_mut() {
            let Some(name) = level.folders.pop() else {
                self.go_up(&mut levels)?;
                continue;
            };
            let Some(handle) = &level.handle else { return Err(WalkIncomplete) };
            let name = OsStr::from_bytes(name.as_bytes());
            let child = match open_folder(handle.as_fd(), name, Path::new(name)) {
                Ok(child) => child,
                // An agent may have removed the folder meanwhile.
                Err(error) if error.is_not_found() => continue,
                Err(_) => {
                    self.summary.unreadable += 1;
                    continue;
                }
            };
            let path_len = level.path_len.and_then(|len| self.extend_path(len, name));
            let below = self.look_at(child, path_len, visit)?;
            levels.push(below);
            if let Some(far) = levels.len().checked_sub(OPEN_LEVELS + 1) {
                levels[far].handle = None;
            }
        }
        Ok(())
    }

    /// Visits all entries of a folder.
    fn look_at(
        &mut self,
        handle: OwnedFd,
        path_len: Option<usize>,
        visit: &mut impl FnMut(VisitedEntry<'_>),
    ) -> Result<WalkLevel, WalkIncomplete> {
        let own = rustix::fs::fstat(&handle).map_err(|_| WalkIncomplete)?;
        let mode = Mode::from_raw_mode(own.st_mode);
        if !mode.contains(Mode::XUSR) {
            // Without this permission only the names of its entries can be read.
            let _ = rustix::fs::fchmod(&handle, mode | Mode::RWXU);
        }
        let mut folders = Vec::new();
        match Dir::read_from(&handle) {
            Err(_) => self.summary.unreadable += 1,
            Ok(entries) => {
                for entry in entries.map_while(Result::ok) {
                    let name = entry.file_name();
                    if is_dots(name) {
                        continue;
                    }
                    if self.summary.entries >= self.max_entries {
                        return Err(WalkIncomplete);
                    }
                    self.summary.entries += 1;
                    let flags = AtFlags::SYMLINK_NOFOLLOW;
                    let Ok(stat) = rustix::fs::statat(&handle, name, flags) else { continue };
                    let file_name = OsStr::from_bytes(name.to_bytes());
                    let told = path_len.and_then(|len| self.extend_path(len, file_name));
                    let path = told.map(|len| Path::new(OsStr::from_bytes(&self.path[..len])));
                    visit(VisitedEntry { dir: handle.as_fd(), name, stat: &stat, path });
                    if EntryStat::of(&stat).kind == EntryKind::Folder {
                        folders.push(name.to_owned());
                    }
                }
            }
        }
        Ok(WalkLevel { handle: Some(handle), stat: own, folders, path_len })
    }

    /// Leaves the last level. One above whose handle was closed is found again by `..`, and must be
    /// the same folder.
    fn go_up(&mut self, levels: &mut Vec<WalkLevel>) -> Result<(), WalkIncomplete> {
        let (Some(left), Some(above)) = (levels.pop(), levels.last_mut()) else { return Ok(()) };
        if above.handle.is_none() {
            let from = left.handle.ok_or(WalkIncomplete)?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let found = rustix::fs::openat(&from, c"..", flags, Mode::empty());
            let found = found.map_err(|_| WalkIncomplete)?;
            if !rustix::fs::fstat(&found).is_ok_and(|stat| is_same(&stat, &above.stat)) {
                return Err(WalkIncomplete);
            }
            above.handle = Some(found);
        }
        Ok(())
    }

    /// Makes `path` the one of this name in the folder whose path has that length.
    fn extend_path(&mut self, len: usize, name: &OsStr) -> Option<usize> {
        self.path.truncate(len);
        if !self.path.is_empty() {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name.as_bytes());
        (self.path.len() <= MAX_PATH).then_some(self.path.len())
    }
}

fn is_same(one: &Stat, other: &Stat) -> bool {
    one.st_dev == other.st_dev && one.st_ino == other.st_ino
}

pub(crate) fn is_dots(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}
