//! Uploads: a file is written beside all workspaces, then moved into its workspace in one step. A
//! reader gets either the whole old version or the whole new one. An aborted upload leaves nothing.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shikiri_files::{FilesError, UntrustedDir};
use shikiri_model::ids::ConversationId;
use shikiri_runtime::storage::StorageReservation;
use shikiri_runtime::{AppError, random};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::OwnedSemaphorePermit;

use super::file_path::FilePath;
use super::workspace_folder::{FileRecord, MAX_FILES, WorkspaceFolder, record};
use super::{MAX_FILE, SharedWorkspaceState, blocking, failed, failed_io};

/// The number of scratch files that one sweep looks at.
const MAX_SWEPT: usize = 1_000;
/// The folder for scratch files. No conversation's id begins with a dot.
const SCRATCH: &str = ".uploads";

/// The destination of an upload.
pub(super) struct UploadDestination {
    pub(super) root: PathBuf,
    pub(super) conversation: ConversationId,
    pub(super) path: FilePath,
    pub(super) max_workspace: u64,
    pub(super) workspaces: Arc<SharedWorkspaceState>,
}

/// An upload under way. Dropping it leaves nothing behind.
pub struct FileUpload {
    file: tokio::fs::File,
    written: u64,
    scratch: ScratchFile,
    to: UploadDestination,
    reservation: StorageReservation,
    _permit: OwnedSemaphorePermit,
}

/// The result of an upload.
#[derive(Debug)]
pub struct UploadedFile {
    pub file: FileRecord,
    /// Whether there was no file with this path before.
    pub is_new: bool,
}

impl FileUpload {
    pub(super) async fn start(
        to: UploadDestination,
        reservation: StorageReservation,
        permit: OwnedSemaphorePermit,
    ) -> Result<Self, AppError> {
        let root = to.root.clone();
        let name = format!("{:032x}", u128::from_le_bytes(random()?));
        let made = blocking(move || ScratchFile::make(&root, name)).await?;
        let (scratch, file) = made.map_err(|error| failed(&error, &to.path))?;
        let file = tokio::fs::File::from_std(file);
        Ok(Self { file, written: 0, scratch, to, reservation, _permit: permit })
    }

    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), AppError> {
        self.written += bytes.len() as u64;
        if self.written > MAX_FILE {
            return Err(too_large());
        }
        self.reservation.grow_to(self.written)?;
        self.file.write_all(bytes).await.map_err(|error| failed_io(&error, &self.to.path))
    }

    /// Moves the file into the workspace.
    pub async fn finish(mut self) -> Result<UploadedFile, AppError> {
        let to_app_error = |error: io::Error| failed_io(&error, &self.to.path);
        self.file.flush().await.map_err(to_app_error)?;
        self.file.sync_data().await.map_err(to_app_error)?;
        blocking(move || self.to.take(&self.scratch, self.written, &self.reservation)).await?
    }
}

pub(super) fn too_large() -> AppError {
    AppError::TooLarge("a file may have at most 100 MiB: send less".to_owned())
}

impl UploadDestination {
    fn take(
        &self,
        scratch: &ScratchFile,
        size: u64,
        reservation: &StorageReservation,
    ) -> Result<UploadedFile, AppError> {
        let to_app_error = |error: FilesError| failed(&error, &self.path);
        // Two uploads at once must not both pass the limits.
        let _lock = self.workspaces.lock_folder(&self.conversation);
        let folder = WorkspaceFolder::make(&self.root, &self.conversation).map_err(to_app_error)?;
        let replaced = folder.size(&self.path);
        let survey = folder.survey();
        let bytes = survey.bytes - replaced.unwrap_or(0).min(survey.bytes);
        if bytes.saturating_add(size) > self.max_workspace {
            let detail = "the workspace has no room for this: remove some of its files first";
            return Err(AppError::TooLarge(detail.to_owned()));
        }
        if replaced.is_none() && survey.count >= MAX_FILES {
            let detail = "the workspace holds 10,000 files: remove some of them first";
            return Err(AppError::TooLarge(detail.to_owned()));
        }
        let stat = scratch.folder.stat(&scratch.name).map_err(to_app_error)?;
        folder.move_in(&self.path, &scratch.folder, &scratch.name).map_err(to_app_error)?;
        reservation.keep(&self.conversation, replaced.unwrap_or(0));
        let file = record(self.path.to_string(), &stat);
        Ok(UploadedFile { file, is_new: replaced.is_none() })
    }
}

/// A temporary file with a unique name. Dropping it removes the file if it is still there.
struct ScratchFile {
    folder: UntrustedDir,
    name: String,
}

impl ScratchFile {
    fn make(root: &Path, name: String) -> Result<(Self, File), FilesError> {
        let folder = UntrustedDir::create(&root.join(SCRATCH))?;
        sweep(&folder)?;
        let file = loop {
            let file = folder.create_file(&name)?;
            // Another upload's sweep may have removed the file before it was locked.
            if is_locked_and_there(&file) {
                break file;
            }
        };
        Ok((Self { folder, name }, file))
    }
}

fn is_locked_and_there(file: &File) -> bool {
    file.lock().is_ok() && file.metadata().is_ok_and(|found| found.nlink() > 0)
}

/// Removes files that killed processes left. A file still being written is locked.
fn sweep(folder: &UntrustedDir) -> Result<(), FilesError> {
    for entry in folder.entries(MAX_SWEPT)? {
        let Ok((file, _)) = folder.open_file(&entry.name) else { continue };
        if file.try_lock().is_ok() {
            let _ = folder.remove_file(&entry.name);
        }
    }
    Ok(())
}

impl Drop for ScratchFile {
    fn drop(&mut self) {
        // The file is gone if it was moved into the workspace.
        let _ = self.folder.remove_file(&self.name);
    }
}
