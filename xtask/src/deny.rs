//! `cargo xtask deny`: checks licences, bans, sources and advisories of dependencies with
//! cargo-deny. It is not part of Rust and takes minutes to build, so it is built once per version
//! and stored beside the peers.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, anyhow};

use crate::cargo::{cargo, in_ci, run as run_command, run_aside, succeeds, workspace_root};
use crate::peers::cache::Cache;
use crate::report::{Outcome, Report};

/// Exact, so that results change only with a change of ours.
const VERSION: &str = "0.20.2";

/// A working cargo-deny.
pub(crate) struct CargoDeny(PathBuf);

impl CargoDeny {
    /// For `cargo xtask test`: with `CI=true` it is installed, otherwise used if it is there.
    pub(crate) fn for_tests() -> Result<Option<Self>> {
        match Self::find() {
            None if in_ci() => Self::install().map(Some),
            found => Ok(found),
        }
    }

    /// Ours first: `deny.toml` was written for its version.
    fn find() -> Option<Self> {
        let programs = [installed(), PathBuf::from("cargo-deny")];
        let works = |program: &PathBuf| succeeds(Command::new(program).arg("--version"));
        programs.into_iter().find(works).map(Self)
    }

    fn install() -> Result<Self> {
        let entry = entry(&Cache::of_this_user());
        Cache::of_this_user().make(&entry, |folder| {
            let mut install = cargo(["install", "cargo-deny", "--locked", "--version", VERSION]);
            // Not in the workspace's build folder, which two clones may share.
            install.arg("--root").arg(folder).env("CARGO_TARGET_DIR", folder.join("build"));
            let installed = run_aside(&mut install);
            installed.map_err(|_| anyhow!("cargo-deny cannot be installed, as told above"))?;
            Ok(std::fs::remove_dir_all(folder.join("build"))?)
        })?;
        Ok(Self(installed()))
    }

    pub(crate) fn check_crates(&self) -> Result<Outcome> {
        let check = ["check", "--hide-inclusion-graph", "bans", "licenses", "sources"];
        run_command(self.command().args(check)).map(|()| Outcome::Passed)
    }

    pub(crate) fn check_advisories(&self) -> Result<Outcome> {
        // It needs the network, and its answer changes daily: being offline is no failure.
        if !succeeds(self.command().args(["fetch", "db"])) {
            let why = "no failure, not even in CI: the advisory database cannot be fetched";
            return Ok(Outcome::Optional(why.to_owned()));
        }
        run_command(self.command().args(["check", "advisories"])).map(|()| Outcome::Passed)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.0);
        command.current_dir(workspace_root());
        command
    }
}

pub(crate) fn run() -> Result<()> {
    let deny = CargoDeny::find().map_or_else(CargoDeny::install, Ok)?;
    let mut report = Report::default();
    report.step("dependencies", || deny.check_crates());
    report.step("advisories", || deny.check_advisories());
    report.finish()
}

fn entry(cache: &Cache) -> PathBuf {
    cache.entry("cargo-deny", &[VERSION])
}

fn installed() -> PathBuf {
    entry(&Cache::of_this_user()).join("bin/cargo-deny")
}
