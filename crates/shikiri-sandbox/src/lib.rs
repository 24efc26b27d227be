//! A sandbox for programs that run what a model thinks of.
//!
//! The server asks `detect` once which `Confinement` this machine allows. For each run it writes a
//! `SandboxPlan` and starts itself again as the run's supervisor, which calls `enter` and starts the
//! command that this gives. That command is this program once more (`run_if_asked`): it confines
//! itself as planned and only then starts the engine's program.
//!
//! On Linux a run at the level `namespaces` has its own file tree, processes, shared memory and
//! network; Landlock and a seccomp filter stand behind that. See `docs/decisions/0016-engine-sandbox.md`.

mod error;
#[cfg(target_os = "linux")]
mod linux;
mod ownership;
mod places;
mod plan;

pub use error::SandboxError;
pub use ownership::open_way;
pub use places::system_places;
pub use plan::{ENGINE_USER, LoopbackPorts, RUN_CGROUP, SandboxLimits, SandboxPlan};

#[cfg(target_os = "linux")]
pub use linux::{
    Entered, MemoryUse, ReachedLimit, RunCgroup, detect, enter, find_cgroup_place,
    receive_listeners, run_if_asked, tree_use,
};

#[cfg(not(target_os = "linux"))]
mod other;
#[cfg(not(target_os = "linux"))]
pub use other::{
    Entered, MemoryUse, ReachedLimit, RunCgroup, detect, enter, find_cgroup_place,
    receive_listeners, run_if_asked, tree_use,
};
