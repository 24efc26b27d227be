//! Capabilities, which nothing in a sandbox has.

use rustix::thread::{
    CapabilitySet, clear_ambient_capability_set, remove_capability_from_bounding_set,
    set_no_new_privs,
};

use crate::error::{SandboxError, step};

/// No program that is started from here on has any, not even one of root's: what a program may have
/// is what is left in the bounding set, which is nothing.
pub(super) fn drop_all() -> Result<(), SandboxError> {
    set_no_new_privs(true).map_err(step("giving up new privileges"))?;
    // Old kernels know no ambient set.
    let _ = clear_ambient_capability_set();
    for capability in CapabilitySet::all().iter() {
        // Who is not root may not, and has none that a program could inherit.
        let _ = remove_capability_from_bounding_set(capability);
    }
    Ok(())
}
