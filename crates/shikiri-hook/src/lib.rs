//! One event of Claude Code's hooks: read from standard input, decided, answered on standard
//! output. A process for every tool call, so everything here blocks, nothing is started that is not
//! needed, and whatever goes wrong the tool call goes on: a hook says so on standard error and exits
//! with 0.

pub mod conventions_file;
mod evidence;
pub mod files;
mod input;
pub mod place;
pub mod transcript;
mod turn;

use std::io::Write as _;
use std::time::{Duration, Instant};

use shikiri_model::hook::Payload;

use crate::place::Place;

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
    let conventions = conventions_file::load(&place.conventions()).unwrap_or_else(|problem| {
        let _ = writeln!(std::io::stderr(), "shikiri hook: {problem}; no conventions are given");
        Default::default()
    });
    turn::take(&payload, &place, &conventions, started)
}
