//! Removes whole folders of any depth and content.
//!
//! A folder is first renamed into the trash, which no path of an agent reaches. There it is removed
//! without recursion: files are unlinked, and folders that are not empty are renamed to the top and
//! removed in turn. So a deep tree needs neither stack nor descriptors, and no path grows long. `empty`
//! removes leftovers of killed processes.

use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, Mode, mkdirat, renameat, unlinkat};
use rustix::io::Errno;

use crate::dir_walk::is_dots;
use crate::error::{AtPath as _, FilesError};
use crate::untrusted_dir::{UntrustedDir, make_accessible, open_folder, open_trusted, split};

/// No conversation's id begins with a dot.
const NAME: &str = ".trash";
/// How often a folder is listed again because entries were passed over or added.
const MAX_PASSES: usize = 64;

/// A trusted folder in the file system of the removed ones. Processes may share it.
#[derive(Debug)]
pub struct Trash(UntrustedDir);

/// Removes a folder whose parent is ours, with all that is in it, by way of the trash beside it. What
/// is not there is removed already; a link in its place is removed, not followed.
pub fn remove_tree(path: &Path) -> Result<(), FilesError> {
    let (parent, name) = split(path)?;
    let dir = match open_trusted(parent, path) {
        Err(error) if error.is_not_found() => return Ok(()),
        dir => dir?,
    };
    match rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(()),
        _ => Trash::beside(path)?.discard(dir.as_fd(), name, path),
    }
}

impl Trash {
    /// The one that a folder shares with its neighbours, whose parent is ours.
    pub fn beside(folder: &Path) -> Result<Self, FilesError> {
        let (parent, _) = split(folder)?;
        Self::create(&parent.join(NAME))
    }

    /// The one in this folder of ours, if anything was ever removed there.
    pub fn find(folder: &Path) -> Result<Option<Self>, FilesError> {
        match UntrustedDir::open(&folder.join(NAME)) {
            Err(error) if error.is_not_found() => Ok(None),
            found => found.map(|found| Some(Self(found))),
        }
    }

    /// Made if it is not there.
    pub fn create(path: &Path) -> Result<Self, FilesError> {
        UntrustedDir::create(path).map(Self)
    }

