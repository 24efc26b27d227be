//! A file on its way in: written beside all workspaces, then moved to its place in one step. Who
//! reads meanwhile gets the old version or the new one, whole; what breaks off leaves nothing.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use rustix::fs::{FlockOperation, flock};
use shikiri_model::ids::ConversationId;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::OwnedSemaphorePermit;

use super::folder::{FileRecord, Folder, MAX_FILES, record};
use super::path::FilePath;
use super::{MAX_FILE, Workspaces, blocking, failed};
use crate::app::random;
use crate::error::AppError;

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
        permit: OwnedSemaphorePermit,
    ) -> Result<Self, AppError> {
        let root = to.root.clone();
        let name = format!("{:032x}", u128::from_le_bytes(random()?));
        let made = blocking(move || Scratch::make(&root, name)).await?;
        let (scratch, file) = made.map_err(|error| failed(&error, &to.path))?;
        let file = tokio::fs::File::from_std(file);
        Ok(Self { file, written: 0, scratch, to, _permit: permit })
    }

    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), AppError> {
        self.written += bytes.len() as u64;
        if self.written > MAX_FILE {
            return Err(too_large());
        }
        self.file.write_all(bytes).await.map_err(|error| failed(&error, &self.to.path))
    }

    /// Puts the file in its place.
    pub async fn finish(mut self) -> Result<Placed, AppError> {
        let told = |error: io::Error| failed(&error, &self.to.path);
        self.file.flush().await.map_err(told)?;
        self.file.sync_data().await.map_err(told)?;
        blocking(move || self.to.take(&self.scratch, self.written)).await?
    }
}

pub(super) fn too_large() -> AppError {
    AppError::TooLarge("a file may have at most 100 MiB: send less".to_owned())
}

impl Destination {
    fn take(&self, scratch: &Scratch, size: u64) -> Result<Placed, AppError> {
        let told = |error: io::Error| failed(&error, &self.path);
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
        let metadata = scratch.folder.metadata(&scratch.name).map_err(told)?;
        folder.place(&self.path, &scratch.folder, &scratch.name).map_err(told)?;
        let file = record(self.path.to_string(), &metadata);
        Ok(Placed { file, is_new: replaced.is_none() })
    }
}

/// A file with a name that nobody else has, removed when dropped if it is still there.
struct Scratch {
    folder: Dir,
    name: String,
}

impl Scratch {
    fn make(root: &Path, name: String) -> io::Result<(Self, File)> {
        let folder = root.join(SCRATCH);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        sweep(&folder)?;
        let file = loop {
            let file = create(&folder.join(&name))?;
            flock(&file, FlockOperation::LockExclusive)?;
            // A sweep of another upload may have come between making and locking.
            if file.metadata()?.nlink() > 0 {
                break file;
            }
        };
        let folder = Dir::open_ambient_dir(folder, ambient_authority())?;
        Ok((Self { folder, name }, file))
    }
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Removes what killed processes left: whoever still writes a file holds its lock.
fn sweep(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let Ok(file) = File::open(&path) else { continue };
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = fs::remove_file(&path);
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
