//! The command line: one file per command. Parsing yields what was typed; configuration makes of
//! it what holds.

mod agents;
mod attach;
mod audit;
mod browser;
mod cancel;
mod completions;
mod conversations;
mod db;
mod delegations;
mod demo;
mod dialogues;
mod doctor;
mod executions;
mod history;
mod hook_reports;
mod hooks;
mod host;
mod keys;
mod lanes;
mod mcp;
mod messages;
mod misuse;
mod models;
mod my_login;
mod openapi;
mod parts;
mod projects;
mod run;
mod runs;
mod serve;
mod servers;
mod skills;
mod subagents;
mod tasks;
mod team;
mod tenants;
mod trust;
mod usage;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use shikiri_app::App;
use shikiri_model::ids::TenantId;

use crate::config::{Config, LogFormat, Settings, Surroundings};
use crate::env_vars;
use crate::exit::{Exit, Failure};
use crate::lane_files;
use crate::logging;
use crate::output::complain;
use crate::player;
use crate::trust::ConfigUse;
use crate::trust_audit;
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
    /// Do one turn of a conversation, told as it happens; Ctrl-C cancels it
    Run(run::Arguments),
    /// Serve MCP over stdin and stdout, on the same store
    Mcp(mcp::Arguments),
    /// Answer one event of Claude Code: read from stdin, answered on stdout
    Hook,
    /// Claude Code's hooks and conventions: install, uninstall, status, init, check, log, stats
    Hooks(hooks::Arguments),
    /// Call tools of MCP servers: list, tools, call, resume, tokens
    Host(host::Arguments),
    /// Owners of everything: create, list, show, set, delete
    #[command(subcommand)]
    Tenants(tenants::Command),
    /// API keys: create, list, revoke a tenant's; rotate-admin
    #[command(subcommand)]
    Keys(keys::Command),
    /// Who changed who may do what: tenants, keys, models, servers, agents
    Audit(audit::Arguments),
    /// AI models with their engines and prices: create, list, show, set
    #[command(subcommand)]
    Models(models::Command),
    /// MCP servers of a tenant: create, list, show, set, remove, check
    #[command(subcommand)]
    Servers(servers::Command),
    /// Skills of a tenant: create, list, show, set, remove
    #[command(subcommand)]
    Skills(skills::Command),
    /// Conversations of a tenant: create, list, show, set, archive, messages, remove
    #[command(subcommand)]
    Conversations(conversations::Command),
    /// Places where agents work together: create, list, show
    #[command(subcommand)]
    Projects(projects::Command),
    /// Agents of a project, AI or human: add, list, show
    #[command(subcommand)]
    Agents(agents::Command),
    /// Work of a project's agents: add, list, show, set
    #[command(subcommand)]
    Tasks(tasks::Command),
    /// Messages between agents: send, list, show
    #[command(subcommand)]
    Messages(messages::Command),
    /// What agents' task sessions asked their chat sessions to talk about: list, show
    #[command(subcommand)]
    Delegations(delegations::Command),
    /// Talks between two agents: list, show, cancel
    #[command(subcommand)]
    Dialogues(dialogues::Command),
    /// Durable runs of agents: start, list, show
    #[command(subcommand)]
    Runs(runs::Command),
    /// Turns of conversations: list, show
    #[command(subcommand)]
    Executions(executions::Command),
    /// Agents' own chats at ChatGPT and Gemini: list, show, import, export, clean
    #[command(subcommand)]
    Lanes(lanes::Command),
    /// Who asked what at the providers
    History(history::Arguments),
    /// Subagents of Claude Code, as its hooks tell of them: a tree with roles, tokens and cost
    Subagents(subagents::Arguments),
    /// The browser in which providers are asked: login, check
    #[command(subcommand)]
    Browser(browser::Command),
    /// Tokens and what they cost
    Usage(usage::Arguments),
    /// Follow a run or an execution, from its first event on; Ctrl-C detaches
    Attach(attach::Arguments),
    /// Stop a run or an execution
    Cancel(cancel::Arguments),
    /// The database: check, backup, restore, migrate
    #[command(subcommand)]
    Db(db::Command),
    /// Agree to what a project's own files start, open or receive; take it back; list agreements
    Trust(trust::Arguments),
    /// Look at everything that could be wrong
    Doctor(doctor::Arguments),
    /// Play an agent of a team: started by a server, for agents whose model is the offline one
    #[command(hide = true, name = player::COMMAND)]
    Play,
    /// Print a completion script for a shell
    Completions(completions::Arguments),
    /// Print the OpenAPI document of the server
    Openapi,
}

