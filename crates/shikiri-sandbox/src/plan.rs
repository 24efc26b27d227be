//! What a run may reach and use up. The supervisor and the process that confines itself get it on
//! their command line, so it holds no secret.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use shikiri_model::confinement::Confinement;

/// The user and group that engines run as when the server is root. It lies above the ids that
/// systemd gives to services and below `nobody`; nothing else should own files by it.
pub const ENGINE_USER: u32 = 65_521;

/// What the names of the cgroups of runs begin with.
pub const RUN_CGROUP: &str = "shikiri-run-";

/// Ports of this machine's loopback that a run may connect to.
pub type LoopbackPorts = Vec<u16>;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxPlan {
    pub confinement: Confinement,
    /// To be read and executed, with all that is below. Places that do not exist are ignored.
    pub read: Vec<PathBuf>,
    /// To be written, too. They must exist.
    pub write: Vec<PathBuf>,
    /// Not to be seen, even below what may be read.
    pub hidden: Vec<PathBuf>,
    /// Where the program starts.
    pub folder: PathBuf,
    pub loopback_ports: LoopbackPorts,
    pub limits: SandboxLimits,
    /// To be made for the run, so that the kernel counts its memory and tasks. None if its
    /// supervisor watches them.
    #[serde(default)]
    pub cgroup: Option<PathBuf>,
    /// The program is not expected to exist: whether it would be started is what is asked.
    #[serde(default)]
    pub is_probe: bool,
}

/// What one run may use up.
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
