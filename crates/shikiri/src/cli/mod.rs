//! The command line: one file per command. Parsing gives what was typed; the configuration decides
//! what applies.

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
mod run_answer;
mod runs;
mod serve;
mod servers;
mod skills;
mod status;
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

use crate::config::{Config, GlobalFlags, Settings, Surroundings};
use crate::exit::{Exit, Failure};
use crate::output::complain;
use crate::trust::ConfigUse;
use crate::wiring::{self, Access};
use crate::{env_vars, lane_files, logging, player, trust_audit};

/// How long unfinished work of an ended command may take.
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
    #[command(flatten)]
    flags: GlobalFlags,
}

#[derive(Subcommand)]
#[expect(clippy::large_enum_variant, reason = "there is one command in a process")]
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
    /// Durable runs of agents: start, list, show, answer
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
    /// What runs, what waits for you, and what today cost; also `shikiri` alone inside a project
    Status(status::Arguments),
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

/// For commands that print a tenant's records.
#[derive(Args, Clone)]
struct CommonArguments {
    #[command(flatten)]
    tenant: TenantArgument,
    #[command(flatten)]
    json: JsonArgument,
}

/// The whole program.
pub fn main() -> ExitCode {
    let words = status::with_default_command(std::env::args_os().collect());
    let arguments = match Arguments::try_parse_from(words) {
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
    // Runs a command that works on the store alone.
    macro_rules! on_store {
        ($module:ident, $command:expr, $access:expr) => {
            $module::run(&open(&global.config()?, $access).await?, $command).await
        };
        ($module:ident, $command:expr) => {{
            let command = $command;
            let access = command.access();
            on_store!($module, command, access)
        }};
    }
    match command {
        Command::Completions(arguments) => completions::run(&arguments),
        Command::Openapi => openapi::run(),
        Command::Play => player::run().await,
        Command::Demo(arguments) => demo::run(arguments).await,
        Command::Serve(arguments) => serve::run(&global, arguments).await,
        Command::Mcp(arguments) => mcp::run(&global, arguments).await,
        Command::Browser(command) => browser::run(&global, command).await,
        // `hook` alone is answered earlier. It takes no further arguments.
        Command::Hook => shikiri_hook::answer_and_exit(),
        Command::Hooks(arguments) => Box::pin(hooks::run(&global, arguments)).await,
        Command::Host(arguments) => host::run(&global, arguments).await,
        Command::Run(arguments) => run::run(&global, arguments).await,
        Command::Status(arguments) => Box::pin(status::run(&global, arguments)).await,
        Command::Doctor(arguments) => doctor::run(&global.config_for(&[])?, &arguments).await,
        Command::Trust(arguments) => trust::run(&global, &arguments).await,
        Command::Db(command) => {
            let config = global.config()?;
            trust_audit::record(&config, config.trust.take_acts()).await;
            db::run(&config, command).await
        }
        Command::Tenants(command) => on_store!(tenants, command),
        Command::Keys(command) => {
            let config = global.config()?;
            keys::run(&open(&config, command.access()).await?, &config, command).await
        }
        Command::Audit(arguments) => on_store!(audit, arguments),
        Command::Models(command) => on_store!(models, command),
        Command::Servers(command) => on_store!(servers, command),
        Command::Skills(command) => on_store!(skills, command),
        Command::Conversations(command) => on_store!(conversations, command),
        Command::Projects(command) => on_store!(projects, command),
        Command::Agents(command) => on_store!(agents, command),
        Command::Tasks(command) => on_store!(tasks, command),
        Command::Messages(command) => on_store!(messages, command),
        Command::Delegations(command) => on_store!(delegations, command, Access::Read),
        Command::Dialogues(command) => on_store!(dialogues, command),
        Command::Runs(command) => {
            let config = global.config()?;
            runs::run(&open(&config, command.access()).await?, &config, command).await
        }
        Command::Executions(command) => on_store!(executions, command, Access::Read),
        Command::Lanes(command) => {
            let config = global.config()?;
            let app = open(&config, command.access()).await?;
            if command.access() == Access::Write {
                lane_files::take_in(&app, &config).await;
            }
            lanes::run(&app, command).await
        }
        Command::History(arguments) => on_store!(history, arguments, Access::Read),
        Command::Subagents(arguments) => on_store!(subagents, arguments),
        Command::Usage(arguments) => on_store!(usage, arguments, Access::Read),
        Command::Attach(arguments) => on_store!(attach, arguments, Access::Read),
        Command::Cancel(arguments) => on_store!(cancel, arguments, Access::Write),
    }
}

impl Global {
    fn settings(&self) -> Settings {
        self.flags.settings.clone()
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
