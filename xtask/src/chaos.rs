//! `cargo xtask chaos NAME`: tests that kill processes. They are ordinary tests in the program's
//! `chaos` modules. This command runs them alone, with their output, and on request in their long
//! form.

use anyhow::{Result, bail};
use clap::Args;

use crate::cargo::{cargo, run as run_command};
use crate::peers::Peers;
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
    let found = matching(&stories)?;
    if arguments.list {
        found.iter().for_each(|story| println!("{story}"));
        return Ok(());
    }
    if found.is_empty() {
        bail!("no chaos story begins with {name:?}; `cargo xtask chaos --list` shows them");
    }
    let postgres = Postgres::if_installed()?;
    if arguments.long {
        command.env("SHIKIRI_LONG", "1");
    }
    postgres.export(command.arg("--nocapture"));
    run_command(Peers::if_installed().export(&mut command))
}

/// The tests that a name selects. The test harness reports zero tests as success, but a chaos run
/// without tests must fail.
fn matching(stories: &str) -> Result<Vec<String>> {
    let listing = ["test", "--quiet", "--package", "shikiri", "--test", "it", "--"];
    let output = cargo(listing).args([stories, "--list"]).output()?;
    if !output.status.success() {
        bail!("cannot list the tests:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(stories_in(&String::from_utf8_lossy(&output.stdout)))
}

fn stories_in(listed: &str) -> Vec<String> {
    listed
        .lines()
        .filter_map(|line| Some(line.strip_suffix(": test")?.split_once("chaos::")?.1))
        // Not a test: the entry point of the children that tests start.
        .filter(|name| *name != "child_role" && !name.ends_with("::child_role"))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_stories_are_listed() {
        let listed = "chaos::child::child_role: test\nchaos::sse_kill::a_story: test\n\
                      teams::chaos::a_run: test\ndemo::another: test\n\n\
                      4 tests, 0 benchmarks\n";
        assert_eq!(stories_in(listed), ["sse_kill::a_story", "a_run"]);
    }
}
