//! Benchmarks of Shikiri against theoretical limits and against its peers, measured in one run. Variants
//! take turns in rounds, and a figure is the median of the rounds. Goals are ratios where absolute times
//! would depend on the machine. A missed goal makes the exit code 1.
//!
//! Each benchmark is a module with the name of its command. It returns `Figure`s, which `report`
//! prints and compares with their goals. `world` holds the settings of the run and `child` the processes
//! that it starts. To start reading: `figure.rs`, then `hook.rs`.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

mod child;
mod engines;
mod executions;
mod figure;
mod hook;
mod lanes;
mod lists;
mod log;
mod machine;
mod mcp;
mod payload;
mod report;
mod sse;
mod teams;
mod world;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

use crate::child::Role;
use crate::world::World;

/// The program's own; the peers that are built in have it too.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(about = "Benchmarks of Shikiri against limits and peers")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The event log: group commit, wake-ups, replay, leases
    Log(Options),
    /// Durable SSE over HTTP: throughput, idle streams, reply latency
    Sse(Options),
    /// MCP over HTTP: a short tool, a tool that tells its progress, idle sessions
    Mcp(Options),
    /// Executions: the first event, throughput, a thousand at once, the CLI's lines
    Executions(Options),
    /// Native engines: a round of the model, a piece of text to its reader, many turns at once
    Engines(Options),
    /// Hooks as users install them: alone, sixteen at once, first ones; transcripts
    Hook(Options),
    /// Lanes: finding one of a thousand, and the browser beside a page's own time
    Lanes(Options),
    /// Lists, filters and usage on a store with a long history
    Lists(Options),
    /// Teams: from a message to the partner who waits for it, many dialogues at once, idle waits
    Teams(Options),
    /// A process of a benchmark: a reader, a client or a server
    #[command(hide = true, subcommand)]
    Child(Role),
}

#[derive(Args)]
struct Options {
    /// A short look: fewer rounds, smaller logs
    #[arg(long)]
    quick: bool,
    /// Only the parts whose name contains this
    #[arg(long)]
    only: Option<String>,
    /// Where the figures are kept as JSON [default: target/bench]
    #[arg(long)]
    out: Option<PathBuf>,
}

fn main() -> Result<ExitCode> {
    // An engine starts this program again to look after what it runs.
    if let Some(ended) = shikiri_engines::claude_code::run_supervisor_if_requested() {
        return Ok(ended);
    }
    // So does the browser bridge.
    if let Some(ended) = shikiri_browser::run_keeper_if_requested() {
        return Ok(ended);
    }
    if let Some(done) = executions::fake_claude::run_if_asked() {
        return done.map(|()| ExitCode::SUCCESS);
    }
    let (name, options) = match Arguments::parse().command {
        Command::Child(role) => return child::run(role).map(|()| ExitCode::SUCCESS),
        Command::Log(options) => ("log", options),
        Command::Sse(options) => ("sse", options),
        Command::Mcp(options) => ("mcp", options),
        Command::Executions(options) => ("executions", options),
        Command::Engines(options) => ("engines", options),
        Command::Hook(options) => ("hook", options),
        Command::Lanes(options) => ("lanes", options),
        Command::Lists(options) => ("lists", options),
        Command::Teams(options) => ("teams", options),
    };
    machine::raise_open_files()?;
    let world = World::new(options.quick, options.only, options.out)?;
    let figures = match name {
        "log" => log::measure(&world)?,
        "mcp" => mcp::measure(&world)?,
        "executions" => executions::measure(&world)?,
        "engines" => engines::measure(&world)?,
        "hook" => hook::measure(&world)?,
        "lanes" => lanes::measure(&world)?,
        "lists" => lists::measure(&world)?,
        "teams" => teams::measure(&world)?,
        _ => sse::measure(&world)?,
    };
    let kept = report::keep(name, &world, &figures)?;
    report::print(&figures);
    println!("\nkept in {}", kept.display());
    Ok(if figures.iter().all(figure::Figure::holds) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
