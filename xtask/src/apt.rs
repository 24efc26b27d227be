//! Debian's packages, for a machine where one command shall bring whatever the tests need.

use std::path::Path;
use std::process::Command;

use shikiri_testpg::running_as_root;

/// Whether this is Debian, or one of its children.
pub(crate) fn on_debian() -> bool {
    Path::new("/etc/debian_version").exists()
}

/// Whether packages may be installed without asking anybody.
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
    // Another apt at work is waited for; a settings file that somebody changed is kept.
    command.args(["-o", "DPkg::Lock::Timeout=300", "-o", "Dpkg::Options::=--force-confold"]);
    command
}
