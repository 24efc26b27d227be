//! New namespaces for what this process starts.

use rustix::process::{getegid, geteuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, UnshareFlags, capabilities, configure_capability_in_ambient_set,
    set_capabilities,
};

use super::{id_maps, loopback_ports};
use crate::error::{SandboxError, step};
use crate::sandbox_plan::SandboxPlan;

/// Of this process the network and the IPC objects change at once; its next child is process 1 of a
/// new process namespace. The mounts stay: a new root would be this process's, too, and it has to see
/// the machine's process files to watch and end the run.
pub(super) fn leave(plan: &SandboxPlan) -> Result<(), SandboxError> {
    let (user, group) = (geteuid(), getegid());
    let mut flags =
        UnshareFlags::NEWPID | UnshareFlags::NEWIPC | UnshareFlags::NEWNET | UnshareFlags::NEWUTS;
    // Root needs no user namespace: engines get another user, whom no map would have to name.
    if !user.is_root() {
        flags |= UnshareFlags::NEWUSER;
    }
    unshare(flags).map_err(step("new namespaces"))?;
    if !user.is_root() {
        id_maps::write(user, group)?;
        keep_capabilities().map_err(step("capabilities in the new namespaces"))?;
    }
    loopback_ports::bring_up().map_err(step("the loopback device"))?;
    if !plan.loopback_ports.is_empty() {
        loopback_ports::send_listeners(&plan.loopback_ports).map_err(step("the loopback ports"))?;
    }
    Ok(())
}

/// Mounts of this process's own, which its parent does not see.
pub(super) fn separate_mounts() -> Result<(), SandboxError> {
    unshare(UnshareFlags::NEWNS).map_err(step("a new mount namespace"))
}

/// Keeps the capabilities to build the file tree for the next program. In a new user namespace,
/// starting a program drops them unless the user is its root.
fn keep_capabilities() -> rustix::io::Result<()> {
    let kept = CapabilitySet::SYS_ADMIN | CapabilitySet::SETPCAP;
    let sets = CapabilitySets { inheritable: kept, ..capabilities(None)? };
    set_capabilities(None, sets)?;
    kept.iter().try_for_each(|capability| configure_capability_in_ambient_set(capability, true))
}

#[expect(deprecated, reason = "deprecated for the flag FILES alone, which is not used")]
fn unshare(flags: UnshareFlags) -> rustix::io::Result<()> {
    rustix::thread::unshare(flags)
}
