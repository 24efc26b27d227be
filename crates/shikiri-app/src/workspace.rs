//! Workspaces: one folder per conversation, in which its agent works and through which files come
//! in and go out. The files are kept whether or not the agent is allowed to see them.

mod folder;
mod path;
mod upload;

use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use shikiri_files::{FilesError, remove_tree};
use shikiri_model::ids::{ConversationId, TenantId};
use tokio::sync::Semaphore;

pub use self::folder::FileRecord;
use self::folder::Folder;
pub use self::path::FilePath;
use self::upload::Destination;
pub use self::upload::{Placed, Upload};
use crate::app::App;
use crate::error::AppError;

/// The largest file that can be put in.
pub const MAX_FILE: u64 = 100 * 1024 * 1024;
/// Uploads at once in this process: each may fill `MAX_FILE` of the disk before it is counted.
const MAX_UPLOADS: usize = 64;
const RETRY_UPLOAD: Duration = Duration::from_secs(1);
/// Conversations that share a lock do not notice: it is held for milliseconds.
const TURNS: usize = 64;
/// Files that an agent is told of.
const SHOWN_FILES: usize = 200;

/// What the workspaces of one process share.
pub(crate) struct Workspaces {
    uploads: Arc<Semaphore>,
    turns: [Mutex<()>; TURNS],
}

impl Default for Workspaces {
    fn default() -> Self {
        Self {
            uploads: Arc::new(Semaphore::new(MAX_UPLOADS)),
            turns: [const { Mutex::new(()) }; TURNS],
        }
    }
}

impl Workspaces {
    fn turn(&self, conversation: &ConversationId) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        conversation.hash(&mut hasher);
        let number = usize::try_from(hasher.finish() % TURNS as u64).unwrap_or(0);
        self.turns[number].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl App {
    /// Where the agent of this conversation works; made if it is not there, for its owner alone.
    pub async fn workspace_folder(
        &self,
        conversation: &ConversationId,
    ) -> Result<PathBuf, AppError> {
        let (root, id) = (self.workspaces_root()?, conversation.clone());
        let folder = root.join(id.as_str());
        let made = blocking(move || Folder::make(&root, &id)).await?;
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

    /// As `list_files`, for whoever has found the conversation already.
    pub(crate) async fn list_files_of(
        &self,
        conversation: &ConversationId,
    ) -> Result<Vec<FileRecord>, AppError> {
        let (root, id) = (self.workspaces_root()?, conversation.clone());
        match blocking(move || Folder::open(&root, &id).map(|folder| folder.survey())).await? {
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
            let opened = Folder::open(&root, &id).and_then(|folder| folder.read(&path));
            opened.map_err(|error| failed(&error, &path))
        });
        let (file, record) = opening.await??;
        Ok((record, tokio::fs::File::from_std(file)))
    }

    /// Begins to put a file in, in place of one that has the same name.
    pub async fn start_upload(
        &self,
        tenant: &TenantId,
        conversation: &ConversationId,
        path: FilePath,
        announced: u64,
    ) -> Result<Upload, AppError> {
        self.conversation(tenant, conversation).await?;
        if announced > MAX_FILE {
            return Err(upload::too_large());
        }
        let owner = self.tenant(tenant).await?.value;
        let reservation = self.reserve_storage(&owner, announced).await?;
        let uploads = Arc::clone(&self.workspaces.uploads);
        let permit = uploads.try_acquire_owned().map_err(|_| AppError::Limit {
            detail: "too many files are being put in at once: try again in a moment".to_owned(),
            retry_after: RETRY_UPLOAD,
        })?;
        let to = Destination {
            root: self.workspaces_root()?,
            conversation: conversation.clone(),
            path,
            max_workspace: self.options.max_workspace,
            workspaces: Arc::clone(&self.workspaces),
        };
        Upload::start(to, reservation, permit).await
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
            let _turn = workspaces.turn(&id);
            let removed = Folder::open(&root, &id).and_then(|folder| {
                let size = folder.size(&path).unwrap_or(0);
                folder.remove(&path).map(|()| size)
            });
            removed.map_err(|error| failed(&error, &path))
        });
        let freed = removing.await??;
        self.storage.of(tenant).change_folder(conversation, 0, freed);
        Ok(())
    }

    /// All files of a conversation that is removed itself.
    pub(crate) async fn remove_workspace(
        &self,
        conversation: &ConversationId,
    ) -> Result<(), AppError> {
        // Without a data folder there is nothing to remove.
        let Ok(root) = self.workspaces_root() else { return Ok(()) };
        let (id, workspaces) = (conversation.clone(), Arc::clone(&self.workspaces));
        let removing = blocking(move || {
            let _turn = workspaces.turn(&id);
            remove_tree(&root.join(id.as_str()))
        });
        removing.await?.map_err(|error| broken("the workspace cannot be removed", &error))
    }

    fn workspaces_root(&self) -> Result<PathBuf, AppError> {
        let data = self.options.data.as_ref();
        let root = data.map(|data| data.join("workspaces"));
        root.ok_or_else(|| AppError::Unavailable("this process has no data folder".to_owned()))
    }
}

/// What an agent is told of its workspace, as a part of its system prompt.
pub fn block(folder: &Path, files: &[FileRecord]) -> String {
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

/// Does work on files away from the threads on which everybody waits.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, AppError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| AppError::Broken(format!("work on a file did not end: {error}")))
}

/// What the caller may do about a file that could not be reached.
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
#[path = "workspace/tests.rs"]
mod tests;
