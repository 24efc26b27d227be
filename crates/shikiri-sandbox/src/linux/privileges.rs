//! Drops all capabilities.

use rustix::thread::{
    CapabilitySet, clear_ambient_capability_set, remove_capability_from_bounding_set,
    set_no_new_privs,
};

use crate::error::{SandboxError, step};

/// Programs that are started later have no capabilities, not even as root, because the bounding set is
/// empty.
pub(super) fn drop_all() -> Result<(), SandboxError> {
    set_no_new_privs(true).map_err(step("giving up new privileges"))?;
    // Old kernels know no ambient set.
    let _ = clear_ambient_capability_set();
    for capability in CapabilitySet::all().iter() {
        // Fails without root, who alone has capabilities that a program could inherit.
        let _ = remove_capability_from_bounding_set(capability);
    }
    Ok(())
}
