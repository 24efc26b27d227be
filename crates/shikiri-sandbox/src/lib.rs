//! A sandbox for programs that execute a model's commands.
//!
//! 1. The server calls [`detect`] once to learn which `Confinement` this machine allows.
//! 2. For each run it makes a [`SandboxPlan`] and starts itself again as the run's supervisor.
//! 3. The supervisor calls [`enter`] and spawns the command that this returns.
//! 4. That command is this program once more: [`run_if_asked`] confines the process as planned and then
//!    starts the engine's program.
//!
//! On Linux, a run at the level `namespaces` has its own file tree, processes, shared memory and
//! network. Landlock and a seccomp filter are a second barrier. Other systems confine nothing, and
//! report the level `none`. See `docs/decisions/0016-engine-sandbox.md`.
//!
//! To start reading: `sandbox_plan.rs`, then `linux/mod.rs`.

mod error;
mod folder_access;
#[cfg(target_os = "linux")]
mod linux;
mod sandbox_plan;
mod system_paths;

pub use error::SandboxError;
pub use folder_access::allow_traversal;
pub use sandbox_plan::{ENGINE_USER, LoopbackPorts, RUN_CGROUP, SandboxLimits, SandboxPlan};
pub use system_paths::system_paths;

#[cfg(target_os = "linux")]
pub use linux::{
    MemoryUse, ReachedLimit, RunCgroup, SandboxLaunch, detect, enter, find_cgroup_place,
    receive_listeners, run_if_asked, tree_use,
};

#[cfg(not(target_os = "linux"))]
mod other;
#[cfg(not(target_os = "linux"))]
pub use other::{
    MemoryUse, ReachedLimit, RunCgroup, SandboxLaunch, detect, enter, find_cgroup_place,
    receive_listeners, run_if_asked, tree_use,
};
