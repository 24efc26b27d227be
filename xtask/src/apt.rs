//! Debian packages, for machines on which one command installs whatever the tests need.

use std::path::Path;
use std::process::Command;

use shikiri_testpg::running_as_root;

/// Whether this is Debian or a derivative.
pub(crate) fn on_debian() -> bool {
    Path::new("/etc/debian_version").exists()
}

/// Whether packages may be installed without asking.
pub(crate) fn may_install() -> bool {
    on_debian() && running_as_root()
}

pub(crate) fn update() -> Command {
    let mut command = apt_get();
    command.arg("update");
    command
}

pub(crate) fn install(package: &str) -> Command {
    let mut command = apt_get();
    command.args(["install", "-y", "--no-install-recommends", package]);
    command
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive");
    // Waits for another running apt, and keeps modified settings files.
    command.args(["-o", "DPkg::Lock::Timeout=300", "-o", "Dpkg::Options::=--force-confold"]);
    command
}
