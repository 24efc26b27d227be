//! `cargo xtask chaos NAME`: the stories in which things are killed. They are ordinary tests of
//! the program's `chaos` module; here they run alone, with their output, and on request long.

use anyhow::{Result, bail};
use clap::Args;

use crate::cargo::{cargo, run as run_command};
use crate::postgres::Postgres;

#[derive(Args)]
pub(crate) struct Arguments {
    /// Which story; several if their names begin alike
    #[arg(required_unless_present = "list")]
    name: Option<String>,
    /// Many rounds instead of a few
    #[arg(long)]
    long: bool,
    /// Only list the stories
    #[arg(long)]
    list: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let name = arguments.name.as_deref().unwrap_or_default();
    let stories = format!("chaos::{name}");
    let mut command = cargo(["test", "--package", "shikiri", "--test", "it", "--"]);
    command.arg(&stories);
    if arguments.list {
        return run_command(command.arg("--list"));
    }
    if matching(&stories)? == 0 {
        bail!("no chaos story begins with {name:?}; `cargo xtask chaos --list` shows them");
    }
    let postgres = Postgres::if_installed()?;
    if arguments.long {
        command.env("SHIKIRI_LONG", "1");
    }
    run_command(postgres.export(command.arg("--nocapture")))
}

/// How many tests a name selects. The harness calls zero tests a success; a chaos run that did
/// nothing must not look like one that held.
fn matching(stories: &str) -> Result<usize> {
    let listing = ["test", "--quiet", "--package", "shikiri", "--test", "it", "--"];
    let output = cargo(listing).args([stories, "--list"]).output()?;
    if !output.status.success() {
        bail!("cannot list the tests:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    let listed = String::from_utf8_lossy(&output.stdout);
    Ok(listed.lines().filter(|line| line.ends_with(": test")).count())
}
