//! A sign of life of each node on this machine: a file that its process keeps locked. When the
//! process dies the lock is gone, whatever it died of; so a server that starts again need not wait
//! until the lease of its predecessor has run out.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use shikiri_model::ids::NodeId;
use shikiri_model::lease::Guard;
use shikiri_store::{CommitError, StoreExt};

use super::node::LEASE_PREFIX;
use crate::app::App;

/// This node's sign; gone when dropped.
pub(super) struct Vital {
    path: PathBuf,
    _locked: File,
}

impl Drop for Vital {
    fn drop(&mut self) {
        // If it cannot be removed, the next start finds it without an owner.
        let _ = fs::remove_file(&self.path);
    }
}

impl Vital {
    /// None if there is no data folder, or it cannot be written: then leases alone must do.
    pub(super) fn show(app: &App, node: &NodeId, guard: &Guard) -> Option<Self> {
        let folder = folder(app)?;
        let shown = fs::create_dir_all(&folder).and_then(|()| place(&folder, node, guard.fence));
        if let Err(error) = &shown {
            tracing::warn!(%error, "no sign of life at {}", folder.display());
        }
        shown.ok()
    }
}

/// Under another name until it is locked: nobody may find it unlocked while its node lives.
fn place(folder: &Path, node: &NodeId, fence: u64) -> io::Result<Vital> {
    let draft = folder.join(format!(".{node}"));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    write!(file, "{fence}")?;
    let path = folder.join(node.as_str());
    fs::rename(&draft, &path)?;
    Ok(Vital { path, _locked: file })
}

/// Gives back the leases of nodes of this machine whose process is gone, so that they are swept at
/// once.
pub(super) async fn bury_the_dead(app: &App) {
    let Some(folder) = folder(app) else { return };
    for (path, guard) in dead(&folder) {
        match app.store.release(&guard).await {
            Ok(()) => tracing::info!(lease = guard.name, "its process is gone: taking over"),
            // The sign stays: nothing else tells of its death before the lease runs out.
            Err(CommitError::Store(error)) => {
                tracing::warn!(%error, lease = guard.name, "its process is gone");
                continue;
            }
            // It has run out already.
            Err(error) => tracing::debug!(%error, lease = guard.name, "not given back"),
        }
        let _ = fs::remove_file(path);
    }
}

/// Whether a node of this machine left a sign that nobody keeps.
pub(super) fn is_dead(app: &App, node: &NodeId) -> bool {
    let Some(folder) = folder(app) else { return false };
    buried(&folder.join(node.as_str())).is_some()
}

fn dead(folder: &Path) -> Vec<(PathBuf, Guard)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| buried(&entry.path())).collect()
}

/// The guard of the lease that the file stands for, if nobody holds the file.
fn buried(path: &Path) -> Option<(PathBuf, Guard)> {
    let node: NodeId = path.file_name()?.to_str()?.parse().ok()?;
    let file = File::open(path).ok()?;
    // Shared, so that whoever else looks at this very moment is not taken for its owner.
    flock(&file, FlockOperation::NonBlockingLockShared).ok()?;
    let fence = io::read_to_string(&file).ok()?.trim().parse().ok()?;
    Some((path.to_owned(), Guard { name: format!("{LEASE_PREFIX}{node}"), fence }))
}

fn folder(app: &App) -> Option<PathBuf> {
    Some(app.options.data.as_ref()?.join("nodes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_node_whose_process_is_gone_is_found_dead() {
        let folder = tempfile::tempdir().unwrap();
        let node: NodeId = "nod_1".parse().unwrap();
        let vital = place(folder.path(), &node, 7).unwrap();
        assert!(dead(folder.path()).is_empty());

        // As when its process is killed: the lock goes, the file stays.
        let left = folder.path().join("nod_2");
        fs::write(&left, "9").unwrap();
        fs::write(folder.path().join("nod_3"), "not a number").unwrap();
        let another = File::open(&left).unwrap();
        flock(&another, FlockOperation::NonBlockingLockShared).unwrap();
        let found = dead(folder.path());
        assert_eq!(found, [(left, Guard { name: "node/nod_2".to_owned(), fence: 9 })]);

        drop(vital);
        assert!(!folder.path().join("nod_1").exists());
    }
}
