//! `cargo xtask test`: what must hold before a change goes in, in the order of quick answers
//! first. All of it uses the dev profile, so that nothing is built twice; only `--fresh`, which CI
//! adds, builds in release mode.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::cargo::{cargo, run as run_command, succeeds};
use crate::fresh;
use crate::peers::Peers;
use crate::postgres::Postgres;
use crate::report::{Outcome, Report};
use crate::rows;
use crate::tools::{provide_chromium, provide_tmux, provide_xvfb, with_component, with_deny};

#[derive(Args)]
pub(crate) struct Arguments {
    /// At last also build a clone of HEAD in release mode and play its demo, as CI does
    #[arg(long)]
    fresh: bool,
    /// Only tests whose name contains one of these; leaves format, lints and rows out
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FILTER")]
    filter: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut report = Report::default();
    if arguments.filter.is_empty() {
        check_sources(&mut report);
    } else {
        report.skip("sources", "a filter was given: no format, lints, rows, dependencies");
    }
    let postgres = provision(&mut report);
    let peers = provision_peers(&mut report);
    report.step("tmux", provide_tmux);
    report.step("chromium", provide_chromium);
    report.step("xvfb", provide_xvfb);
    report.check("tests", || {
        let mut command = cargo(["test", "--workspace", "--no-fail-fast", "--"]);
        postgres.export(&mut command);
        run_command(peers.export(&mut command).args(&arguments.filter))
    });
    if let Postgres::Started(_) = postgres {
        report.check("stop", || postgres.stop());
    }
    if arguments.fresh {
        let target_dir = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
        report.check("fresh", || fresh::prove(target_dir.as_deref()));
    } else {
        report.skip("fresh", "not asked for; `cargo xtask fresh`, or --fresh as CI does");
    }
    report.finish()
}

fn check_sources(report: &mut Report) {
    report.step("format", || {
        with_component("rustfmt", || run_command(&mut cargo(["fmt", "--all", "--check"])))
    });
    report.step("lints", || {
        let clippy = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
        with_component("clippy", || run_command(&mut cargo(clippy)))
    });
    report.check("rows", rows::run);
    report.step("dependencies", || with_deny(check_dependencies));
    report.step("advisories", || with_deny(check_advisories));
}

fn check_dependencies() -> Result<Outcome> {
    let deny = ["deny", "check", "--hide-inclusion-graph", "bans", "licenses", "sources"];
    run_command(&mut cargo(deny)).map(|()| Outcome::Passed)
}

fn check_advisories() -> Result<Outcome> {
    // It needs the network and its answer changes from day to day: being offline is no finding.
    if !succeeds(&mut cargo(["deny", "fetch", "db"])) {
        let why = "no failure, not even in CI: the advisory database cannot be fetched";
        return Ok(Outcome::Optional(why.to_owned()));
    }
    run_command(&mut cargo(["deny", "check", "advisories"])).map(|()| Outcome::Passed)
}

/// A failure to get PostgreSQL is reported and the tests run without it, so that one run tells
/// everything.
fn provision(report: &mut Report) -> Postgres {
    let mut postgres = Postgres::None;
    report.step("postgres", || {
        let (found, missing) = Postgres::for_tests()?;
        postgres = found;
        Ok(missing.map_or(Outcome::Passed, Outcome::Skipped))
    });
    postgres
}

/// The programs of others; what cannot be had is reported, and the tests run with the rest.
fn provision_peers(report: &mut Report) -> Peers {
    let mut peers = Peers::default();
    report.step("peers", || {
        peers = Peers::for_tests();
        peers.outcome()
    });
    peers
}
