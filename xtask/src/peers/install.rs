//! The installers: npm, and pip in a virtual environment. If one is missing, root on Debian
//! installs it; other users are told what to install.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, ensure};

use super::wanted::{Peer, PeerLocation, Source};
use crate::apt;
use crate::cargo::{run_aside, succeeds};

/// An available installer, or why it is missing.
pub(super) type Found<T> = Result<T, String>;

/// A Python that can create virtual environments.
pub(super) struct Python {
    pub(super) program: PathBuf,
    /// Identifies it: an environment works only with the Python that created it.
    pub(super) identity: String,
}

impl Python {
    pub(super) fn find() -> Option<Python> {
        // The SDKs need 3.10. On Debian, ensurepip is missing without python3-venv. The system's
        // Python may have it although another one, first in PATH, does not.
        let question = "import sys, venv, ensurepip; assert sys.version_info >= (3, 10); \
                        print(sys.version, sys._base_executable)";
        ["python3", "/usr/bin/python3"].into_iter().find_map(|program| {
            let output = Command::new(program).args(["-c", question]).output().ok()?;
            let identity = String::from_utf8_lossy(&output.stdout).into_owned();
            output.status.success().then(|| Python { program: program.into(), identity })
        })
    }

    pub(super) fn find_or_install() -> Found<Python> {
        find_or_install(Python::find, "Python 3.10 or later with its venv module", "python3-venv")
    }
}

/// npm, which installs any version of Node.
pub(super) fn npm() -> Found<PathBuf> {
    let find = || succeeds(Command::new("npm").arg("--version")).then(|| PathBuf::from("npm"));
    find_or_install(find, "Node.js with npm", "npm")
}

fn find_or_install<T>(find: impl Fn() -> Option<T>, what: &str, package: &str) -> Found<T> {
    if let Some(found) = find() {
        return Ok(found);
    }
    if !apt::may_install() {
        return Err(advice(what, package, apt::on_debian()));
    }
    let install =
        || run_aside(&mut apt::update()).and_then(|()| run_aside(&mut apt::install(package)));
    install().map_err(|error| format!("{what} is not installed: {error:#}"))?;
    find().ok_or_else(|| format!("installed {package}, but found no {what}"))
}

fn advice(what: &str, package: &str, debian: bool) -> String {
    let how = if debian {
        format!("`sudo apt-get install --no-install-recommends {package}`")
    } else {
        "it from your system's packages".to_owned()
    };
    format!("{what} is not installed; install {how}, then run this again")
}

/// Installs the packages on a peer's list into an empty folder, and checks the result.
pub(super) fn into(folder: &Path, peer: &Peer, installer: &Path) -> Result<()> {
    eprintln!("installing the peer {}", peer.name);
    let (installer_name, done) = match peer.source {
        Source::Npm => ("npm", npm_install(folder, peer, installer)),
        Source::Pip => ("pip", pip_install(folder, peer, installer)),
    };
    // The command line is long, and it is on the screen already, with the reason above it.
    done.map_err(|_| anyhow!("{installer_name} could not install it, as told above"))?;
    let path = peer.location.inside(folder);
    ensure!(path.exists(), "its package for this machine could not be had");
    if let PeerLocation::Program(_) = peer.location {
        ensure!(succeeds(Command::new(&path).arg("--version")), "it does not start");
    }
    Ok(())
}

fn npm_install(folder: &Path, peer: &Peer, npm: &Path) -> Result<()> {
    let list = folder.join(peer.source.list());
    fs::copy(peer.list(), &list).with_context(|| format!("cannot write {}", list.display()))?;
    let mut command = Command::new(npm);
    command.args(["install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts"]);
    command.arg("--loglevel=error");
    // The Node that runs npm is not the one that runs the peers.
    command.arg("--no-engine-strict");
    // Fails soon without a network: npm would wait minutes for each of a hundred packages.
    command.args(["--fetch-timeout=60000", "--fetch-retries=1"]);
    command.args(["--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=1000"]);
    run_aside(command.current_dir(folder))
}

/// Its `bin/python` works wherever the folder is moved. The other programs in `bin` do not, so they
/// are run as `bin/python -m NAME`.
fn pip_install(folder: &Path, peer: &Peer, python: &Path) -> Result<()> {
    run_aside(Command::new(python).args(["-m", "venv"]).arg(folder))?;
    let mut command = Command::new(folder.join("bin/python"));
    command.args(["-m", "pip", "install", "--quiet", "--retries=2"]);
    command.arg("--disable-pip-version-check");
    run_aside(command.arg("--requirement").arg(peer.list()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_the_way_to_get_it() {
        assert_eq!(
            advice("Node.js with npm", "npm", true),
            "Node.js with npm is not installed; install `sudo apt-get install \
             --no-install-recommends npm`, then run this again"
        );
        assert_eq!(
            advice("Node.js with npm", "npm", false),
            "Node.js with npm is not installed; install it from your system's packages, then run \
             this again"
        );
    }
}
