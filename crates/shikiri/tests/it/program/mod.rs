//! The program as people and scripts call it.

mod command_line;
mod completions;
mod database;
mod file_schemas;
mod global_options;
mod help_examples;
mod outputs;
mod places;
mod prices;
mod questions;
mod runs;
mod status;
mod terminal;
mod usage;

use shikiri_testkit::Cli;
use tempfile::TempDir;

use crate::PROGRAM;

/// A fresh project folder and the program in it.
fn fresh() -> (TempDir, Cli) {
    let folder = TempDir::new().unwrap();
    let cli = Cli::new(PROGRAM, folder.path());
    (folder, cli)
}
