//! One workspace on the disk, through a handle that does not lead out of it.
//!
//! An agent works in this folder and may create links, pipes and other files at any time, so every
//! access goes through `UntrustedDir`.

use std::fs::File;
use std::path::Path;

use shikiri_files::{EntryKind, EntryStat, FilesError, UntrustedDir};
use shikiri_model::ids::ConversationId;
use shikiri_model::time::Timestamp;

use super::file_path::FilePath;

/// The number of files that a list shows, and the limit above which uploads are refused.
pub(super) const MAX_FILES: usize = 10_000;
/// The number of entries that a survey looks at: an agent may have made millions.
const MAX_VISITED: usize = 100_000;

/// A file in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRecord {
    pub path: String,
    pub size: u64,
    pub modified_at: Timestamp,
}

pub(super) struct WorkspaceFolder(UntrustedDir);

/// The contents of a workspace.
#[derive(Default)]
pub(super) struct WorkspaceContents {
    /// Sorted by path; at most `MAX_FILES` of those that have a valid path.
    pub(super) files: Vec<FileRecord>,
    pub(super) count: usize,
    pub(super) bytes: u64,
}

impl WorkspaceFolder {
    /// The folder of this conversation below `root`. It is created if missing.
    pub(super) fn make(root: &Path, conversation: &ConversationId) -> Result<Self, FilesError> {
        UntrustedDir::create(&root.join(conversation.as_str())).map(Self)
    }

    /// Fails with "not found" if the folder was never created.
    pub(super) fn open(root: &Path, conversation: &ConversationId) -> Result<Self, FilesError> {
        UntrustedDir::open(&root.join(conversation.as_str())).map(Self)
    }

    /// Opens a regular file for reading. Pipes, devices and folders are refused.
    pub(super) fn read(&self, path: &FilePath) -> Result<(File, FileRecord), FilesError> {
        let (file, stat) = self.0.open_file(path.as_str())?;
        Ok((file, record(path.as_str().to_owned(), &stat)))
    }

    /// The size of the file at `path`; None without one.
    pub(super) fn size(&self, path: &FilePath) -> Option<u64> {
        let stat = self.0.stat(path.as_str()).ok()?;
        (stat.kind == EntryKind::File).then_some(stat.size)
    }

    /// Moves a finished file to `path` in one step, replacing a file or link there.
    pub(super) fn move_in(
        &self,
        path: &FilePath,
        from: &UntrustedDir,
        name: &str,
    ) -> Result<(), FilesError> {
        self.0.take_file(path.as_str(), from, name)
    }

    /// Removes a file, or a link without its target, and the folders that this empties.
    pub(super) fn remove(&self, path: &FilePath) -> Result<(), FilesError> {
        self.0.remove_file(path.as_str())?;
        for folder in path.folders().rev() {
            if self.0.remove_empty_dir(folder).is_err() {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn survey(&self) -> WorkspaceContents {
        let mut survey = WorkspaceContents::default();
        let walked = self.0.walk(MAX_VISITED, |entry| {
            if entry.stat.kind == EntryKind::File {
                survey.add(entry.path.and_then(Path::to_str), &entry.stat);
            }
        });
        if !walked.is_complete {
            survey.count = survey.count.max(MAX_FILES);
        }
        survey.files.sort_by(|a, b| a.path.cmp(&b.path));
        survey
    }
}

impl WorkspaceContents {
    fn add(&mut self, path: Option<&str>, stat: &EntryStat) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(stat.size);
        // A file without a valid path cannot be requested: it only counts.
        let path = path.filter(|path| FilePath::parse(path).is_ok());
        if self.files.len() < MAX_FILES {
            self.files.extend(path.map(|path| record(path.to_owned(), stat)));
        }
    }
}

pub(super) fn record(path: String, stat: &EntryStat) -> FileRecord {
    let modified_at = Timestamp::from_millis(stat.modified_ms);
    FileRecord { path, size: stat.size, modified_at }
}