/// For commands about one tenant.
#[derive(Args, Clone)]
struct TenantArgument {
    /// The tenant
    #[arg(id = "tenant", long = "tenant", value_name = "ID", default_value = "local")]
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
        Err(error) => return misuse::answer(&error),
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
        Command::Play => player::run().await,
        Command::Demo(arguments) => demo::run(&arguments).await,
        Command::Serve(arguments) => serve::run(&global, arguments).await,
        Command::Mcp(arguments) => mcp::run(&global, arguments).await,
        Command::Browser(command) => browser::run(&global, command).await,
        // Alone it is answered before this; with other words the hook takes none of them.
        Command::Hook => shikiri_hook::answer_and_exit(),
        Command::Hooks(arguments) => hooks::run(&global, arguments).await,
        Command::Host(arguments) => host::run(&global, arguments).await,
        Command::Run(arguments) => run::run(&global, arguments).await,
        Command::Doctor(arguments) => doctor::run(&global.config_for(&[])?, &arguments).await,
        Command::Trust(arguments) => trust::run(&global, &arguments).await,
        Command::Db(command) => {
            let config = global.config()?;
            trust_audit::record(&config, config.trust.take_acts()).await;
            db::run(&config, command).await
        }
        Command::Tenants(command) => {
            let app = open(&global.config()?, command.access()).await?;
            tenants::run(&app, command).await
        }
        Command::Keys(command) => {
            let config = global.config()?;
            keys::run(&open(&config, command.access()).await?, &config, command).await
        }
        Command::Audit(arguments) => {
            audit::run(&open(&global.config()?, arguments.access()).await?, arguments).await
        }
        Command::Models(command) => {
            models::run(&open(&global.config()?, command.access()).await?, command).await
        }
        Command::Servers(command) => {
            servers::run(&open(&global.config()?, command.access()).await?, command).await
        }
        Command::Skills(command) => {
            skills::run(&open(&global.config()?, command.access()).await?, command).await
        }
        Command::Conversations(command) => {
            conversations::run(&open(&global.config()?, command.access()).await?, command).await
        }
        Command::Projects(command) => {
            projects::run(&open(&global.config()?, command.access()).await?, command).await
        }
        Command::Agents(command) => {
            agents::run(&open(&global.config()?, command.access()).await?, command).await
        }
        Command::Tasks(command) => {
            tasks::run(&open(&global.config()?, command.access()).await?, command).await
        }
        Command::Messages(command) => {
            messages::run(&open(&global.config()?, command.access()).await?, command).await
        }
        Command::Delegations(command) => {
            delegations::run(&open(&global.config()?, Access::Read).await?, command).await
        }
        Command::Dialogues(command) => {
            dialogues::run(&open(&global.config()?, command.access()).await?, command).await
        }
        Command::Runs(command) => {
            let config = global.config()?;
            runs::run(&open(&config, command.access()).await?, &config, command).await
        }
        Command::Executions(command) => {
            executions::run(&open(&global.config()?, Access::Read).await?, command).await
        }
        Command::Lanes(command) => {
            let config = global.config()?;
            let app = open(&config, command.access()).await?;
            if command.access() == Access::Write {
                lane_files::take_in(&app, &config).await;
            }
            lanes::run(&app, command).await
        }
        Command::History(arguments) => {
            history::run(&open(&global.config()?, Access::Read).await?, arguments).await
        }
        Command::Subagents(arguments) => {
            subagents::run(&open(&global.config()?, arguments.access()).await?, arguments).await
        }
        Command::Usage(arguments) => {
            usage::run(&open(&global.config()?, Access::Read).await?, arguments).await
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

    /// The configuration for a command that works on the store.
    fn config(&self) -> Result<Config, Failure> {
        self.config_for(&[ConfigUse::Store])
    }

    /// The configuration for a command that uses these parts of it.
    fn config_for(&self, uses: &[ConfigUse]) -> Result<Config, Failure> {
        let config = Config::load_for(uses, self.settings(), &Surroundings::of_process())?;
        logging::start(&config, "warn")?;
        Ok(config)
    }
}

async fn open(config: &Config, access: Access) -> Result<App, Failure> {
    let app = wiring::open_app(config, &wiring::offer(), access).await?;
    Ok(app.acting_as(wiring::person()))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_well_formed() {
        super::Arguments::command().debug_assert();
    }
}
