//! Detects by trying which confinement this machine allows: a container may offer an interface and
//! still forbid its use.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use shikiri_model::confinement::{Confinement, ConfinementLevel};

use super::{PROBE, enter};
use crate::error::{SandboxError, step};
use crate::folder_access::allow_traversal;
use crate::sandbox_plan::{ENGINE_USER, SandboxLimits, SandboxPlan};
use crate::system_paths::system_paths;

/// A program that does not exist. If it is searched for, all earlier steps have succeeded.
const NO_PROGRAM: &str = "shikiri-no-such-program";

/// The strongest confinement that works. `program` must call `run_if_asked`; `folder` holds the folders
/// of runs. Blocks for some milliseconds.
pub fn detect(program: &Path, folder: Option<&Path>) -> Confinement {
    let is_root = rustix::process::geteuid().is_root();
    let users = [Some(ENGINE_USER).filter(|_| is_root), None];
    let users = if is_root { &users[..] } else { &users[1..] };
    for level in [ConfinementLevel::Namespaces, ConfinementLevel::Landlock] {
        for engine_user in users.iter().copied() {
            let confinement = Confinement { level, engine_user };
            if works(program, confinement, folder) {
                return confinement;
            }
        }
    }
    Confinement { level: ConfinementLevel::None, engine_user: None }
}

fn works(program: &Path, confinement: Confinement, folder: Option<&Path>) -> bool {
    let folder = folder.filter(|folder| folder.is_dir()).unwrap_or(Path::new("/"));
    let is_other = confinement.engine_user.is_some();
    if !is_other || confinement.level != ConfinementLevel::Landlock || folder.parent().is_none() {
        return succeeds(program, &plan(confinement), folder);
    }
    // Without its own file tree, the engine's user must traverse the server's folder.
    let closed = std::fs::metadata(folder).map(|about| about.permissions());
    let _ = allow_traversal(folder, &folder.join("x"));
    let is_working = succeeds(program, &plan(confinement), folder);
    if let Some(closed) = closed.ok().filter(|_| !is_working) {
        let _ = std::fs::set_permissions(folder, closed);
    }
    is_working
}

/// The plan of a run without its own folder.
pub(super) fn plan(confinement: Confinement) -> SandboxPlan {
    SandboxPlan {
        confinement,
        read: system_paths(),
        write: Vec::new(),
        hidden: Vec::new(),
        folder: PathBuf::from("/"),
        loopback_ports: Vec::new(),
        limits: SandboxLimits::default(),
        cgroup: None,
        is_probe: true,
    }
}

/// Whether a program in this folder would be started by this plan.
pub(super) fn succeeds(program: &Path, plan: &SandboxPlan, folder: &Path) -> bool {
    let Ok(plan) = serde_json::to_string(plan) else { return false };
    let mut command = Command::new(program);
    command.arg(PROBE).arg(plan).arg(super::END).arg(folder.join(NO_PROGRAM));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).env_clear();
    command.status().is_ok_and(|status| status.success())
}

/// In the process that `works` has started.
pub(super) fn run(arguments: impl Iterator<Item = OsString>) -> Result<ExitCode, SandboxError> {
    let (plan, command) = super::parse(arguments)?;
    let mut entered = enter(&plan, &command)?;
    let status = entered.command.status().map_err(step("starting a process"))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
