//! Development commands, run as `cargo xtask COMMAND`: one file per command. CI runs the same
//! commands as developers. The crate is kept small, because every change to the product waits for
//! it.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "telling what it does is this program's job"
)]

mod apt;
mod bench;
mod cargo;
mod chaos;
mod deny;
mod dist;
mod fresh;
mod notices;
mod packages;
mod peers;
mod picture;
mod postgres;
mod provision;
mod reference;
mod report;
mod rows;
mod scratch;
mod test;
mod tools;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Shikiri's development commands")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Whether a checkout works: the tests on both databases; --all adds what else CI checks
    Test(test::Arguments),
    /// Run a benchmark in a release build
    Bench(bench::Arguments),
    /// Run a chaos story: kills, restarts, full disks
    Chaos(chaos::Arguments),
    /// Check that every requirement has its test
    Rows,
    /// Check the licences, sources and advisories of other people's crates; installs cargo-deny
    Deny,
    /// Install the programs of others that tests speak with; prints the lines that name them
    Peers,
    /// Build the programs that users install, as an archive, a wheel and npm packages in `dist`
    Dist(dist::Arguments),
    /// Install this checkout's wheel and npm packages into empty folders and play the demo from each
    Packages,
    /// Write the pages of docs/reference from the program
    Reference,
    /// Draw the README's picture from what the demo prints
    Picture(picture::Arguments),
    /// Prove that a fresh clone of HEAD builds and plays the demo with nothing but Rust
    Fresh(fresh::Arguments),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Test(arguments) => test::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Chaos(arguments) => chaos::run(&arguments),
        Command::Rows => rows::run(),
        Command::Deny => deny::run(),
        Command::Peers => peers::run(),
        Command::Dist(arguments) => dist::run(&arguments),
        Command::Packages => packages::run(),
        Command::Reference => reference::run(),
        Command::Picture(arguments) => picture::run(&arguments),
        Command::Fresh(arguments) => fresh::run(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
