//! `cargo xtask test`: what must hold before a change goes in, in the order of quick answers
//! first. All of it uses the dev profile, so that nothing is built twice.

use anyhow::Result;
use clap::Args;

use crate::cargo::{cargo, run as run_command, succeeds};
use crate::postgres::Postgres;
use crate::report::{Outcome, Report};
use crate::rows;

#[derive(Args)]
pub(crate) struct Arguments {
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
    report.check("tests", || {
        let mut command = cargo(["test", "--workspace", "--no-fail-fast", "--"]);
        run_command(postgres.export(&mut command).args(&arguments.filter))
    });
    if let Postgres::Started(_) = postgres {
        report.check("stop", || postgres.stop());
    }
    report.finish()
}

fn check_sources(report: &mut Report) {
    report.check("format", || run_command(&mut cargo(["fmt", "--all", "--check"])));
    report.check("lints", || {
        let clippy = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
        run_command(&mut cargo(clippy))
    });
    report.check("rows", rows::run);
    check_dependencies(report);
}

fn check_dependencies(report: &mut Report) {
    if !succeeds(&mut cargo(["deny", "--version"])) {
        let why = "cargo-deny is not installed; `cargo install cargo-deny --locked`";
        println!("\nNOTE: dependencies not checked: {why}");
        report.skip("dependencies", why);
        return;
    }
    report.check("dependencies", || {
        run_command(&mut cargo([
            "deny",
            "check",
            "--hide-inclusion-graph",
            "bans",
            "licenses",
            "sources",
        ]))
    });
    report.step("advisories", || {
        // The only part that needs the network: being offline is no finding.
        if !succeeds(&mut cargo(["deny", "fetch", "db"])) {
            return Ok(Outcome::Skipped("the advisory database cannot be fetched".to_owned()));
        }
        run_command(&mut cargo(["deny", "check", "advisories"])).map(|()| Outcome::Passed)
    });
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
