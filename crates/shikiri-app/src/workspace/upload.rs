//! A file on its way in: written beside all workspaces, then moved to its place in one step. Who
//! reads meanwhile gets the old version or the new one, whole; what breaks off leaves nothing.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shikiri_files::{FilesError, UntrustedDir};
use shikiri_model::ids::ConversationId;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::OwnedSemaphorePermit;

use super::folder::{FileRecord, Folder, MAX_FILES, record};
use super::path::FilePath;
use super::{MAX_FILE, Workspaces, blocking, failed, failed_io};
use crate::app::random;
use crate::error::AppError;
use crate::storage::StorageReservation;

/// Of scratch files that are looked at, to remove what was left.
const MAX_SWEPT: usize = 1_000;
/// No conversation's id begins with a dot.
const SCRATCH: &str = ".uploads";

/// Where a file goes.
pub(super) struct Destination {
    pub(super) root: PathBuf,
    pub(super) conversation: ConversationId,
    pub(super) path: FilePath,
    pub(super) max_workspace: u64,
    pub(super) workspaces: Arc<Workspaces>,
}

/// Dropped before its end, it leaves nothing.
pub struct Upload {
    file: tokio::fs::File,
    written: u64,
    scratch: Scratch,
    to: Destination,
    reservation: StorageReservation,
    _permit: OwnedSemaphorePermit,
}

/// What became of an upload.
#[derive(Debug)]
pub struct Placed {
    pub file: FileRecord,
    /// There was no file of this name.
    pub is_new: bool,
}

impl Upload {
    pub(super) async fn start(
        to: Destination,
        reservation: StorageReservation,
        permit: OwnedSemaphorePermit,
    ) -> Result<Self, AppError> {
        let root = to.root.clone();
        let name = format!("{:032x}", u128::from_le_bytes(random()?));
        let made = blocking(move || Scratch::make(&root, name)).await?;
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

    /// Puts the file in its place.
    pub async fn finish(mut self) -> Result<Placed, AppError> {
        let told = |error: io::Error| failed_io(&error, &self.to.path);
        self.file.flush().await.map_err(told)?;
        self.file.sync_data().await.map_err(told)?;
        blocking(move || self.to.take(&self.scratch, self.written, &self.reservation)).await?
    }
}

pub(super) fn too_large() -> AppError {
    AppError::TooLarge("a file may have at most 100 MiB: send less".to_owned())
}

impl Destination {
    fn take(
        &self,
        scratch: &Scratch,
        size: u64,
        reservation: &StorageReservation,
    ) -> Result<Placed, AppError> {
        let told = |error: FilesError| failed(&error, &self.path);
        // Two files at once must not both get the last place.
        let _turn = self.workspaces.turn(&self.conversation);
        let folder = Folder::make(&self.root, &self.conversation).map_err(told)?;
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
        let stat = scratch.folder.stat(&scratch.name).map_err(told)?;
        folder.place(&self.path, &scratch.folder, &scratch.name).map_err(told)?;
        reservation.keep(&self.conversation, replaced.unwrap_or(0));
        let file = record(self.path.to_string(), &stat);
        Ok(Placed { file, is_new: replaced.is_none() })
    }
}

/// A file with a name that nobody else has, removed when dropped if it is still there.
struct Scratch {
    folder: UntrustedDir,
    name: String,
}

impl Scratch {
    fn make(root: &Path, name: String) -> Result<(Self, File), FilesError> {
        let folder = UntrustedDir::create(&root.join(SCRATCH))?;
        sweep(&folder)?;
        let file = loop {
            let file = folder.create_file(&name)?;
            // A sweep of another upload may have come between making and locking.
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

/// Removes what killed processes left: whoever still writes a file holds its lock.
fn sweep(folder: &UntrustedDir) -> Result<(), FilesError> {
    for entry in folder.entries(MAX_SWEPT)? {
        let Ok((file, _)) = folder.open_file(&entry.name) else { continue };
        if file.try_lock().is_ok() {
            let _ = folder.remove_file(&entry.name);
        }
    }
    Ok(())
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Gone if it has been put in its place.
        let _ = self.folder.remove_file(&self.name);
    }
}
