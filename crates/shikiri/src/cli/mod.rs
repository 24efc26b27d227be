//! The command line: one file per command. Parsing yields what was typed; configuration makes of
//! it what holds.

mod attach;
mod cancel;
mod completions;
mod db;
mod demo;
mod doctor;
mod keys;
mod mcp;
mod openapi;
mod runs;
mod serve;
mod tenants;
mod usage;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use shikiri_app::App;
use shikiri_model::ids::TenantId;

use crate::config::{Config, LogFormat, Settings, Surroundings};
use crate::env_vars;
use crate::exit::{Exit, Failure};
use crate::logging;
use crate::output::complain;
use crate::wiring::{self, Access};

/// How long leftovers of an ended command may take.
const SHUTDOWN: Duration = Duration::from_secs(2);

#[derive(Parser)]
#[command(
    name = "shikiri",
    bin_name = "shikiri",
    version,
    about = "The session layer for teams of AI agents",
    after_long_help = env_vars::manual()
)]
struct Arguments {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// What every command understands.
#[derive(Args, Clone)]
struct Global {
    /// Where the data lies: sqlite:PATH or postgres://… (put passwords in SHIKIRI_STORE instead)
    #[arg(long, global = true, value_name = "URL")]
    store: Option<String>,
    /// How logs are written to stderr
    #[arg(long, global = true, value_name = "FORMAT")]
    log_format: Option<LogFormat>,
}

#[derive(Subcommand)]
enum Command {
    /// Play a story: a run that survives the death of its server
    Demo(demo::Arguments),
    /// Serve REST and event streams, and carry runs
    Serve(serve::Arguments),
    /// Serve MCP over stdin and stdout, on the same store
    Mcp,
    /// Owners of everything: create, list, show, set, delete
    #[command(subcommand)]
    Tenants(tenants::Command),
    /// API keys: create, list, revoke a tenant's; rotate-admin
    #[command(subcommand)]
    Keys(keys::Command),
    /// Durable runs of agents: start, list, show
    #[command(subcommand)]
    Runs(runs::Command),
    /// Follow a run's events, from the first one on; Ctrl-C detaches
    Attach(attach::Arguments),
    /// Stop a run
    Cancel(cancel::Arguments),
    /// The database: check, backup, restore, migrate
    #[command(subcommand)]
    Db(db::Command),
    /// Look at everything that could be wrong
    Doctor(doctor::Arguments),
    /// Print a completion script for a shell
    Completions(completions::Arguments),
    /// Print the OpenAPI document of the server
    Openapi,
}

/// For commands about one tenant.
#[derive(Args, Clone)]
struct TenantArgument {
    /// The tenant
    #[arg(long = "tenant", value_name = "ID", default_value = "local")]
    id: TenantId,
}

/// For commands that read.
#[derive(Args, Clone, Copy)]
struct JsonArgument {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The whole program.
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return usage::answer(&error),
    };
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            complain(&failure);
            ExitCode::from(failure.code())
        }
    }
}

fn run(arguments: Arguments) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| {
        Failure::new(Exit::Unavailable, format!("cannot start threads: {error}"), "free resources")
    })?;
    let done = runtime.block_on(dispatch(arguments));
    runtime.shutdown_timeout(SHUTDOWN);
    done
}

async fn dispatch(arguments: Arguments) -> Result<(), Failure> {
    let Arguments { global, command } = arguments;
    match command {
        Command::Completions(arguments) => completions::run(&arguments),
        Command::Openapi => openapi::run(),
        Command::Demo(arguments) => demo::run(&arguments).await,
        Command::Serve(arguments) => serve::run(&global, arguments).await,
        Command::Mcp => mcp::run(&global).await,
        Command::Doctor(arguments) => doctor::run(&global.config()?, &arguments).await,
        Command::Db(command) => db::run(&global.config()?, command).await,
        Command::Tenants(command) => {
            let app = open(&global.config()?, command.access()).await?;
            tenants::run(&app, command).await
        }
        Command::Keys(command) => {
            let config = global.config()?;
            keys::run(&open(&config, command.access()).await?, &config, command).await
        }
        Command::Runs(command) => {
            let config = global.config()?;
            runs::run(&open(&config, command.access()).await?, &config, command).await
        }
        Command::Attach(arguments) => {
            attach::run(&open(&global.config()?, Access::Read).await?, arguments).await
        }
        Command::Cancel(arguments) => {
            cancel::run(&open(&global.config()?, Access::Write).await?, arguments).await
        }
    }
}

impl Global {
    fn settings(&self) -> Settings {
        Settings { store: self.store.clone(), log_format: self.log_format, ..Settings::default() }
    }

    /// The configuration for a command that is not the server.
    fn config(&self) -> Result<Config, Failure> {
        let config = Config::load(self.settings(), &Surroundings::of_process())?;
        logging::start(&config, "warn")?;
        Ok(config)
    }
}

async fn open(config: &Config, access: Access) -> Result<App, Failure> {
    wiring::open_app(config, wiring::agents(), access).await
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_well_formed() {
        super::Arguments::command().debug_assert();
    }
}
