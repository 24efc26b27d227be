//! `cargo xtask bench NAME`: one benchmark of shikiri-bench, in a release build.

use anyhow::Result;
use clap::Args;

use crate::cargo::{cargo, run as run_command, target_folder};
use crate::dist::Programs;
use crate::peers::Peers;
use crate::postgres::Postgres;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Which benchmark
    name: String,
    /// Passed on to it
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let postgres = Postgres::if_installed()?;
    let mut command = cargo(["run", "--release", "--package", "shikiri-bench", "--"]);
    command.arg(&arguments.name).args(&arguments.arguments);
    postgres.export(&mut command);
    if arguments.name == "hook" {
        // Hooks are measured in the forms in which users install them: packed, and built as the README
        // says.
        let programs = Programs::build()?;
        run_command(&mut cargo(["build", "--release"]))?;
        command.env("SHIKIRI_BENCH_EMPTY", programs.empty()?);
        command.env("SHIKIRI_BENCH_BUILT", target_folder().join("release"));
        command.env("SHIKIRI_BENCH_DIST", programs.folder);
    }
    if arguments.name == "teams" {
        // Two of its environments are processes of the main program, which must be beside the
        // benchmark.
        run_command(&mut cargo(["build", "--release", "--package", "shikiri"]))?;
    }
    run_command(Peers::if_installed().export(&mut command))
}
