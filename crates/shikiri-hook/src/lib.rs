//! One event of Claude Code's hooks: read from standard input, decided, answered on standard
//! output. A process for every tool call, so everything here blocks, nothing is started that is not
//! needed, and whatever goes wrong the tool call goes on: a hook says so on standard error and exits
//! with 0.

#![forbid(unsafe_code)]

mod conventions_copy;
pub mod conventions_file;
pub mod evidence;
pub mod files;
pub mod git_index;
mod input;
pub mod place;
mod tidy;
pub mod transcript;
pub mod turn;

use std::io::Write as _;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use shikiri_model::hook::Payload;
use shikiri_model::time::Timestamp;

use crate::place::Place;
pub use crate::tidy::{TIDY, tidy_and_exit};
use crate::turn::{Event, Host};

/// Whatever happens, Claude Code has its answer by then.
pub const DEADLINE: Duration = Duration::from_secs(2);

/// Answers the event on standard input, and ends the process.
pub fn answer_and_exit() -> ! {
    let started = Instant::now();
    if let Err(problem) = answer(started) {
        // Nobody is left to tell if this fails.
        let _ = writeln!(std::io::stderr(), "shikiri hook: {problem}; the tool call goes on");
    }
    // No destructors: closing the database would only cost time.
    std::process::exit(0)
}

fn answer(started: Instant) -> Result<(), String> {
    let text = input::read(started + DEADLINE / 2)?;
    let payload = Payload::parse(&text).map_err(|error| error.to_string())?;
    let place = Place::find(&payload)?;
    let conventions =
        conventions_copy::load(&place.conventions(), now()).unwrap_or_else(|problem| {
            let _ =
                writeln!(std::io::stderr(), "shikiri hook: {problem}; no conventions are given");
            Default::default()
        });
    let me = format!("{}.{}", std::process::id(), now().as_millis());
    let host = Host { me, now: &now, lives: &evidence::lives, started };
    turn::take(&Event { payload: &payload, place: &place, conventions: &conventions }, &host)
}

#[expect(clippy::disallowed_methods, reason = "a hook has no other clock")]
fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
