//! One workspace on the disk, through a handle that nothing leads out of.
//!
//! An agent works in this folder and may put links, pipes and anything else into it while we look.
//! So no path is checked first and used afterwards: every step goes through the handle (cap-std),
//! which refuses what leaves the folder at the moment of use.

use std::fs::File;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::time::UNIX_EPOCH;

use cap_std::fs::{Dir, DirBuilder, Metadata, OpenOptions, OpenOptionsExt as _};
use rustix::fs::{Mode, OFlags};
use shikiri_model::ids::ConversationId;
use shikiri_model::time::Timestamp;

use super::path::FilePath;

/// Files that a list shows, and that a workspace may hold for more to be put in.
pub(super) const MAX_FILES: usize = 10_000;
/// Entries of any kind that a survey looks at: an agent may have made millions.
const MAX_VISITED: usize = 100_000;

/// A file as a list shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRecord {
    pub path: String,
    pub size: u64,
    pub modified_at: Timestamp,
}

pub(super) struct Folder(Dir);

/// What a workspace holds.
#[derive(Default)]
pub(super) struct Survey {
    /// Sorted by path; at most `MAX_FILES` of those that have a valid path.
    pub(super) files: Vec<FileRecord>,
    pub(super) count: usize,
    pub(super) bytes: u64,
}

impl Folder {
    /// The folder of this conversation below `root`, made if it is not there.
    pub(super) fn make(root: &Path, conversation: &ConversationId) -> io::Result<Self> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(root)?;
        match rustix::fs::mkdirat(File::open(root)?, conversation.as_str(), Mode::RWXU) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => Self::open(root, conversation),
            Err(error) => Err(error.into()),
        }
    }

    /// `NotFound` if nothing was ever put there.
    pub(super) fn open(root: &Path, conversation: &ConversationId) -> io::Result<Self> {
        // A link in its place could lead to another conversation's folder.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = File::open(root)?;
        let opened = rustix::fs::openat(folder, conversation.as_str(), flags, Mode::empty())?;
        Ok(Self(Dir::from_std_file(opened.into())))
    }

    /// Removes the folder of this conversation and what is in it; links are removed, not followed.
    pub(super) fn remove_all(root: &Path, conversation: &ConversationId) -> io::Result<()> {
        let root = Dir::from_std_file(File::open(root)?);
        root.remove_dir_all(conversation.as_str())
    }

    /// A regular file, for reading. What else has the name (a pipe, a device, a folder) is not one.
    pub(super) fn read(&self, path: &FilePath) -> io::Result<(File, FileRecord)> {
        let not_a_file = || io::Error::from(io::ErrorKind::NotFound);
        // Twice: opening a device may do something, and what is opened may have been exchanged.
        if !self.0.metadata(path.as_str())?.is_file() {
            return Err(not_a_file());
        }
        let mut options = OpenOptions::new();
        // A pipe without a writer would make us wait for ever.
        options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
        let file = self.0.open_with(path.as_str(), &options)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(not_a_file());
        }
        Ok((file.into_std(), record(path.as_str().to_owned(), &metadata)))
    }

    /// Size of the file that stands where `path` leads; None without one. Links are not followed.
    pub(super) fn size(&self, path: &FilePath) -> Option<u64> {
        let metadata = self.0.symlink_metadata(path.as_str()).ok()?;
        metadata.is_file().then(|| metadata.len())
    }

    /// Moves a finished file to its place in one step, over whatever file or link is there.
    pub(super) fn place(&self, path: &FilePath, from: &Dir, name: &str) -> io::Result<()> {
        let mut private = DirBuilder::new();
        cap_std::fs::DirBuilderExt::mode(&mut private, 0o700);
        for folder in path.folders() {
            match self.0.create_dir_with(folder, &private) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        match path.folders().next_back() {
            Some(parent) => from.rename(name, &self.0.open_dir(parent)?, path.name()),
            None => from.rename(name, &self.0, path.name()),
        }
    }

    /// Removes a file, or a link and not what it leads to, and the folders that this empties.
    pub(super) fn remove(&self, path: &FilePath) -> io::Result<()> {
        if self.0.symlink_metadata(path.as_str())?.is_dir() {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.0.remove_file(path.as_str())?;
        for folder in path.folders().rev() {
            if self.0.remove_dir(folder).is_err() {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn survey(&self) -> Survey {
        let mut survey = Survey::default();
        let mut visited = 0;
        let mut folders = vec![String::new()];
        while let Some(folder) = folders.pop() {
            // A folder that went away meanwhile holds nothing.
            let Ok(entries) = self.entries(&folder) else { continue };
            for entry in entries {
                visited += 1;
                if visited > MAX_VISITED {
                    survey.count = survey.count.max(MAX_FILES);
                    folders.clear();
                    break;
                }
                let Ok(entry) = entry else { continue };
                let Ok(metadata) = entry.metadata() else { continue };
                let path = entry.file_name().into_string().ok().map(|name| match folder.as_str() {
                    "" => name,
                    folder => format!("{folder}/{name}"),
                });
                if metadata.is_dir() {
                    folders.extend(path);
                } else if metadata.is_file() {
                    survey.add(path, &metadata);
                }
            }
        }
        survey.files.sort_by(|a, b| a.path.cmp(&b.path));
        survey
    }

    fn entries(&self, folder: &str) -> io::Result<cap_std::fs::ReadDir> {
        if folder.is_empty() { self.0.entries() } else { self.0.read_dir(folder) }
    }
}

impl Survey {
    fn add(&mut self, path: Option<String>, metadata: &Metadata) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(metadata.len());
        // What has no valid name cannot be asked for: it only counts.
        let path = path.filter(|path| FilePath::parse(path).is_ok());
        if self.files.len() < MAX_FILES {
            self.files.extend(path.map(|path| record(path, metadata)));
        }
    }
}

pub(super) fn record(path: String, metadata: &Metadata) -> FileRecord {
    let modified = metadata.modified().ok().map(cap_std::time::SystemTime::into_std);
    let since_epoch = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let millis = since_epoch.map_or(0, |time| time.as_millis());
    let modified_at = Timestamp::from_millis(i64::try_from(millis).unwrap_or(i64::MAX));
    FileRecord { path, size: metadata.len(), modified_at }
}