    /// Removes what stands at `path` below `from`: a file, a link and not what it leads to, or
    /// a folder with all that is in it. What is not there is removed already.
    ///
    /// It is removed once it is out of its place: what then cannot be deleted stays in the trash, and
    /// `empty` tells why.
    pub fn remove(&self, from: &UntrustedDir, path: impl AsRef<Path>) -> Result<(), FilesError> {
        let path = path.as_ref();
        match from.parent_of(path) {
            Ok((dir, name)) => self.discard(dir.as_fd(), name, path),
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Removes what processes have left that were killed. What another one is at work on is left
    /// to it.
    pub fn empty(&self) -> Result<(), FilesError> {
        let mut done = Ok(());
        for entry in self.0.entries(usize::MAX)? {
            let path = Path::new(&entry.name);
            if let Ok(old) = open_folder(self.0.as_fd(), &entry.name, path)
                && File::from(old).try_lock().is_err()
            {
                continue;
            }
            let emptied = self
                .set_aside(self.0.as_fd(), &entry.name, path)
                .and_then(|job| job.map_or(Ok(()), |job| self.delete(job, path)));
            done = done.and(emptied);
        }
        done
    }

    fn discard(&self, dir: BorrowedFd<'_>, name: &OsStr, path: &Path) -> Result<(), FilesError> {
        if let Some(job) = self.set_aside(dir, name, path)? {
            let _ = self.delete(job, path);
        }
        Ok(())
    }

    /// Takes an entry from its place. What then is left to be deleted lies in a job's folder.
    fn set_aside(
        &self,
        dir: BorrowedFd<'_>,
        name: &OsStr,
        path: &Path,
    ) -> Result<Option<TrashJob>, FilesError> {
        match unlink(dir, name) {
            Ok(()) | Err(Errno::NOENT) => return Ok(None),
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(errno) => return Err(FilesError::io(path, errno)),
        }
        let job = self.start_job(path)?;
        match move_folder(dir, name, job.folder.as_fd(), 0) {
            Ok(()) => Ok(Some(job)),
            Err(errno) => {
                let _ = unlinkat(&self.0, &job.name, AtFlags::REMOVEDIR);
                // Another process has removed it.
                if errno == Errno::NOENT { Ok(None) } else { Err(FilesError::io(path, errno)) }
            }
        }
    }

    fn delete(&self, job: TrashJob, path: &Path) -> Result<(), FilesError> {
        clear(&job.folder, path)?;
        unlinkat(&self.0, &job.name, AtFlags::REMOVEDIR).at(path)
    }

    /// A new folder in the trash, locked: `empty` of another process leaves it alone.
    fn start_job(&self, path: &Path) -> Result<TrashJob, FilesError> {
        loop {
            let name = uuid::Uuid::now_v7().to_string();
            mkdirat(&self.0, &name, Mode::RWXU).at(path)?;
            let folder = match open_folder(self.0.as_fd(), OsStr::new(&name), path) {
                // Another process has emptied the trash before this was locked.
                Err(error) if error.is_not_found() => continue,
                folder => File::from(folder?),
            };
            folder.lock().at(path)?;
            if rustix::fs::fstat(&folder).at(path)?.st_nlink > 0 {
                return Ok(TrashJob { name, folder });
            }
        }
    }
}

/// A folder in the trash in which one tree is taken apart. It is locked as long as this is there.
struct TrashJob {
    name: String,
    folder: File,
}

/// Takes apart the folder `0` of a job. What it holds of folders is numbered and follows. What
/// cannot be removed does not keep the rest.
fn clear(job: &File, path: &Path) -> Result<(), FilesError> {
    let (mut next, mut last, mut done) = (0, 0, Ok(()));
    while next <= last {
        let name = next.to_string();
        make_accessible(job.as_fd(), OsStr::new(&name));
        let cleared = match open_folder(job.as_fd(), OsStr::new(&name), path) {
            Ok(folder) => clear_folder(job.as_fd(), &folder, &name, &mut last).at(path),
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
        };
        done = done.and(cleared);
        next += 1;
    }
    done
}

fn clear_folder(
    job: BorrowedFd<'_>,
    folder: &OwnedFd,
    name: &str,
    last: &mut u64,
) -> Result<(), Errno> {
    for _ in 0..MAX_PASSES {
        let mut fault = None;
        for entry in Dir::read_from(folder)? {
            let entry = entry?;
            if is_dots(entry.file_name()) {
                continue;
            }
            // The other entries are still removed.
            if let Err(errno) = clear_entry(job, folder.as_fd(), entry.file_name(), last) {
                fault = Some(errno);
            }
        }
        match unlinkat(job, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            // Entries may be passed over in a listing while others go.
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        if let Some(errno) = fault {
            return Err(errno);
        }
    }
    Err(Errno::NOTEMPTY)
}

fn clear_entry(
    job: BorrowedFd<'_>,
    folder: BorrowedFd<'_>,
    name: &CStr,
    last: &mut u64,
) -> Result<(), Errno> {
    let name = OsStr::from_bytes(name.to_bytes());
    match unlink(folder, name) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(Errno::NOTEMPTY | Errno::EXIST) => {
            move_folder(folder, name, job, *last + 1)?;
            *last += 1;
            Ok(())
        }
        Err(errno) => Err(errno),
    }
}

/// Removes a file, a link or an empty folder; `NOTEMPTY` or `EXIST` for any other folder.
fn unlink(dir: BorrowedFd<'_>, name: &OsStr) -> Result<(), Errno> {
    match unlinkat(dir, name, AtFlags::empty()) {
        // Systems differ in what they say of a folder.
        Err(Errno::ISDIR | Errno::PERM) => match unlinkat(dir, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTDIR) => Err(Errno::PERM),
            done => done,
        },
        done => done,
    }
}

fn move_folder(
    dir: BorrowedFd<'_>,
    name: &OsStr,
    job: BorrowedFd<'_>,
    number: u64,
) -> Result<(), Errno> {
    let to = number.to_string();
    match renameat(dir, name, job, &to) {
        // A folder with a new parent is written to.
        Err(Errno::ACCESS) => {
            make_accessible(dir, name);
            renameat(dir, name, job, &to)
        }
        done => done,
    }
}
