//! The offline player: an agent of a team without a model. It is a program of its own, started by
//! the server where an agent's model is the offline one, and does what a model would do, through
//! the same door: MCP over HTTP, with the token of its session.
//!
//! Where it is to go, and its token, are in its environment and nowhere else. It ends when its
//! stdin does, which is when its server dies.

mod chat;
mod door;
mod engine;
mod script;
mod task;
mod words;

use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::serve::stdin_end;
use door::{Door, Trouble};

pub use engine::OfflineEngine;

/// The command of this program that plays.
pub const COMMAND: &str = "play";
/// Between a server and its player only, so not among the settings.
const URL: &str = "SHIKIRI_PLAYER_URL";
const TOKEN: &str = "SHIKIRI_PLAYER_TOKEN";
/// How everything begins that it writes to agents and people.
const LABEL: &str = "[offline player]";
/// How long it waits for more before it goes. No model is asked, so another start costs little.
const WAIT_SECONDS: u64 = 3;

/// Plays until nothing is left to do.
pub async fn run() -> Result<(), Failure> {
    tokio::select! {
        played = play() => played.map_err(|trouble| Failure::told(Exit::Failed, trouble)),
        () = stdin_end() => Ok(()),
    }
}

async fn play() -> Result<(), Trouble> {
    let of_environment =
        |name: &str| std::env::var(name).map_err(|_| Trouble::Broken(format!("{name} is not set")));
    let mut door = Door::open(&of_environment(URL)?, of_environment(TOKEN)?).await?;
    say("This is the offline player: no model is asked.");
    let played = match door.has_tool("get_next_action").await? {
        true => task::play(&mut door).await,
        false => chat::play(&mut door).await,
    };
    door.close().await;
    played
}

/// Tells what it does. If nobody listens any more, its server is about to end it.
fn say(line: &str) {
    let _ = Output::stdout().line(line);
}
