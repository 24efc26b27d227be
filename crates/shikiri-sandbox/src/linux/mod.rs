//! The sandbox on Linux, by the kernel's own interfaces.
//!
//! Three processes of this program take part. The supervisor, which `enter` is called in, leaves the
//! namespaces of the server, except for its mounts. Its child, which `run_if_asked` makes of a fresh
//! start of the program, is process 1 of the new process namespace: it builds the file tree, gives up
//! all rights and starts the engine's program. When it ends, the kernel ends whatever else is in there.

mod cgroup;
mod cgroup_place;
mod id_maps;
mod init;
mod landlock_rules;
mod limits;
mod loopback;
mod mounts;
mod namespaces;
mod privileges;
mod probe;
mod root_tree;
mod seccomp_filter;
mod syscall_numbers;
mod tree_use;

use std::ffi::OsString;
use std::process::{Command, ExitCode};

use shikiri_model::confinement::ConfinementLevel;

use crate::error::SandboxError;
use crate::plan::SandboxPlan;

pub use cgroup::{ReachedLimit, RunCgroup};
pub use cgroup_place::find_cgroup_place;
pub use loopback::receive_listeners;
pub use probe::detect;
pub use tree_use::{MemoryUse, tree_use};

/// The program's first argument if it is to confine itself and start the program that follows.
const INIT: &str = "sandbox-init";
/// The program's first argument if it is to find out whether a plan works here.
const PROBE: &str = "sandbox-probe";
/// Stands between the plan and the command.
const END: &str = "--";
/// This program, even if its file was replaced since it started.
const THIS_PROGRAM: &str = "/proc/self/exe";
/// Exit code of a sandbox that could not be made.
const FAILED: u8 = 127;

/// What a supervisor has once it has left the server's namespaces.
#[derive(Debug)]
pub struct Entered {
    /// Starts the program confined.
    pub command: Command,
    /// The plan's. Dropped, it ends all processes in there.
    pub cgroup: Option<RunCgroup>,
}

/// Leaves this process's namespaces if the plan says so, and gives the command that starts the
/// program confined. Only for a process with a single thread. Listeners for the plan's ports are sent
/// over stdin, which must be a socket then.
pub fn enter(plan: &SandboxPlan, command: &[OsString]) -> Result<Entered, SandboxError> {
    // What the server inherited from whatever started it, such as an open folder, is not the run's.
    close_fds::set_fds_cloexec(3, &[]);
    let cgroup = plan.cgroup.as_deref();
    let cgroup = cgroup.map(|folder| RunCgroup::create(folder, &plan.limits)).transpose()?;
    if plan.confinement.level == ConfinementLevel::Namespaces {
        namespaces::leave(plan)?;
    }
    let mut init = Command::new(THIS_PROGRAM);
    init.arg(INIT).arg(serde_json::to_string(plan)?).arg(END).args(command);
    Ok(Entered { command: init, cgroup })
}

/// If this process was started by `enter` or `detect`, does its work and gives the exit code. The
/// program calls it before anything else.
pub fn run_if_asked() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let first = arguments.next()?;
    let ended = match first.to_str()? {
        INIT => init::run(arguments),
        PROBE => probe::run(arguments),
        _ => return None,
    };
    Some(ended.unwrap_or_else(|error| {
        complain(&format!("the sandbox cannot be made: {error}"));
        ExitCode::from(FAILED)
    }))
}

#[expect(clippy::print_stderr, reason = "the server reads it as the engine's last words")]
fn complain(words: &str) {
    eprintln!("{words}");
}

/// The plan and the command from the arguments of `enter`.
fn parse(
    mut arguments: impl Iterator<Item = OsString>,
) -> Result<(SandboxPlan, Vec<OsString>), SandboxError> {
    let plan = arguments.next().ok_or(SandboxError::NoProgram)?;
    let plan = serde_json::from_str(&plan.to_string_lossy())?;
    Ok((plan, arguments.skip_while(|argument| argument == END).collect()))
}
