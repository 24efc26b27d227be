//! `shikiri completions SHELL`.

use clap::Args;
use clap_complete::Shell;

use super::complete_values::registration;
use crate::exit::{Exit, Failure};
use crate::output::Output;

#[derive(Args)]
pub(super) struct Arguments {
    /// The shell that reads the script
    shell: Shell,
}

/// Prints the script that makes the shell ask this program at each press of the key.
pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let shell = arguments.shell.to_string();
    let script = registration(&shell).map_err(|error| Failure::told(Exit::Failed, error))?;
    Output::stdout().line(script.trim())
}
