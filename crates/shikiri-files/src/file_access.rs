//! Access to the files of an untrusted folder.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::error::{AtPath as _, FilesError};
use crate::file_owner;
use crate::untrusted_dir::UntrustedDir;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    File,
    Folder,
    /// A link, a pipe, a socket or a device.
    Other,
}

/// The status of an entry. Links are not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryStat {
    pub kind: EntryKind,
    pub size: u64,
    /// Bytes on disk: less than its size if the file is sparse.
    pub disk_bytes: u64,
    /// Since the epoch; 0 for what is older.
    pub modified_ms: i64,
}

impl UntrustedDir {
    pub fn stat(&self, path: impl AsRef<Path>) -> Result<EntryStat, FilesError> {
        let path = path.as_ref();
        let (dir, name) = self.parent_of(path)?;
        let stat = rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW).at(path)?;
        Ok(EntryStat::of(&stat))
    }

    /// Opens a regular file for reading. It may grow meanwhile, so the caller must limit its reads.
    pub fn open_file(&self, path: impl AsRef<Path>) -> Result<(File, EntryStat), FilesError> {
        let path = path.as_ref();
        let (dir, name) = self.parent_of(path)?;
        // Checked before and after: opening a device may have effects, and the entry may be replaced.
        let seen = rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW).at(path)?;
        check_regular(&seen, path)?;
        // Opening a pipe without a writer would block.
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let opened = match rustix::fs::openat(&dir, name, flags, Mode::empty()) {
            Err(Errno::LOOP | Errno::MLINK) => return Err(FilesError::Link(path.to_owned())),
            opened => opened.at(path)?,
        };
        let stat = rustix::fs::fstat(&opened).at(path)?;
        check_regular(&stat, path)?;
        if stat.st_nlink > 1 && stat.st_uid != rustix::fs::fstat(self).at(path)?.st_uid {
            return Err(FilesError::ForeignHardLink(path.to_owned()));
        }
        Ok((File::from(opened), EntryStat::of(&stat)))
    }

    /// Reads a whole file of at most `max_bytes`.
    pub fn read(&self, path: impl AsRef<Path>, max_bytes: u64) -> Result<Vec<u8>, FilesError> {
        let path = path.as_ref();
        let too_large = || FilesError::TooLarge { path: path.to_owned(), max_bytes };
        let (file, stat) = self.open_file(path)?;
        if stat.size > max_bytes {
            return Err(too_large());
        }
        let mut bytes = Vec::new();
        file.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes).at(path)?;
        if bytes.len() as u64 > max_bytes { Err(too_large()) } else { Ok(bytes) }
    }

    /// Writes a file, replacing an entry of this name without writing through it. A folder is an error.
    pub fn write(&self, path: impl AsRef<Path>, bytes: &[u8]) -> Result<(), FilesError> {
        let path = path.as_ref();
        let (dir, name) = self.parent_of(path)?;
        let draft = format!(".{}.tmp", uuid::Uuid::now_v7());
        let written = dir.create_file(&draft).and_then(|mut file| {
            file.write_all(bytes).at(path)?;
            rustix::fs::renameat(&dir, &draft, &dir, name).at(path)
        });
        if written.is_err() {
            let _ = rustix::fs::unlinkat(&dir, &draft, AtFlags::empty());
        }
        written
    }

    /// Creates a new file for writing. An existing entry is an error.
    pub fn create_file(&self, path: impl AsRef<Path>) -> Result<File, FilesError> {
        let path = path.as_ref();
        let (dir, name) = self.parent_of(path)?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&dir, name, flags, Mode::RUSR | Mode::WUSR).at(path)?;
        file_owner::change_owner(file.as_fd(), self.owner(), path)?;
        Ok(File::from(file))
    }

    /// Moves a file of another folder here atomically, replacing a file or link of this name.
    pub fn take_file(
        &self,
        path: impl AsRef<Path>,
        from: &UntrustedDir,
        name: &str,
    ) -> Result<(), FilesError> {
        let path = path.as_ref();
        let (folder, to) = (path.parent().unwrap_or(Path::new("")), path.file_name());
        let to = to.ok_or_else(|| FilesError::InvalidPath(path.to_owned()))?;
        let dir = self.create_dir(folder)?;
        let (source, name) = from.parent_of(Path::new(name))?;
        rustix::fs::renameat(&source, name, &dir, to).at(path)
    }

    /// Removes an entry other than a folder. Of a link, removes the link.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<(), FilesError> {
        let path = path.as_ref();
        let (dir, name) = self.parent_of(path)?;
        if is_folder(dir.as_fd(), name).at(path)? {
            return Err(FilesError::NotRegular(path.to_owned()));
        }
        rustix::fs::unlinkat(&dir, name, AtFlags::empty()).at(path)
    }

    /// Removes an empty folder.
    pub fn remove_empty_dir(&self, path: impl AsRef<Path>) -> Result<(), FilesError> {
        let path = path.as_ref();
        let (dir, name) = self.parent_of(path)?;
        rustix::fs::unlinkat(&dir, name, AtFlags::REMOVEDIR).at(path)
    }
}

impl EntryStat {
    pub(crate) fn of(stat: &Stat) -> Self {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => EntryKind::File,
            FileType::Directory => EntryKind::Folder,
            _ => EntryKind::Other,
        };
        let nanoseconds = i64::try_from(stat.st_mtime_nsec).unwrap_or(0);
        let milliseconds =
            stat.st_mtime.saturating_mul(1_000).saturating_add(nanoseconds / 1_000_000);
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        // Blocks are counted in units of 512 bytes, whatever the file system uses.
        let disk_bytes = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512);
        Self { kind, size, disk_bytes, modified_ms: milliseconds.max(0) }
    }
}

pub(crate) fn is_folder(dir: BorrowedFd<'_>, name: &OsStr) -> Result<bool, Errno> {
    let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

fn check_regular(stat: &Stat, path: &Path) -> Result<(), FilesError> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(()),
        FileType::Symlink => Err(FilesError::Link(path.to_owned())),
        _ => Err(FilesError::NotRegular(path.to_owned())),
    }
}
