//! The hook of Claude Code: reads one event from standard input, decides it, and writes the answer
//! to standard output. `README.md` beside this file describes the protocol.
//!
//! Claude Code starts a process for every tool call. So all functions block, nothing is started
//! that is not needed, and an error never stops the tool call: the hook reports it on standard
//! error and exits with 0.
//!
//! - [`answer_and_exit`] is the whole program.
//! - [`hook_project`] finds the project, [`configured_store`] its store, and [`conventions_file`]
//!   reads its conventions.
//! - [`event_handler`] decides the event in one transaction, answers, and confirms. The decision
//!   itself is [`shikiri_model::hook::decide`].
//! - [`path_resolver`] finds where the paths of a call lead, for rules about paths.
//! - [`evidence_finder`] reads the evidence that a decision requests, mostly from a [`transcript`].
//!
//! "One run of the hook" in `README.md` has the steps, `docs/decisions/0009-hooks.md` the reasons.

#![forbid(unsafe_code)]

pub mod allowed_files;
pub mod configured_store;
mod conventions_copy;
pub mod conventions_file;
pub mod event_handler;
pub mod evidence_finder;
pub mod git_index;
pub mod git_worktree;
pub mod hook_project;
pub mod path_resolver;
mod stdin_reader;
pub mod transcript;
pub mod trust_file;
mod wal_cleanup;

use std::io::Write as _;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use shikiri_model::hook::HookInput;
use shikiri_model::time::Timestamp;

use crate::event_handler::{HookEventContext, HookFailure, HookHost, START_WAITS};
use crate::hook_project::HookProject;
pub use crate::wal_cleanup::{TIDY, truncate_wal_and_exit};

/// The longest time to an answer.
pub const DEADLINE: Duration = Duration::from_secs(2);

/// Answers the event on standard input and ends the process.
pub fn answer_and_exit() -> ! {
    let started = Instant::now();
    if let Err(problem) = answer(started) {
        // If this fails, there is no other place to report it.
        let _ = writeln!(std::io::stderr(), "shikiri hook: {problem}");
    }
    // Without destructors, because closing the database would only take time.
    std::process::exit(0)
}

fn answer(started: Instant) -> Result<(), HookFailure> {
    let text = stdin_reader::read(started + DEADLINE / 2)?;
    let payload = HookInput::parse(&text).map_err(|error| error.to_string())?;
    let project = HookProject::find(&payload)?;
    let path = project.conventions();
    let conventions = conventions_copy::load(&path, now()).unwrap_or_else(|problem| {
        let _ = writeln!(std::io::stderr(), "shikiri hook: {problem}; no conventions are given");
        conventions_file::broken(&path, &problem)
    });
    let me = format!("{}.{}", std::process::id(), now().as_millis());
    let host = HookHost {
        me,
        now: &now,
        lives: &evidence_finder::is_process_alive,
        start_waits: START_WAITS,
        started,
    };
    event_handler::handle_event(
        &HookEventContext { payload: &payload, project: &project, conventions: &conventions },
        &host,
    )
}

#[expect(clippy::disallowed_methods, reason = "a hook has no other clock")]
fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
