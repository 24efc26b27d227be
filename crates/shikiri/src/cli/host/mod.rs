//! `shikiri host`: calls tools of MCP servers, and resumes calls that another process left.

mod call;
mod list;
mod login;
mod places;
mod plain;
mod plan;
mod plan_view;
mod resume;
mod run;
mod seat;
mod shell;
mod tokens;

use clap::Subcommand;
use places::{Places, Wanted};
use shikiri_client::ClientError;
use shikiri_host::HostError;

use super::{Global, open};
use crate::config::Config;
use crate::exit::{Exit, Failure};
use crate::terminal::host::has_person;
use crate::wiring::{self, Access};

#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    places: Places,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// The servers, and whether they can be reached
    List(list::ListArguments),
    /// The tools of all servers, or of one
    Tools(list::ToolsArguments),
    /// Call a tool and wait for its answer; Ctrl-C cancels, twice leaves it for `resume`
    Call(call::Arguments),
    /// Take up calls that another process left
    Resume(resume::Arguments),
    /// Log in at a server that asks for it; `call` does so by itself at a terminal
    Login(login::Arguments),
    /// Forget a login
    Logout(login::Arguments),
    /// Carry out a plan of calls at several servers, or go on with one that was left
    Run(run::Arguments),
    /// Have a model make a plan for a goal, and carry it out if you agree
    Plan(plan::Arguments),
    /// What leads back to calls: list, clean
    #[command(subcommand)]
    Tokens(tokens::Command),
}

/// The names of the servers that the project's file has.
pub(super) fn names_in_file(config: &Config) -> Vec<String> {
    Places::default().names_in_file(config)
}

pub(super) async fn run(global: &Global, arguments: Arguments) -> Result<(), Failure> {
    let config = global.config()?;
    let command = arguments.command.as_ref();
    let wanted = Wanted {
        asks: command.is_some_and(Command::may_ask) && has_person(),
        left: command.is_none_or(|command| matches!(command, Command::Resume(_))),
        nothing: matches!(command, Some(Command::Tokens(_))),
    };
    let content = arguments.places.content(&config, wanted)?;
    let app = open(&config, Access::Write).await?;
    let host = arguments.places.host(app, &config, wanted, content.as_deref()).await?;
    let host = host.with_speaker(wiring::speaker());
    let Some(command) = arguments.command else {
        return shell::run(host, &config).await;
    };
    let done = match command {
        Command::List(arguments) => list::list(&host, arguments).await,
        Command::Tools(arguments) => list::tools(&host, &arguments).await,
        Command::Call(arguments) => call::run(&host, arguments).await,
        Command::Resume(arguments) => resume::run(&host, arguments).await,
        Command::Login(arguments) => login::log_in(&host, &config, &arguments).await,
        Command::Logout(arguments) => login::log_out(&host, &config, &arguments).await,
        Command::Run(arguments) => run::run(&host, arguments).await,
        Command::Plan(arguments) => plan::run(&host, arguments).await,
        Command::Tokens(command) => tokens::run(&host, command).await,
    };
    host.close().await;
    done
}

impl Command {
    /// Whether a person may be asked to log in. Not when several servers are queried.
    fn may_ask(&self) -> bool {
        match self {
            Self::Tools(arguments) => arguments.is_of_one(),
            Self::Call(arguments) => arguments.may_ask(),
            Self::Resume(arguments) => arguments.may_ask(),
            _ => false,
        }
    }
}

impl From<HostError> for Failure {
    fn from(error: HostError) -> Self {
        let exit = match error {
            HostError::NoServer { .. } | HostError::NoTool { .. } => Exit::NotFound,
            HostError::Server { ref error, .. } => exit_of(error),
            HostError::Cancelled { .. } => Exit::Failed,
            HostError::Call(_) | HostError::Changed { .. } => Exit::Refused,
            HostError::Plan(_) => Exit::Usage,
            HostError::App(error) => return error.into(),
        };
        Self::told(exit, error)
    }
}

fn exit_of(error: &ClientError) -> Exit {
    match error {
        ClientError::Unauthorized(_) => Exit::Refused,
        ClientError::Unreachable(_) | ClientError::Slow(_) | ClientError::Cut(_) => {
            Exit::Unavailable
        }
        _ => Exit::Failed,
    }
}

/// A count with its noun.
pub(super) fn count(many: usize, noun: &str) -> String {
    if many == 1 { format!("1 {noun}") } else { format!("{many} {noun}s") }
}
