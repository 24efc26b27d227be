//! Workspaces: one folder per conversation, in which its agent works and users upload and download
//! files. The files are kept even if the agent may not use them.

mod file_path;
mod file_upload;
mod workspace_folder;

use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use shikiri_files::{FilesError, remove_tree};
use shikiri_model::ids::{ConversationId, TenantId};
use tokio::sync::Semaphore;

pub use self::file_path::FilePath;
use self::file_upload::UploadDestination;
pub use self::file_upload::{FileUpload, UploadedFile};
pub use self::workspace_folder::FileRecord;
use self::workspace_folder::WorkspaceFolder;
use crate::Executions;
use shikiri_runtime::AppError;

/// The largest file that can be uploaded.
pub const MAX_FILE: u64 = 100 * 1024 * 1024;
/// Simultaneous uploads in this process: each may use `MAX_FILE` of the disk before it is counted.
const MAX_UPLOADS: usize = 64;
const RETRY_UPLOAD: Duration = Duration::from_secs(1);
/// The number of locks. Conversations may share one, since it is held for milliseconds.
const FOLDER_LOCKS: usize = 64;
/// The number of files that an agent's prompt lists.
const SHOWN_FILES: usize = 200;

/// State shared by the workspaces of one process.
pub(crate) struct SharedWorkspaceState {
    uploads: Arc<Semaphore>,
    folder_locks: [Mutex<()>; FOLDER_LOCKS],
}

impl Default for SharedWorkspaceState {
    fn default() -> Self {
        Self {
            uploads: Arc::new(Semaphore::new(MAX_UPLOADS)),
            folder_locks: [const { Mutex::new(()) }; FOLDER_LOCKS],
        }
    }
}

