//! Maps only this process's own user and group into its user namespace.

use std::fs;

use rustix::process::{Gid, Uid};

use crate::error::{SandboxError, at};

/// Writes the maps after the namespace was entered. `user` and `group` are those from before.
pub(super) fn write(user: Uid, group: Gid) -> Result<(), SandboxError> {
    let (user, group) = (user.as_raw(), group.as_raw());
    for (file, content) in [
        // Without this the kernel refuses the map of groups.
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("{user} {user} 1")),
        ("/proc/self/gid_map", format!("{group} {group} 1")),
    ] {
        fs::write(file, content).map_err(at("writing", file))?;
    }
    Ok(())
}
