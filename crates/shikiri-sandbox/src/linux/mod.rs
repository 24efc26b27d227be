//! The sandbox on Linux, by the kernel's own interfaces.
//!
//! Three processes of this program take part. The supervisor, which `enter` is called in, leaves the
//! namespaces of the server, except for its mounts. Its child, which `run_if_asked` makes of a fresh
//! start of the program, is process 1 of the new process namespace: it builds the file tree, gives up
//! all rights and starts the engine's program. When it ends, the kernel ends all processes of the namespace.

mod cgroup_place;
mod confinement_probe;
mod id_maps;
mod landlock_rules;
mod loopback_ports;
mod mount_table;
mod namespaces;
mod privileges;
mod resource_limits;
mod root_tree;
mod run_cgroup;
mod sandbox_init;
mod seccomp_filter;
mod syscall_numbers;
mod tree_use;

use std::ffi::OsString;
use std::process::{Command, ExitCode};

use shikiri_model::confinement::ConfinementLevel;

use crate::error::SandboxError;
use crate::sandbox_plan::SandboxPlan;

pub use cgroup_place::find_cgroup_place;
pub use confinement_probe::detect;
pub use loopback_ports::receive_listeners;
pub use run_cgroup::{ReachedLimit, RunCgroup};
pub use tree_use::{MemoryUse, tree_use};

/// The program's first argument to confine itself and start the program that follows.
const INIT: &str = "sandbox-init";
/// The program's first argument to test whether a plan works.
const PROBE: &str = "sandbox-probe";
/// Separates the plan from the command.
const END: &str = "--";
/// This program, even if its file was replaced since it started.
const THIS_PROGRAM: &str = "/proc/self/exe";
/// Exit code of a sandbox that could not be made.
const FAILED: u8 = 127;

/// What a supervisor needs to start the confined program.
#[derive(Debug)]
pub struct SandboxLaunch {
    /// Starts the program confined.
    pub command: Command,
    /// The plan's. Dropped, it ends all processes in there.
    pub cgroup: Option<RunCgroup>,
}

/// Leaves this process's namespaces if the plan says so, and gives the command that starts the
/// program confined. Only for a process with a single thread. Listeners for the plan's ports are sent
/// over stdin, which must be a socket then.
pub fn enter(plan: &SandboxPlan, command: &[OsString]) -> Result<SandboxLaunch, SandboxError> {
    // The run must not get descriptors that the server inherited, such as an open folder.
    close_fds::set_fds_cloexec(3, &[]);
    let cgroup = plan.cgroup.as_deref();
    let cgroup = cgroup.map(|folder| RunCgroup::create(folder, &plan.limits)).transpose()?;
    if plan.confinement.level == ConfinementLevel::Namespaces {
        namespaces::leave(plan)?;
    }
    let mut init = Command::new(THIS_PROGRAM);
    init.arg(INIT).arg(serde_json::to_string(plan)?).arg(END).args(command);
    Ok(SandboxLaunch { command: init, cgroup })
}

/// If this process was started by `enter` or `detect`, does its work and gives the exit code. The
/// program calls it before anything else.
pub fn run_if_asked() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let first = arguments.next()?;
    let ended = match first.to_str()? {
        INIT => sandbox_init::run(arguments),
        PROBE => confinement_probe::run(arguments),
        _ => return None,
    };
    Some(ended.unwrap_or_else(|error| {
        print_error(&format!("the sandbox cannot be made: {error}"));
        ExitCode::from(FAILED)
    }))
}

#[expect(clippy::print_stderr, reason = "the server reads it as the end of the engine's stderr")]
fn print_error(message: &str) {
    eprintln!("{message}");
}

/// The plan and the command from the arguments of `enter`.
fn parse(
    mut arguments: impl Iterator<Item = OsString>,
) -> Result<(SandboxPlan, Vec<OsString>), SandboxError> {
    let plan = arguments.next().ok_or(SandboxError::NoProgram)?;
    let plan = serde_json::from_str(&plan.to_string_lossy())?;
    Ok((plan, arguments.skip_while(|argument| argument == END).collect()))
}
