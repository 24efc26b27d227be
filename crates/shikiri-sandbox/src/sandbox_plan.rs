//! What a run may reach and use. The plan is passed on command lines, so it holds no secret.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use shikiri_model::confinement::Confinement;

/// The user and group that engines run as when the server is root. It lies above the ids that
/// systemd gives to services and below `nobody`; nothing else should own files by it.
pub const ENGINE_USER: u32 = 65_521;

/// Prefix of the names of runs' cgroups.
pub const RUN_CGROUP: &str = "shikiri-run-";

/// Ports of this machine's loopback that a run may connect to.
pub type LoopbackPorts = Vec<u16>;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxPlan {
    pub confinement: Confinement,
    /// Readable and executable, with everything below. Missing paths are ignored.
    pub read: Vec<PathBuf>,
    /// Also writable. They must exist.
    pub write: Vec<PathBuf>,
    /// Hidden, even below readable paths.
    pub hidden: Vec<PathBuf>,
    /// Where the program starts.
    pub folder: PathBuf,
    pub loopback_ports: LoopbackPorts,
    pub limits: SandboxLimits,
    /// The cgroup to make for the run; `None` if the supervisor measures its memory and tasks.
    #[serde(default)]
    pub cgroup: Option<PathBuf>,
    /// Whether this is a probe: its program does not exist, and trying to start it is the test.
    #[serde(default)]
    pub is_probe: bool,
}

/// Limits of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxLimits {
    /// Of all processes together.
    pub memory_bytes: u64,
    /// Processes and threads.
    pub tasks: u64,
    /// Of one file.
    pub file_bytes: u64,
    /// Of one process.
    pub open_files: u64,
}

impl Default for SandboxLimits {
    fn default() -> Self {
        Self { memory_bytes: 4 << 30, tasks: 1024, file_bytes: 4 << 30, open_files: 4096 }
    }
}
