//! The command line: one file per command. Parsing gives what was typed; the configuration decides
//! what applies.

mod agents;
mod ask;
mod attach;
mod audit;
mod browser;
mod cancel;
mod command_groups;
mod complete_values;
mod completions;
mod conversations;
mod db;
mod delegations;
mod demo;
mod dialogues;
mod doctor;
mod examples;
mod executions;
mod history;
mod hook_reports;
mod hooks;
mod host;
mod id_argument;
mod keys;
mod lanes;
mod mcp;
mod messages;
mod missing_record;
mod misuse;
mod models;
mod my_login;
mod openapi;
mod parts;
mod projects;
#[cfg(test)]
mod reference_tests;
mod run;
mod run_answer;
mod runs;
mod schema;
mod serve;
mod servers;
mod skills;
mod status;
mod subagents;
mod tasks;
mod team;
mod tenants;
mod trust;
mod unused_options;
mod usage;
mod who;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgMatches, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use shikiri_app::App;
use shikiri_model::ids::TenantId;

use self::missing_record::LookupScope;
use crate::config::{Config, GlobalFlags, Settings, Surroundings};
use crate::exit::{Exit, Failure};
use crate::output::{Output, complain};
use crate::trust::ConfigUse;
use crate::wiring::{self, Access};
use crate::{env_vars, lane_files, logging, player, times, trust_audit};

/// How long unfinished work of an ended command may take.
const SHUTDOWN: Duration = Duration::from_secs(2);

#[derive(Parser)]
#[command(
    name = "shikiri",
    bin_name = "shikiri",
    version,
    about = "The session layer for teams of AI agents"
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
    /// Show times in UTC, as RFC 3339, on a terminal too
    #[arg(long, global = true)]
    utc: bool,
}

#[derive(Subcommand)]
#[expect(clippy::large_enum_variant, reason = "there is one command in a process")]
enum Command {
    /// See agents at work while servers are killed; no work is lost
    Demo(demo::Arguments),
    /// Start the server: REST, MCP, runs and teams at one address
    Serve(serve::Arguments),
    /// Say something to a model: one turn of a conversation
    Run(run::Arguments),
    /// Serve MCP over stdin and stdout, for Claude Code and others
    Mcp(mcp::Arguments),
    /// Answer one event of Claude Code (its settings call this)
    Hook,
    /// Give Claude Code's agents their rules, and see what they do
    Hooks(hooks::Arguments),
    /// Call tools of MCP servers, one by one or by a plan
    Host(host::Arguments),
    /// Customers or groups: they own all data, and are kept apart
    #[command(subcommand)]
    Tenants(tenants::Command),
    /// API keys of tenants, and the admin key
    #[command(subcommand)]
    Keys(keys::Command),
    /// Show who changed who may do what
    Audit(audit::Arguments),
    /// The models that conversations use: engines, names and prices
    #[command(subcommand)]
    Models(models::Command),
    /// MCP servers whose tools the turns of conversations may call
    #[command(subcommand)]
    Servers(servers::Command),
    /// Skills that the turns of conversations may use
    #[command(subcommand)]
    Skills(skills::Command),
    /// Talks of a user with a model: create, list, read, archive
    #[command(subcommand)]
    Conversations(conversations::Command),
    /// The projects that teams of agents work in
    #[command(subcommand)]
    Projects(projects::Command),
    /// The members of a project: AI agents and people
    #[command(subcommand)]
    Agents(agents::Command),
    /// What the members of a project are to do
    #[command(subcommand)]
    Tasks(tasks::Command),
    /// What members of a project wrote to each other outside dialogues
    #[command(subcommand)]
    Messages(messages::Command),
    /// What an agent at a task asked its chat session to settle
    #[command(subcommand)]
    Delegations(delegations::Command),
    /// Talks between two members of a project
    #[command(subcommand)]
    Dialogues(dialogues::Command),
    /// Durable runs of agents that are programs: start, list, answer
    #[command(subcommand)]
    Runs(runs::Command),
    /// The turns of conversations: answers, tools used, bills
    #[command(subcommand)]
    Executions(executions::Command),
    /// Which agent owns which chat at ChatGPT and Gemini
    #[command(subcommand)]
    Lanes(lanes::Command),
    /// Ask ChatGPT or Gemini in a browser, and print the answer
    Ask(ask::Arguments),
    /// Show who asked what at ChatGPT and Gemini
    History(history::Arguments),
    /// Show Claude Code's subagents, with roles, tokens and cost
    Subagents(subagents::Arguments),
    /// Show which agents of Claude Code used a file
    Who(who::Arguments),
    /// The browser for chat pages: log in once, check the pages
    #[command(subcommand)]
    Browser(browser::Command),
    /// Show tokens and what they cost
    Usage(usage::Arguments),
    /// Follow a run, or a turn of a conversation, to its end
    Attach(attach::Arguments),
    /// Stop a run, or a turn of a conversation
    Cancel(cancel::Arguments),
    /// Check, back up, restore or migrate the database
    #[command(subcommand)]
    Db(db::Command),
    /// Agree to what a project's own files start, open or receive
    Trust(trust::Arguments),
    /// Show what runs, what waits for you, and what today cost
    Status(status::Arguments),
    /// Look for problems of the project, its store and this machine
    Doctor(doctor::Arguments),
    /// Play an agent of a team: started by a server, for agents whose model is the offline one
    #[command(hide = true, name = player::COMMAND)]
    Play,
    /// The environment variables that this program reads
    #[command(hide = true, help_template = env_vars::manual())]
    Env,
    /// Print the JSON Schema of a file that you write, for editors
    Schema(schema::Arguments),
    /// Print a completion script for your shell
    Completions(completions::Arguments),
    /// Print the OpenAPI document of the REST API
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
    let words: Vec<OsString> = std::env::args_os().collect();
    match complete_values::answer_shell(&words) {
        Ok(true) => return ExitCode::SUCCESS,
        Ok(false) => {}
        // A shell that asks has no place for an explanation.
        Err(_) => return ExitCode::FAILURE,
    }
    let words = status::with_default_command(words);
    let parsed = command_line().try_get_matches_from(&words).and_then(|matches| {
        let arguments = Arguments::from_arg_matches(&matches)?;
        Ok((arguments, matches))
    });
    let (arguments, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return misuse::answer(&error, &words),
    };
    match unused_options::refuse(&matches).and_then(|()| run(arguments, &matches)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            complain(&failure);
            ExitCode::from(failure.code())
        }
    }
}

