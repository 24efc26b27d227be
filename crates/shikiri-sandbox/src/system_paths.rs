//! Folders of the system's programs and their files.

use std::path::PathBuf;

const SYSTEM: [&str; 11] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/etc",
    "/opt",
    "/nix/store",
    "/run/current-system",
    "/var/lib/ca-certificates",
];

/// Programs, libraries, configuration and certificates of the system.
pub fn system_paths() -> Vec<PathBuf> {
    SYSTEM.iter().map(PathBuf::from).collect()
}

/// Files in `/etc` that only root may read. They stay out of reach where an engine has to run as
/// root.
#[cfg(target_os = "linux")]
pub(crate) const ROOT_ONLY: [&str; 9] = [
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/ssh",
    "/etc/ssl/private",
    "/etc/security/opasswd",
];
