//! The liveness file of each node on this machine, which its process keeps locked. When the process
//! dies, for whatever reason, the lock is gone. So a server that starts again need not wait until
//! the lease of its predecessor has expired.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use shikiri_model::ids::NodeId;
use shikiri_model::lease::LeaseGuard;
use shikiri_store::{CommitError, StoreExt};

use super::node::LEASE_PREFIX;
use crate::runtime::Runtime;

/// The liveness file of this node. Removed when dropped.
pub(super) struct LivenessFile {
    path: PathBuf,
    _locked: File,
}

impl Drop for LivenessFile {
    fn drop(&mut self) {
        // If it cannot be removed, the next start finds it unlocked.
        let _ = fs::remove_file(&self.path);
    }
}

impl LivenessFile {
    /// None if there is no data folder or it cannot be written. Then only the lease shows that the
    /// node lives.
    pub(super) fn create_locked(
        runtime: &Runtime,
        node: &NodeId,
        guard: &LeaseGuard,
    ) -> Option<Self> {
        let folder = folder(runtime)?;
        let created = fs::create_dir_all(&folder).and_then(|()| create(&folder, node, guard.fence));
        if let Err(error) = &created {
            tracing::warn!(%error, "no sign of life at {}", folder.display());
        }
        created.ok()
    }
}

/// The file gets its name after it is locked: other processes must not find the file of a living
/// node unlocked.
fn create(folder: &Path, node: &NodeId, fence: u64) -> io::Result<LivenessFile> {
    let temporary = folder.join(format!(".{node}"));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    file.try_lock()?;
    write!(file, "{fence}")?;
    let path = folder.join(node.as_str());
    fs::rename(&temporary, &path)?;
    Ok(LivenessFile { path, _locked: file })
}

/// Releases the leases of this machine's nodes whose process is gone, so that they are swept at
/// once.
pub(super) async fn reap_dead_nodes(runtime: &Runtime) {
    let Some(folder) = folder(runtime) else { return };
    for (path, guard) in dead_nodes(&folder) {
        match runtime.store.release(&guard).await {
            Ok(()) => tracing::info!(lease = guard.name, "its process is gone: taking over"),
            // The file stays: nothing else shows that the node is dead before its lease expires.
            Err(CommitError::Store(error)) => {
                tracing::warn!(%error, lease = guard.name, "its process is gone");
                continue;
            }
            // The lease has expired already.
            Err(error) => tracing::debug!(%error, lease = guard.name, "not given back"),
        }
        let _ = fs::remove_file(path);
    }
}

/// Whether a node of this machine left a liveness file that no process holds.
pub(super) fn is_process_dead(runtime: &Runtime, node: &NodeId) -> bool {
    let Some(folder) = folder(runtime) else { return false };
    read_unlocked(&folder.join(node.as_str())).is_some()
}

fn dead_nodes(folder: &Path) -> Vec<(PathBuf, LeaseGuard)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| read_unlocked(&entry.path())).collect()
}

/// The lease of the file's node, if no process holds the file.
fn read_unlocked(path: &Path) -> Option<(PathBuf, LeaseGuard)> {
    let node: NodeId = path.file_name()?.to_str()?.parse().ok()?;
    let file = File::open(path).ok()?;
    // A shared lock: another process that checks at the same time is not taken for the owner.
    file.try_lock_shared().ok()?;
    let fence = io::read_to_string(&file).ok()?.trim().parse().ok()?;
    Some((path.to_owned(), LeaseGuard { name: format!("{LEASE_PREFIX}{node}"), fence }))
}

fn folder(runtime: &Runtime) -> Option<PathBuf> {
    Some(runtime.options.data.as_ref()?.join("nodes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_node_whose_process_is_gone_is_found_dead() {
        let folder = tempfile::tempdir().unwrap();
        let node: NodeId = "nod_1".parse().unwrap();
        let liveness_file = create(folder.path(), &node, 7).unwrap();
        assert!(dead_nodes(folder.path()).is_empty());

        // As when its process is killed: the lock goes, the file stays.
        let dead_file = folder.path().join("nod_2");
        fs::write(&dead_file, "9").unwrap();
        fs::write(folder.path().join("nod_3"), "not a number").unwrap();
        let another = File::open(&dead_file).unwrap();
        another.try_lock_shared().unwrap();
        let found = dead_nodes(folder.path());
        assert_eq!(found, [(dead_file, LeaseGuard { name: "node/nod_2".to_owned(), fence: 9 })]);

        drop(liveness_file);
        assert!(!folder.path().join("nod_1").exists());
    }
}
