//! `shikiri completions SHELL`.

use clap::Args;
use clap_complete::Shell;

use crate::exit::{Exit, Failure};
use crate::output::Output;

#[derive(Args)]
pub(super) struct Arguments {
    /// The shell that will read the script. `source <(SHIKIRI_COMPLETE=bash shikiri)` in its start file
    /// completes ids and names of the project's store as well
    shell: Shell,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    // Into memory first: the generator panics if its writer fails.
    let mut script = Vec::new();
    let mut command = super::command_line();
    clap_complete::generate(arguments.shell, &mut command, "shikiri", &mut script);
    let script = String::from_utf8(script).map_err(|error| Failure::told(Exit::Failed, error))?;
    Output::stdout().line(script.trim_end())
}
