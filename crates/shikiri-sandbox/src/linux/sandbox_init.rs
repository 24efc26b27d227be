//! The process that confines itself and starts the engine's program.
//!
//! In a process namespace it is process 1: it reaps orphans and exits with the program, and the kernel
//! then ends all other processes of the namespace. Otherwise it becomes the program by `exec`.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use rustix::process::{Pid, Signal, WaitOptions, set_parent_process_death_signal, setsid, wait};
use shikiri_model::confinement::ConfinementLevel;

use super::{
    landlock_rules, parse, privileges, resource_limits, root_tree, run_cgroup, seccomp_filter,
};
use crate::error::{SandboxError, step};
use crate::sandbox_plan::SandboxPlan;

pub(super) fn run(arguments: impl Iterator<Item = OsString>) -> Result<ExitCode, SandboxError> {
    let (plan, command) = parse(arguments)?;
    let (program, arguments) = command.split_first().ok_or(SandboxError::NoProgram)?;
    let mut command = Command::new(program);
    command.args(arguments);
    if let Some(user) = plan.confinement.engine_user {
        command.uid(user).gid(user);
    }
    confine(&plan)?;
    let started = match plan.confinement.level {
        ConfinementLevel::Namespaces => command.spawn(),
        // Returns only if it fails.
        ConfinementLevel::Landlock | ConfinementLevel::None => Err(command.exec()),
    };
    match started {
        Ok(child) => Ok(wait_for(Pid::from_child(&child))),
        Err(error) if plan.is_probe && error.kind() == io::ErrorKind::NotFound => {
            Ok(ExitCode::SUCCESS)
        }
        Err(cause) => Err(SandboxError::Start { program: program.into(), cause }),
    }
}

/// Confines this process and its later children to the plan.
fn confine(plan: &SandboxPlan) -> Result<(), SandboxError> {
    let level = plan.confinement.level;
    // It must not outlive a supervisor that was killed.
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(step("following the supervisor"))?;
    if let Some(folder) = &plan.cgroup {
        // While its files can be reached.
        run_cgroup::join(folder)?;
    }
    // A terminal of the server is not the run's.
    setsid().map_err(step("a session of its own"))?;
    if level == ConfinementLevel::Namespaces {
        root_tree::build(plan)?;
    }
    std::env::set_current_dir(&plan.folder).map_err(step("the run's folder"))?;
    resource_limits::apply(plan)?;
    if level == ConfinementLevel::None {
        return Ok(());
    }
    privileges::drop_all()?;
    landlock_rules::apply(plan)?;
    // The last one: it forbids what was done before.
    seccomp_filter::apply(level)
}

/// Reaps children until the program ends. Returns its exit code.
fn wait_for(program: Pid) -> ExitCode {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((ended, status))) if ended == program => {
                let signal = status.terminating_signal().map(|signal| signal + 128);
                let code = status.exit_status().or(signal).unwrap_or(1);
                return ExitCode::from(u8::try_from(code).unwrap_or(1));
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return ExitCode::FAILURE,
        }
    }
}