/// The command line with its groups, short flags and examples.
fn command_line() -> clap::Command {
    command_groups::arrange(Arguments::command())
}

fn run(arguments: Arguments, matches: &ArgMatches) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| {
        Failure::new(Exit::Unavailable, format!("cannot start threads: {error}"), "free resources")
    })?;
    let (global, scope) = (arguments.global.clone(), LookupScope::of(matches));
    let done = runtime.block_on(async {
        match Box::pin(dispatch(arguments)).await {
            Ok(()) => Ok(()),
            Err(failure) => Err(missing_record::explain(&global, &scope, failure).await),
        }
    });
    runtime.shutdown_timeout(SHUTDOWN);
    done
}

async fn dispatch(arguments: Arguments) -> Result<(), Failure> {
    let Arguments { global, command } = arguments;
    if global.utc {
        times::show_utc();
    }
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
        Command::Schema(arguments) => schema::run(&arguments),
        Command::Env => Output::stdout().line(env_vars::manual().trim_end()),
        Command::Play => player::run().await,
        Command::Demo(arguments) => demo::run(arguments).await,
        Command::Serve(arguments) => serve::run(&global, arguments).await,
        Command::Mcp(arguments) => Box::pin(mcp::run(&global, arguments)).await,
        Command::Ask(arguments) => Box::pin(ask::run(&global, arguments)).await,
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
        Command::Who(arguments) => {
            let config = global.config()?;
            who::run(&open(&config, Access::Read).await?, &config, arguments).await
        }
        Command::Usage(arguments) => on_store!(usage, arguments, Access::Read),
        Command::Attach(arguments) => on_store!(attach, arguments, attach::access()),
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
    let app = wiring::open_app(config, &wiring::offer(config), access).await?;
    Ok(app.acting_as(wiring::person()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_well_formed() {
        super::command_line().debug_assert();
    }
}
