//! The offline player: a team agent without a model. It is a separate program, which the server
//! starts for agents of the offline model. It does what a model would do, in the same way: over MCP
//! and HTTP, with the token of its session.
//!
//! The server's address and the token are only in its environment. It ends when its stdin closes,
//! which happens when its server dies.

mod chat;
mod door;
mod engine;
mod script;
mod task;
mod words;

use door::{ToolClient, Trouble};

use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::serve::stdin_end;

pub use engine::OfflineEngine;

/// This program's command for the player.
pub const COMMAND: &str = "play";
/// Private between a server and its player, so not a setting.
const URL: &str = "SHIKIRI_PLAYER_URL";
const TOKEN: &str = "SHIKIRI_PLAYER_TOKEN";
/// The prefix of everything that it writes to agents and people.
const LABEL: &str = "[offline player]";
/// How long it waits for more work. No model is involved, so starting again is cheap.
const WAIT_SECONDS: u64 = 3;

/// Plays until there is nothing left to do.
pub async fn run() -> Result<(), Failure> {
    tokio::select! {
        played = play() => played.map_err(|trouble| Failure::told(Exit::Failed, trouble)),
        () = stdin_end() => Ok(()),
    }
}

async fn play() -> Result<(), Trouble> {
    let of_environment =
        |name: &str| std::env::var(name).map_err(|_| Trouble::Broken(format!("{name} is not set")));
    let client = ToolClient::open(&of_environment(URL)?, &of_environment(TOKEN)?).await?;
    say("This is the offline player: no model is asked.");
    let played = match client.has_tool("get_next_action").await? {
        true => task::play(&client).await,
        false => chat::play(&client).await,
    };
    client.close().await;
    played
}

/// Prints a line. If the output is closed, the server is about to stop the player.
fn say(line: &str) {
    let _ = Output::stdout().line(line);
}
