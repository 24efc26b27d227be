//! One workspace on the disk, through a handle that nothing leads out of.
//!
//! An agent works in this folder and may put links, pipes and anything else into it while we look:
//! every step goes through `UntrustedDir`.

use std::fs::File;
use std::path::Path;

use shikiri_files::{EntryKind, EntryStat, FilesError, UntrustedDir};
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

pub(super) struct Folder(UntrustedDir);

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
    pub(super) fn make(root: &Path, conversation: &ConversationId) -> Result<Self, FilesError> {
        UntrustedDir::create(&root.join(conversation.as_str())).map(Self)
    }

    /// Not found if nothing was ever put there.
    pub(super) fn open(root: &Path, conversation: &ConversationId) -> Result<Self, FilesError> {
        UntrustedDir::open(&root.join(conversation.as_str())).map(Self)
    }

    /// A regular file, for reading. What else has the name (a pipe, a device, a folder) is not one.
    pub(super) fn read(&self, path: &FilePath) -> Result<(File, FileRecord), FilesError> {
        let (file, stat) = self.0.open_file(path.as_str())?;
        Ok((file, record(path.as_str().to_owned(), &stat)))
    }

    /// Size of the file that stands where `path` leads; None without one.
    pub(super) fn size(&self, path: &FilePath) -> Option<u64> {
        let stat = self.0.stat(path.as_str()).ok()?;
        (stat.kind == EntryKind::File).then_some(stat.size)
    }

    /// Moves a finished file to its place in one step, over whatever file or link is there.
    pub(super) fn place(
        &self,
        path: &FilePath,
        from: &UntrustedDir,
        name: &str,
    ) -> Result<(), FilesError> {
        self.0.take_file(path.as_str(), from, name)
    }

    /// Removes a file, or a link and not what it leads to, and the folders that this empties.
    pub(super) fn remove(&self, path: &FilePath) -> Result<(), FilesError> {
        self.0.remove_file(path.as_str())?;
        for folder in path.folders().rev() {
            if self.0.remove_empty_dir(folder).is_err() {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn survey(&self) -> Survey {
        let mut survey = Survey::default();
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

impl Survey {
    fn add(&mut self, path: Option<&str>, stat: &EntryStat) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(stat.size);
        // What has no valid name cannot be asked for: it only counts.
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
