//! Folders that belong to a conversation and that its engine can write: made, and removed.

use std::path::{Path, PathBuf};

use shikiri_files::{Trash, UntrustedDir, remove_tree};
use shikiri_model::ids::ConversationId;

use crate::app::App;
use crate::error::AppError;
use crate::workspace::{blocking, broken};

/// Where an engine works that has no workspace, in its home.
const WORK: &str = "work";
/// Below the data folder, where those folders lie.
const ROOTS: [&str; 2] = ["engines", "workspaces"];

/// A run can take all rights from its own home, and the next turn needs it. The folder that it lies in
/// is the server's, so it is no link.
fn reopen(home: &Path) {
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    let is_folder = home.symlink_metadata().is_ok_and(|found| found.is_dir());
    if let Some(error) = is_folder.then(|| std::fs::set_permissions(home, open).err()).flatten() {
        tracing::debug!(%error, "the rights of an engine's home were not changed");
    }
}

impl App {
    /// It belongs to the conversation: what the engine needs to resume lies there.
    pub(crate) fn engine_home(&self, conversation: &ConversationId) -> Option<PathBuf> {
        Some(self.options.data.as_ref()?.join("engines").join(conversation.as_str()))
    }

    /// Makes the folders of an engine, and gives the one in which it works if it has no workspace.
    /// What an earlier turn put in that one's place gives way. Without a data folder nothing is made.
    pub(crate) async fn make_engine_home(&self, home: &Path) -> Result<PathBuf, AppError> {
        let (path, work) = (home.to_owned(), home.join(WORK));
        if self.options.data.is_some() {
            let made = blocking(move || {
                reopen(&path);
                UntrustedDir::create(&path)?.replace_dir(WORK)
            })
            .await?;
            made.map_err(|error| broken("the engine's folder cannot be made", &error))?;
        }
        Ok(work)
    }

    /// What engines kept to take the conversation up again.
    pub(crate) async fn remove_engine_home(&self, id: &ConversationId) -> Result<(), AppError> {
        let Some(home) = self.engine_home(id) else { return Ok(()) };
        let removed = blocking(move || remove_tree(&home)).await?;
        removed.map_err(|error| broken("the engine's folder cannot be removed", &error))
    }

    /// Removes what processes that were killed had begun to remove. A thread of its own does that:
    /// nobody waits for it, and it ends with the process at the latest.
    pub(crate) fn empty_trash(&self) {
        let Some(data) = self.options.data.clone() else { return };
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
