//! A folder that an engine can write, as a handle.

use std::ffi::OsStr;
use std::fs::DirBuilder;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Component, Path};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::error::{AtPath as _, FilesError};
use crate::file_owner::{self, FileOwner};

const FOLDER: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A handle of a folder. Paths are relative to it and hold only names: no `..`, no root.
#[derive(Debug)]
pub struct UntrustedDir {
    handle: OwnedFd,
    owner: Option<FileOwner>,
}

impl UntrustedDir {
    /// The folder at `path`, whose parent is ours: links on the way there are the operator's. One in
    /// its own place is refused.
    pub fn open(path: &Path) -> Result<Self, FilesError> {
        let (parent, name) = split(path)?;
        let parent = open_trusted(parent, path)?;
        Ok(Self { handle: open_folder(parent.as_fd(), name, path)?, owner: None })
    }

    /// As `open`; what is missing is made, for this user alone.
    pub fn create(path: &Path) -> Result<Self, FilesError> {
        let (parent, name) = split(path)?;
        DirBuilder::new().recursive(true).mode(0o700).create(parent).at(path)?;
        let parent = open_trusted(parent, path)?;
        make_folder(parent.as_fd(), name, path)?;
        Ok(Self { handle: open_folder(parent.as_fd(), name, path)?, owner: None })
    }

    /// From now on, files and folders that are made here, or below by way of this, belong to `owner`.
    #[must_use]
    pub fn with_owner(self, owner: Option<FileOwner>) -> Self {
        Self { owner, ..self }
    }

    /// A folder below this one.
    pub fn open_dir(&self, path: impl AsRef<Path>) -> Result<Self, FilesError> {
        self.descend(path.as_ref(), |_, _| Ok(false))
    }

    /// As `open_dir`; folders that are missing are made.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<Self, FilesError> {
        let path = path.as_ref();
        self.descend(path, |dir, name| make_folder(dir, name, path))
    }

    /// As `create_dir`; what is no folder and stands in the way is removed.
    pub fn replace_dir(&self, path: impl AsRef<Path>) -> Result<Self, FilesError> {
        let path = path.as_ref();
        self.descend(path, |dir, name| {
            match open_folder(dir, name, path) {
                Err(error) if error.is_not_folder() => {
                    rustix::fs::unlinkat(dir, name, AtFlags::empty()).at(path)?;
                }
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
            make_folder(dir, name, path)
        })
    }

    /// Opens folder after folder. `prepare` is called before each, and tells whether it has made it.
    fn descend(
        &self,
        path: &Path,
        prepare: impl Fn(BorrowedFd<'_>, &OsStr) -> Result<bool, FilesError>,
    ) -> Result<Self, FilesError> {
        let mut dir = self.try_clone(path)?;
        for name in names(path)? {
            let is_new = prepare(dir.as_fd(), name)?;
            dir.handle = open_folder(dir.as_fd(), name, path)?;
            if is_new {
                file_owner::change_owner(dir.as_fd(), self.owner, path)?;
            }
        }
        Ok(dir)
    }

    /// The folder in which the last part of `path` lies, and that part.
    pub(crate) fn parent_of<'a>(&self, path: &'a Path) -> Result<(Self, &'a OsStr), FilesError> {
        let invalid = || FilesError::InvalidPath(path.to_owned());
        let name = names(path)?.last().ok_or_else(invalid)?;
        Ok((self.open_dir(path.parent().unwrap_or(Path::new("")))?, name))
    }

    pub(crate) fn owner(&self) -> Option<FileOwner> {
        self.owner
    }

    fn try_clone(&self, path: &Path) -> Result<Self, FilesError> {
        Ok(Self { handle: self.handle.try_clone().at(path)?, owner: self.owner })
    }
}

impl AsFd for UntrustedDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

/// The parts of a path that stays where it begins.
pub(crate) fn names(path: &Path) -> Result<impl DoubleEndedIterator<Item = &OsStr>, FilesError> {
    let is_name = |part: Component<'_>| match part {
        Component::Normal(name) => !name.as_encoded_bytes().contains(&0),
        _ => false,
    };
    if !path.components().all(is_name) {
        return Err(FilesError::InvalidPath(path.to_owned()));
    }
    Ok(path.components().map(Component::as_os_str))
}

/// Opens a trusted folder and follows links, which the operator made. Errors name `path`.
pub(crate) fn open_trusted(folder: &Path, path: &Path) -> Result<OwnedFd, FilesError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(folder, flags, Mode::empty()).at(path)
}

pub(crate) fn split(path: &Path) -> Result<(&Path, &OsStr), FilesError> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(FilesError::InvalidPath(path.to_owned()));
    };
    Ok((if parent.as_os_str().is_empty() { Path::new(".") } else { parent }, name))
}

/// One step down, through no link. A folder that an agent has closed to this user is opened again.
/// `path` is what an error names.
pub(crate) fn open_folder(
    dir: BorrowedFd<'_>,
    name: &OsStr,
    path: &Path,
) -> Result<OwnedFd, FilesError> {
    let open = || rustix::fs::openat(dir, name, FOLDER, Mode::empty());
    let opened = match open() {
        Err(Errno::ACCESS) => {
            make_accessible(dir, name);
            open()
        }
        opened => opened,
    };
    match opened {
        Ok(handle) => Ok(handle),
        // Systems differ in what they call a link here.
        Err(Errno::NOTDIR | Errno::LOOP | Errno::MLINK) if is_link(dir, name) => {
            Err(FilesError::Link(path.to_owned()))
        }
        Err(Errno::LOOP | Errno::MLINK) => Err(FilesError::io(path, Errno::NOTDIR)),
        Err(errno) => Err(FilesError::io(path, errno)),
    }
}

fn is_link(dir: BorrowedFd<'_>, name: &OsStr) -> bool {
    let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
    stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
}

/// Whether it was made; false if something has the name already.
fn make_folder(dir: BorrowedFd<'_>, name: &OsStr, path: &Path) -> Result<bool, FilesError> {
    match rustix::fs::mkdirat(dir, name, Mode::RWXU) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(errno) => Err(FilesError::io(path, errno)),
    }
}

/// Makes a folder of this user accessible. If that fails, the next step reports the error.
#[cfg(target_os = "linux")]
pub(crate) fn make_accessible(dir: BorrowedFd<'_>, name: &OsStr) {
    use rustix::fs::OFlags;
    use std::os::fd::AsRawFd as _;

    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(folder) = rustix::fs::openat(dir, name, flags, Mode::empty()) else { return };
    let is_open = rustix::fs::fstat(&folder)
        .is_ok_and(|stat| Mode::from_raw_mode(stat.st_mode).contains(Mode::RWXU));
    if !is_open {
        // The one way to change what a handle of this kind is of: by name it could be a link.
        let _ = rustix::fs::chmod(format!("/proc/self/fd/{}", folder.as_raw_fd()), Mode::RWXU);
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn make_accessible(dir: BorrowedFd<'_>, name: &OsStr) {
    let _ = rustix::fs::chmodat(dir, name, Mode::RWXU, AtFlags::SYMLINK_NOFOLLOW);
}
