//! Systems other than Linux: nothing is confined, and the level says so.

use std::ffi::OsString;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use shikiri_model::confinement::{Confinement, ConfinementLevel};

use crate::{SandboxError, SandboxPlan};

/// What the processes of a run use together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    pub bytes: u64,
    pub tasks: u64,
}

pub fn detect(_program: &Path, _folder: Option<&Path>) -> Confinement {
    Confinement { level: ConfinementLevel::None, engine_user: None }
}

/// What the kernel counts for a run, which no kernel but Linux does.
#[derive(Debug)]
pub enum RunCgroup {}

/// What a run was refused by the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReachedLimit {
    Memory,
    Tasks,
}

impl RunCgroup {
    pub fn reached_limit(&self) -> Option<ReachedLimit> {
        None
    }
}

/// What a supervisor starts.
#[derive(Debug)]
pub struct SandboxLaunch {
    pub command: Command,
    pub cgroup: Option<RunCgroup>,
}

pub fn find_cgroup_place(_program: &Path) -> Option<PathBuf> {
    None
}

pub fn enter(_plan: &SandboxPlan, command: &[OsString]) -> Result<SandboxLaunch, SandboxError> {
    let (program, arguments) = command.split_first().ok_or(SandboxError::NoProgram)?;
    let mut command = Command::new(program);
    command.args(arguments);
    Ok(SandboxLaunch { command, cgroup: None })
}

pub fn run_if_asked() -> Option<ExitCode> {
    None
}

pub fn receive_listeners(_from: impl AsFd) -> std::io::Result<Vec<TcpListener>> {
    Ok(Vec::new())
}

pub fn tree_use(_root: u32) -> MemoryUse {
    MemoryUse::default()
}
