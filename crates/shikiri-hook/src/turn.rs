//! One event: decided and written in one transaction, then answered, then confirmed.

use std::io::Write as _;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rusqlite::TransactionBehavior;
use shikiri_model::hook::{Conventions, Decision, Evidence, Needs, Outcome, Payload, decide};
use shikiri_model::time::Timestamp;
use shikiri_sqlite::{Database, OpenOptions, Synchronous, hooks};

use crate::DEADLINE;
use crate::evidence::Finder;
use crate::place::{self, Place};

/// Whose rows these are: hooks run on the machine of whoever runs Claude Code.
const TENANT: &str = "local";

/// A log of writes that is longer is moved into the database by the hook that finds it so, after
/// its answer.
const LONG_LOG: u64 = 16 * 1024 * 1024;

/// What is left of the deadline for the rest when the database has kept us waiting.
const FOR_THE_REST: Duration = Duration::from_millis(300);

pub(crate) fn take(
    payload: &Payload,
    place: &Place,
    conventions: &Conventions,
    started: Instant,
) -> Result<(), String> {
    let mut database = open(place, started)?;
    let me = format!("{}.{}", std::process::id(), now().as_millis());
    let project = Some(place.root.to_string_lossy().into_owned());
    let mut finder = Finder::new(place, payload);
    let mut evidence = Evidence { me, project, ..Evidence::default() };
    let decision = loop {
        let wanted = match settle(&mut database, payload, &evidence, conventions, &finder, started)?
        {
            Outcome::Done(decision) => break decision,
            Outcome::Wants(wanted) => wanted,
        };
        if started.elapsed() + FOR_THE_REST > DEADLINE {
            return Err("the event could not be decided in time".to_owned());
        }
        finder.find(&wanted, &mut evidence, &database);
    };
    print(&decision, payload)?;
    if !decision.confirm.is_empty() {
        let confirmed = in_transaction(&mut database, |connection| {
            hooks::write(connection, TENANT, &decision.confirm)
        });
        // Not confirmed is not delivered: with this code Claude Code does not read the answer.
        if confirmed.is_err() {
            std::process::exit(1);
        }
    }
    if log_is_long(place) {
        // The next one tries again.
        let _ = database.checkpoint();
    }
    // The process is about to end: closing would only cost time.
    std::mem::forget(database);
    Ok(())
}

fn open(place: &Place, started: Instant) -> Result<Database, String> {
    let path = place.database();
    if !path.exists() {
        place::prepare(&place.folder())
            .map_err(|error| format!("cannot make {}: {error}", place.folder().display()))?;
    }
    let left = DEADLINE.saturating_sub(started.elapsed()).saturating_sub(FOR_THE_REST);
    let options = OpenOptions {
        synchronous: Synchronous::Normal,
        busy_timeout: left,
        checkpoint_on_close: false,
    };
    let database = Database::open(&path, &options).map_err(|error| error.to_string())?;
    if let Some(kept) = database.set_aside() {
        let _ = writeln!(
            std::io::stderr(),
            "shikiri hook: {} was damaged; it is kept as {}, and a new one was made",
            path.display(),
            kept.display()
        );
    }
    Ok(database)
}

/// Decides on rows that nobody else changes meanwhile, and writes what was decided.
fn settle(
    database: &mut Database,
    payload: &Payload,
    evidence: &Evidence,
    conventions: &Conventions,
    finder: &Finder<'_>,
    started: Instant,
) -> Result<Outcome, String> {
    let needs = Needs::of(payload, evidence, conventions);
    in_transaction(database, |connection| {
        let now = now();
        let known = hooks::load(connection, TENANT, &needs)?;
        let outcome = decide(payload, &known, evidence, conventions, now);
        if let Outcome::Done(decision) = &outcome {
            hooks::write(connection, TENANT, &decision.changes)?;
            finder.keep_positions(connection, now)?;
            let took = i64::try_from(started.elapsed().as_millis()).unwrap_or(i64::MAX);
            hooks::log(connection, TENANT, &payload.session_id, &decision.log, now, took)?;
        }
        Ok(outcome)
    })
    .map_err(|error| format!("the event was not recorded: {error}"))
}

fn in_transaction<T>(
    database: &mut Database,
    work: impl FnOnce(&rusqlite::Connection) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    let transaction = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let done = work(&transaction)?;
    transaction.commit()?;
    Ok(done)
}

fn print(decision: &Decision, payload: &Payload) -> Result<(), String> {
    let Some(answer) = decision.answer.to_json(&payload.event) else { return Ok(()) };
    let mut out = std::io::stdout().lock();
    writeln!(out, "{answer}")
        .and_then(|()| out.flush())
        .map_err(|error| format!("the answer could not be given: {error}"))
}

fn log_is_long(place: &Place) -> bool {
    let log = place.folder().join("state.db-wal");
    std::fs::metadata(log).is_ok_and(|found| found.len() > LONG_LOG)
}

#[expect(clippy::disallowed_methods, reason = "a hook has no other clock")]
fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