impl SharedWorkspaceState {
    fn lock_folder(&self, conversation: &ConversationId) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        conversation.hash(&mut hasher);
        let number = usize::try_from(hasher.finish() % FOLDER_LOCKS as u64).unwrap_or(0);
        self.folder_locks[number].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Executions {
    /// The working folder of this conversation's agent. It is created if missing, with access for
    /// its owner only.
    pub async fn workspace_folder(
        &self,
        conversation: &ConversationId,
    ) -> Result<PathBuf, AppError> {
        let (root, id) = (self.workspaces_root()?, conversation.clone());
        let folder = root.join(id.as_str());
        let made = blocking(move || WorkspaceFolder::make(&root, &id)).await?;
        made.map_err(|error| broken("the workspace cannot be made", &error))?;
        Ok(folder)
    }

    /// The first 10,000 files, sorted by path. Links are not listed.
    pub async fn list_files(
        &self,
        tenant: &TenantId,
        conversation: &ConversationId,
    ) -> Result<Vec<FileRecord>, AppError> {
        self.conversation(tenant, conversation).await?;
        self.list_files_of(conversation).await
    }

    /// As `list_files`, for a caller that has already loaded the conversation.
    pub(crate) async fn list_files_of(
        &self,
        conversation: &ConversationId,
    ) -> Result<Vec<FileRecord>, AppError> {
        let (root, id) = (self.workspaces_root()?, conversation.clone());
        match blocking(move || WorkspaceFolder::open(&root, &id).map(|folder| folder.survey()))
            .await?
        {
            Ok(survey) => Ok(survey.files),
            Err(error) if error.is_not_found() => Ok(Vec::new()),
            Err(error) => Err(broken("the workspace cannot be read", &error)),
        }
    }

    pub async fn read_file(
        &self,
        tenant: &TenantId,
        conversation: &ConversationId,
        path: FilePath,
    ) -> Result<(FileRecord, tokio::fs::File), AppError> {
        self.conversation(tenant, conversation).await?;
        let (root, id) = (self.workspaces_root()?, conversation.clone());
        let opening = blocking(move || {
            let opened = WorkspaceFolder::open(&root, &id).and_then(|folder| folder.read(&path));
            opened.map_err(|error| failed(&error, &path))
        });
        let (file, record) = opening.await??;
        Ok((record, tokio::fs::File::from_std(file)))
    }

    /// Begins an upload. It replaces a file with the same path.
    pub async fn start_upload(
        &self,
        tenant: &TenantId,
        conversation: &ConversationId,
        path: FilePath,
        announced: u64,
    ) -> Result<FileUpload, AppError> {
        self.conversation(tenant, conversation).await?;
        if announced > MAX_FILE {
            return Err(file_upload::too_large());
        }
        let owner = self.runtime.tenant(tenant).await?.value;
        let reservation = self.runtime.reserve_storage(&owner, announced).await?;
        let uploads = Arc::clone(&self.workspaces.uploads);
        let permit = uploads.try_acquire_owned().map_err(|_| AppError::Limit {
            detail: "too many files are being put in at once: try again in a moment".to_owned(),
            retry_after: RETRY_UPLOAD,
        })?;
        let to = UploadDestination {
            root: self.workspaces_root()?,
            conversation: conversation.clone(),
            path,
            max_workspace: self.options.max_workspace,
            workspaces: Arc::clone(&self.workspaces),
        };
        FileUpload::start(to, reservation, permit).await
    }

    pub async fn remove_file(
        &self,
        tenant: &TenantId,
        conversation: &ConversationId,
        path: FilePath,
    ) -> Result<(), AppError> {
        self.conversation(tenant, conversation).await?;
        let (root, id) = (self.workspaces_root()?, conversation.clone());
        let workspaces = Arc::clone(&self.workspaces);
        let removing = blocking(move || {
            let _lock = workspaces.lock_folder(&id);
            let removed = WorkspaceFolder::open(&root, &id).and_then(|folder| {
                let size = folder.size(&path).unwrap_or(0);
                folder.remove(&path).map(|()| size)
            });
            removed.map_err(|error| failed(&error, &path))
        });
        let freed = removing.await??;
        self.runtime.storage_of(tenant).change_folder(conversation, 0, freed);
        Ok(())
    }

    /// Removes all files of a conversation that is being deleted.
    pub(crate) async fn remove_workspace(
        &self,
        conversation: &ConversationId,
    ) -> Result<(), AppError> {
        // Without a data folder there is nothing to remove.
        let Ok(root) = self.workspaces_root() else { return Ok(()) };
        let (id, workspaces) = (conversation.clone(), Arc::clone(&self.workspaces));
        let removing = blocking(move || {
            let _lock = workspaces.lock_folder(&id);
            remove_tree(&root.join(id.as_str()))
        });
        removing.await?.map_err(|error| broken("the workspace cannot be removed", &error))
    }

    fn workspaces_root(&self) -> Result<PathBuf, AppError> {
        let data = self.runtime.options().data.as_ref();
        let root = data.map(|data| data.join("workspaces"));
        root.ok_or_else(|| AppError::Unavailable("this process has no data folder".to_owned()))
    }
}

/// The part of an agent's system prompt that describes its workspace.
pub fn workspace_prompt(folder: &Path, files: &[FileRecord]) -> String {
    let mut text = format!(
        "# Workspace\n\n\
         You work in the folder {}. It belongs to this conversation: files that the user puts in \
         are there, and files that you leave there are kept and can be fetched by the user. Write \
         results that the user should have to files in it, name them by relative paths, and \
         leave everything outside of it alone.\n\n",
        folder.display()
    );
    if files.is_empty() {
        return text + "It holds no files yet.";
    }
    text.push_str("Its files at the start of this turn:");
    for file in files.iter().take(SHOWN_FILES) {
        let _ = write!(text, "\n- {} ({} bytes)", file.path, file.size);
    }
    if files.len() > SHOWN_FILES {
        let _ = write!(text, "\n- and {} more", files.len() - SHOWN_FILES);
    }
    text
}

/// Runs file operations on the blocking thread pool.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, AppError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| AppError::Broken(format!("work on a file did not end: {error}")))
}

/// Maps a file error to one that the caller can act on.
fn failed(error: &FilesError, path: &FilePath) -> AppError {
    match error {
        FilesError::Link(_) => AppError::invalid("path", "is a link, or leads through one"),
        FilesError::InvalidPath(_) => AppError::invalid("path", "leads out of the workspace"),
        FilesError::NotRegular(_) | FilesError::ForeignHardLink(_) => {
            AppError::not_found("file", path)
        }
        FilesError::TooLarge { .. } => AppError::Broken(error.to_string()),
        FilesError::Io { source, .. } => failed_io(source, path),
    }
}

fn failed_io(error: &io::Error, path: &FilePath) -> AppError {
    use io::ErrorKind as Kind;
    match error.kind() {
        Kind::NotFound | Kind::PermissionDenied => AppError::not_found("file", path),
        Kind::NotADirectory | Kind::IsADirectory | Kind::DirectoryNotEmpty => {
            AppError::NotNow(format!("{path} is a folder, or a part of it is a file"))
        }
        Kind::InvalidFilename => AppError::invalid("path", "has a part that is too long"),
        kind => broken_by(kind, "a file of a workspace cannot be reached", error),
    }
}

pub(crate) fn broken(what: &str, error: &FilesError) -> AppError {
    broken_by(error.io_kind().unwrap_or(io::ErrorKind::Other), what, error)
}

fn broken_by(kind: io::ErrorKind, what: &str, error: &dyn std::error::Error) -> AppError {
    match kind {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            AppError::Unavailable(format!("{what}: {error}"))
        }
        _ => AppError::Broken(format!("{what}: {error}")),
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
