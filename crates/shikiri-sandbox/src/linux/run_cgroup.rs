//! The cgroup of a run, with which the kernel limits its memory and tasks.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use crate::error::{SandboxError, at};
use crate::sandbox_plan::{RUN_CGROUP, SandboxLimits};

/// Between two attempts to remove one: its processes need a moment to end.
const PAUSE: Duration = Duration::from_millis(5);
const ATTEMPTS: u32 = 100;

/// A run's cgroup. Dropping it kills its processes and removes it. A lock on it shows that its
/// supervisor lives.
#[derive(Debug)]
pub struct RunCgroup {
    folder: PathBuf,
    _lock: File,
}

/// The limit that the kernel enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReachedLimit {
    Memory,
    Tasks,
}

impl RunCgroup {
    pub(super) fn create(folder: &Path, limits: &SandboxLimits) -> Result<Self, SandboxError> {
        fs::create_dir(folder).map_err(at("making the cgroup", folder))?;
        let lock = File::open(folder).map_err(at("opening the cgroup", folder))?;
        lock.try_lock().map_err(io::Error::from).map_err(at("locking the cgroup", folder))?;
        let made = Self { folder: folder.to_owned(), _lock: lock };
        made.limit("memory.max", limits.memory_bytes)?;
        // Without it, one process is killed and the run goes on with an error that says nothing.
        made.limit("memory.oom.group", 1)?;
        made.limit("pids.max", limits.tasks)?;
        if folder.join("memory.swap.max").exists() {
            made.limit("memory.swap.max", 0)?;
        }
        Ok(made)
    }

    fn limit(&self, file: &str, value: u64) -> Result<(), SandboxError> {
        let file = self.folder.join(file);
        fs::write(&file, value.to_string()).map_err(at("writing", file))
    }

    /// Which limit the run has reached so far.
    pub fn reached_limit(&self) -> Option<ReachedLimit> {
        // A process can be killed because the whole machine has no memory left: not the run's fault.
        let is_full = self.count("memory.events", "oom") > 0;
        if is_full && self.count("memory.events", "oom_kill") > 0 {
            return Some(ReachedLimit::Memory);
        }
        (self.count("pids.events", "max") > 0).then_some(ReachedLimit::Tasks)
    }

    fn count(&self, file: &str, name: &str) -> u64 {
        let text = fs::read_to_string(self.folder.join(file)).unwrap_or_default();
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        lines
            .find(|(found, _)| *found == name)
            .and_then(|(_, count)| count.parse().ok())
            .unwrap_or(0)
    }
}

impl Drop for RunCgroup {
    fn drop(&mut self) {
        remove(&self.folder);
    }
}

/// Moves this process and its later children into the cgroup.
pub(super) fn join(folder: &Path) -> Result<(), SandboxError> {
    let file = folder.join("cgroup.procs");
    fs::write(&file, "0").map_err(at("joining the cgroup", file))
}

/// Kills all processes of a cgroup and removes it. The next start of a server removes leftovers.
fn remove(folder: &Path) {
    for _ in 0..ATTEMPTS {
        // Kernels before 5.14 have no such file. There the supervisor has killed all.
        let _ = fs::write(folder.join("cgroup.kill"), "1");
        match fs::remove_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => sleep(PAUSE),
            _ => return,
        }
    }
}

/// Removes the cgroups of runs whose supervisors were killed.
pub(super) fn remove_abandoned(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let is_run = entry.file_name().to_string_lossy().starts_with(RUN_CGROUP);
        let Ok(folder) = File::open(entry.path()) else { continue };
        if is_run && folder.try_lock().is_ok() {
            remove(&entry.path());
        }
    }
}
