//! `cargo xtask test`: checks a checkout, quick steps first. Everything uses the dev profile, so
//! that nothing is built twice; only `--fresh` builds in release mode.

mod binaries;
mod classes;

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use binaries::TestBinary;
use clap::Args;
use classes::Level;

use crate::cargo::{cargo, run as run_command};
use crate::deny::CargoDeny;
use crate::peers::Peers;
use crate::postgres::Postgres;
use crate::report::{Outcome, Report};
use crate::tools::{provide_chromium, provide_tmux, provide_xvfb, with_component};
use crate::{fresh, packages, rows};

#[derive(Args)]
pub(crate) struct Arguments {
    /// Only what answers in three minutes: format, unit tests, the store's story on SQLite, the
    /// rules about the code, and the snapshots of what outsiders see
    #[arg(long, conflicts_with_all = ["all", "filter"])]
    quick: bool,
    /// Also lints, dependencies, other people's clients, a browser, and the chaos stories
    #[arg(long)]
    all: bool,
    /// At last also build a clone of HEAD in release mode and play its demo, as CI does
    #[arg(long, requires = "all")]
    fresh: bool,
    /// Only tests whose name contains one of these, of every class
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FILTER")]
    filter: Vec<String>,
}

impl Arguments {
    fn level(&self) -> Level {
        match (self.quick, self.all || !self.filter.is_empty()) {
            (true, _) => Level::Quick,
            (false, true) => Level::All,
            (false, false) => Level::Usual,
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut report = Report::default();
    let level = arguments.level();
    if arguments.filter.is_empty() {
        check_sources(&mut report, level);
    } else {
        report.skip("sources", "a filter was given: no format, lints, rows, dependencies");
    }
    let postgres = provide_postgres(&mut report, level);
    let peers = provide_peers(&mut report, arguments);
    provide_tools(&mut report, level);
    run_tests(&mut report, arguments, |command| {
        if level == Level::Quick {
            // Half of the store's tests have no database then, which would fail with `CI=true`.
            command.env_remove("CI").env_remove("SHIKIRI_TEST_POSTGRES");
        }
        postgres.export(peers.export(command));
    });
    if let Postgres::Started(_) = postgres {
        report.check("stop", || postgres.stop());
    }
    if arguments.fresh {
        let target_dir = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
        report.check("fresh", || fresh::prove(target_dir.as_deref()));
    } else {
        report.skip("fresh", "a release build of a clone; `cargo xtask fresh`");
    }
    report.finish()
}

fn check_sources(report: &mut Report, level: Level) {
    report.step("format", || {
        with_component("rustfmt", || run_command(&mut cargo(["fmt", "--all", "--check"])))
    });
    report.check("rows", rows::run);
    if level != Level::All {
        report.skip("lints", "`cargo clippy --workspace --all-targets -- -D warnings`, or --all");
        report.skip("dependencies", "`cargo xtask deny`, or --all");
        return;
    }
    report.step("lints", || {
        let clippy = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
        with_component("clippy", || run_command(&mut cargo(clippy)))
    });
    let mut deny = None;
    report.step("cargo-deny", || {
        deny = CargoDeny::for_tests()?;
        let why = "`cargo xtask deny` installs it, which takes minutes";
        Ok(if deny.is_some() { Outcome::Passed } else { Outcome::Skipped(why.to_owned()) })
    });
    if let Some(deny) = deny {
        report.step("dependencies", || deny.check_crates());
        report.step("advisories", || deny.check_advisories());
    }
}

fn run_tests(report: &mut Report, arguments: &Arguments, prepare: impl Fn(&mut Command)) {
    let level = arguments.level();
    let mut programs: Vec<TestBinary> = Vec::new();
    report.check("build", || {
        programs = binaries::build(arguments.all)?;
        Ok(())
    });
    if programs.is_empty() {
        return report.skip("tests", "they could not be built");
    }
    for (name, is_integration) in [("unit tests", false), ("integration", true)] {
        report.check(name, || {
            binaries::run(&programs, is_integration, level, &arguments.filter, &prepare)
        });
    }
    if level != Level::Quick && arguments.filter.is_empty() {
        report.check("doc examples", || binaries::run_doc_examples(arguments.all));
    }
    if level == Level::Quick {
        report.skip("the rest", "most integration tests, and PostgreSQL; `cargo xtask test`");
    }
    if arguments.all && arguments.filter.is_empty() {
        report.step("packages", packages::run_after_build);
    }
    if level != Level::All {
        report.skip("packages", "the wheel and the npm packages; `cargo xtask packages`");
        report.skip("peers", "tests with other people's clients; `cargo xtask test --all`");
        report.skip("browser", "tests with a Chrome; `cargo xtask test --all`");
        report.skip("chaos", "`cargo xtask chaos --list`, or `cargo xtask test --all`");
    }
}

/// If PostgreSQL cannot be provided, that is reported and the tests run without it, so that one run
/// reports everything.
fn provide_postgres(report: &mut Report, level: Level) -> Postgres {
    let mut postgres = Postgres::None;
    if level != Level::Quick {
        report.step("postgres", || {
            let (found, missing) = Postgres::for_tests()?;
            postgres = found;
            Ok(missing.map_or(Outcome::Passed, Outcome::Skipped))
        });
    }
    postgres
}

/// Provides the third-party programs. Missing ones are reported, and the tests run with the rest.
fn provide_peers(report: &mut Report, arguments: &Arguments) -> Peers {
    let mut peers = Peers::default();
    if arguments.all {
        report.step("peers", || {
            peers = Peers::for_tests();
            peers.outcome()
        });
    } else if !arguments.filter.is_empty() {
        peers = Peers::if_installed();
    }
    peers
}

fn provide_tools(report: &mut Report, level: Level) {
    if level != Level::Quick {
        report.step("tmux", provide_tmux);
    }
    if level == Level::All {
        report.step("chromium", provide_chromium);
        report.step("xvfb", provide_xvfb);
    }
}
