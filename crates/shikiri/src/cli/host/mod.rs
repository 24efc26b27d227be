//! `shikiri host`: calls tools of MCP servers, and takes calls up that another process left.

mod call;
mod list;
mod places;
mod plain;
mod resume;
mod tokens;

use clap::Subcommand;
use shikiri_app::host::HostError;
use shikiri_client::ClientError;

use super::{Global, open};
use crate::exit::{Exit, Failure};
use crate::wiring::Access;
use places::Places;

#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    places: Places,
    #[command(subcommand)]
    command: Command,
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
    /// What leads back to calls: list, clean
    #[command(subcommand)]
    Tokens(tokens::Command),
}

pub(super) async fn run(global: &Global, arguments: Arguments) -> Result<(), Failure> {
    let config = global.config()?;
    let app = open(&config, Access::Write).await?;
    let host = arguments.places.host(app, &config).await?;
    let done = match arguments.command {
        Command::List(arguments) => list::list(&host, arguments).await,
        Command::Tools(arguments) => list::tools(&host, &arguments).await,
        Command::Call(arguments) => call::run(&host, arguments).await,
        Command::Resume(arguments) => resume::run(&host, arguments).await,
        Command::Tokens(command) => tokens::run(&host, command).await,
    };
    host.close().await;
    done
}

impl From<HostError> for Failure {
    fn from(error: HostError) -> Self {
        let exit = match error {
            HostError::NoServer { .. } | HostError::NoTool { .. } => Exit::NotFound,
            HostError::Server { ref error, .. } => exit_of(error),
            HostError::Call(_) => Exit::Refused,
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

/// Host commands that say what they found as JSON, or to people.
pub(super) fn count(many: usize, noun: &str) -> String {
    if many == 1 { format!("1 {noun}") } else { format!("{many} {noun}s") }
}
