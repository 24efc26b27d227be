//! The engine's folders of a conversation: creating and removing them.

use std::path::{Path, PathBuf};

use shikiri_files::{Trash, UntrustedDir, remove_tree};
use shikiri_model::ids::ConversationId;
use shikiri_runtime::AppError;

use crate::Executions;
use crate::workspace::{blocking, broken};

/// The working folder, inside the home, of an engine without a workspace.
const WORK: &str = "work";
/// The parent folders below the data folder.
const ROOTS: [&str; 2] = ["engines", "workspaces"];

/// Restores the permissions of a home. A run can remove all permissions from its own home, which
/// the next turn needs. The parent folder belongs to the server, so the home is not a link.
fn reopen(home: &Path) {
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    let is_folder = home.symlink_metadata().is_ok_and(|found| found.is_dir());
    if let Some(error) = is_folder.then(|| std::fs::set_permissions(home, open).err()).flatten() {
        tracing::debug!(%error, "the rights of an engine's home were not changed");
    }
}

impl Executions {
    /// The engine's home for this conversation. It holds what the engine needs to resume.
    pub(crate) fn engine_home(&self, conversation: &ConversationId) -> Option<PathBuf> {
        Some(self.runtime.options().data.as_ref()?.join("engines").join(conversation.as_str()))
    }

    /// Creates the engine's folders, and returns its working folder for a turn without a workspace.
    /// Anything else that an earlier turn put at that path is replaced. Without a data folder
    /// nothing is created.
    pub(crate) async fn make_engine_home(&self, home: &Path) -> Result<PathBuf, AppError> {
        let (path, work) = (home.to_owned(), home.join(WORK));
        if self.runtime.options().data.is_some() {
            let made = blocking(move || {
                reopen(&path);
                UntrustedDir::create(&path)?.replace_dir(WORK)
            })
            .await?;
            made.map_err(|error| broken("the engine's folder cannot be made", &error))?;
        }
        Ok(work)
    }

    /// Removes what engines stored to resume the conversation.
    pub(crate) async fn remove_engine_home(&self, id: &ConversationId) -> Result<(), AppError> {
        let Some(home) = self.engine_home(id) else { return Ok(()) };
        let removed = blocking(move || remove_tree(&home)).await?;
        removed.map_err(|error| broken("the engine's folder cannot be removed", &error))
    }

    /// Finishes removals that killed processes began. It runs on its own thread, which ends with
    /// the process at the latest.
    pub fn empty_trash(&self) {
        let Some(data) = self.runtime.options().data.clone() else { return };
        let emptying =
            std::thread::Builder::new().name("empty-trash".to_owned()).spawn(move || {
                for root in ROOTS {
                    let found = Trash::find(&data.join(root));
                    let emptied =
                        found.and_then(|found| found.map_or(Ok(()), |trash| trash.empty()));
                    if let Err(error) = emptied {
                        tracing::warn!(%error, "what was removed from {root} cannot be deleted");
                    }
                }
            });
        if let Err(error) = emptying {
            tracing::warn!(%error, "the trash is not emptied");
        }
    }
}
