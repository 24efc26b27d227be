//! One event: decided and written in one transaction, then answered, then confirmed.

use std::io::Write as _;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, TransactionBehavior};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use shikiri_model::hook::{
    Conventions, Decision, Evidence, Needs, Outcome, Payload, decide as decide_on,
};
use shikiri_model::time::Timestamp;
use shikiri_sqlite::{Database, OpenOptions, Synchronous, Wait, hooks, set_aside_torn};

use crate::DEADLINE;
use crate::evidence::Finder;
use crate::place::{self, Place};
use crate::tidy;

/// Whose rows these are: hooks run on the machine of whoever runs Claude Code.
const TENANT: &str = "local";

/// What is left of the deadline for the rest when the database has kept us waiting.
const FOR_THE_REST: Duration = Duration::from_millis(300);

/// A pipe that is ready takes so many bytes without waiting for its reader.
const TAKEN_AT_ONCE: usize = 4_096;

/// Who takes the turn, and what it asks of the machine.
pub struct Host<'a> {
    /// This process: no two are called the same.
    pub me: String,
    pub now: &'a dyn Fn() -> Timestamp,
    /// Whether another one is still there.
    pub lives: &'a dyn Fn(&str) -> bool,
    pub started: Instant,
}

/// An event, and where it happens.
pub struct Event<'a> {
    pub payload: &'a Payload,
    pub place: &'a Place,
    pub conventions: &'a Conventions,
}

#[derive(Debug)]
pub enum Failure {
    Late,
    Store(rusqlite::Error),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Late => f.write_str("the event could not be decided in time"),
            Self::Store(error) => write!(f, "the event was not recorded: {error}"),
        }
    }
}

impl Host<'_> {
    /// When nobody may keep us waiting any longer.
    fn deadline(&self) -> Instant {
        self.started + DEADLINE.saturating_sub(FOR_THE_REST)
    }

    /// How long others may still keep us waiting.
    fn patience(&self) -> Duration {
        self.deadline().saturating_duration_since(Instant::now())
    }
}

/// Answers on standard output. The process ends after it, in any case.
pub(crate) fn take(event: &Event<'_>, host: &Host<'_>) -> Result<(), String> {
    let mut database = open(event.place, host)?;
    let decided = match decide(&mut database, event, host) {
        Err(Failure::Store(error)) if is_torn(&error) => {
            drop(database);
            replace(event.place, host)?;
            database = open(event.place, host)?;
            decide(&mut database, event, host)
        }
        decided => decided,
    };
    let decision = decided.map_err(|failure| failure.to_string())?;
    let answer = decision.answer.to_json(&event.payload.event);
    let answer = answer.map(|answer| format!("{answer}\n")).unwrap_or_default();
    let is_alone = database.is_alone();
    // Whoever is alone keeps all others out, and a long answer takes as long as its reader likes.
    let mut database = Some(database);
    if is_alone && answer.len() > TAKEN_AT_ONCE {
        database = None;
    }
    write_in_time(answer.as_bytes(), host)
        .map_err(|error| format!("the answer could not be given: {error}"))?;
    // Where others have it open too, whoever serves there does it.
    if is_alone && tidy::is_due(&event.place.database()) {
        tidy::begin(&event.place.database());
    }
    // Not confirmed is not delivered: with this code Claude Code does not read the answer. Last,
    // because from here on nobody would deliver again.
    if !confirm_at_last(database, event.place, &decision, host) {
        std::process::exit(1);
    }
    Ok(())
}

/// As [`confirm`], also where the database was closed for the answer. The process ends after it.
fn confirm_at_last(
    database: Option<Database>,
    place: &Place,
    decision: &Decision,
    host: &Host<'_>,
) -> bool {
    let reopen = || (!decision.confirm.is_empty()).then(|| open(place, host).ok()).flatten();
    let Some(mut database) = database.or_else(reopen) else { return decision.confirm.is_empty() };
    let confirmed = confirm(&mut database, decision, host).unwrap_or(false);
    // Closing would only cost time.
    std::mem::forget(database);
    confirmed
}

/// What an event leads to: written, but for what [`confirm`] writes once the answer is given.
pub fn decide(
    database: &mut Database,
    event: &Event<'_>,
    host: &Host<'_>,
) -> Result<Decision, Failure> {
    let mut finder = Finder::new(event.place, event.payload, host.lives, host.deadline());
    let project = Some(event.place.root.to_string_lossy().into_owned());
    let mut evidence = Evidence { me: host.me.clone(), project, ..Evidence::default() };
    loop {
        database.wait_for_locks(Wait::UpTo(host.patience())).map_err(Failure::Store)?;
        let wanted = match settle(database, event, &evidence, &finder, host) {
            Ok(Outcome::Done(decision)) => return Ok(*decision),
            Ok(Outcome::Wants(wanted)) => wanted,
            Err(error) => return Err(Failure::Store(error)),
        };
        match (host.patience().is_zero(), evidence.is_late) {
            (false, _) => {}
            (true, true) => return Err(Failure::Late),
            // What can be done without it is better than nothing.
            (true, false) => {
                evidence.is_late = true;
                continue;
            }
        }
        let known = |path: &str| hooks::read_to(database, path).ok().flatten();
        finder.find(&wanted, &mut evidence, &known);
    }
}

/// Writes that the answer has been given. False if this came too late: somebody else has taken it
/// on meanwhile, and gives the same answer.
pub fn confirm(
    database: &mut Database,
    decision: &Decision,
    host: &Host<'_>,
) -> rusqlite::Result<bool> {
    if decision.confirm.is_empty() {
        return Ok(true);
    }
    database.wait_for_locks(Wait::UpTo(host.patience()))?;
    in_transaction(database, |connection| {
        hooks::confirm(connection, TENANT, &host.me, &decision.confirm)
    })
}

fn open(place: &Place, host: &Host<'_>) -> Result<Database, String> {
    place.check_database()?;
    let path = place.database();
    if !path.exists() {
        place::prepare(&place.folder())
            .map_err(|error| format!("cannot make {}: {error}", place.folder().display()))?;
    }
    let options = OpenOptions {
        synchronous: Synchronous::Normal,
        busy_timeout: host.patience(),
        checkpoint_on_close: false,
        brief: true,
    };
    let database = Database::open(&path, &options).map_err(|error| error.to_string())?;
    if let Some(kept) = database.set_aside() {
        tell_of_damage(place, kept);
    }
    Ok(database)
}

/// Damage that did not show when the file was opened.
fn replace(place: &Place, host: &Host<'_>) -> Result<(), String> {
    let kept = set_aside_torn(&place.database(), host.patience());
    let kept = kept.map_err(|error| error.to_string())?;
    if let Some(kept) = kept {
        tell_of_damage(place, &kept);
    }
    Ok(())
}

fn tell_of_damage(place: &Place, kept: &std::path::Path) {
    let _ = writeln!(
        std::io::stderr(),
        "shikiri hook: {} was damaged; it is kept as {}, and a new one was made",
        place.database().display(),
        kept.display()
    );
}

fn is_torn(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}

/// Decides on rows that nobody else changes meanwhile, and writes what was decided.
fn settle(
    database: &mut Database,
    event: &Event<'_>,
    evidence: &Evidence,
    finder: &Finder<'_>,
    host: &Host<'_>,
) -> rusqlite::Result<Outcome> {
    let needs = Needs::of(event.payload, evidence, event.conventions);
    hooks::prepare(database, &needs)?;
    in_transaction(database, |connection| {
        let now = (host.now)();
        let known = hooks::load(connection, TENANT, &needs)?;
        let outcome = decide_on(event.payload, &known, evidence, event.conventions, now);
        if let Outcome::Done(decision) = &outcome {
            hooks::write(connection, TENANT, &decision.changes)?;
            for (path, read) in finder.read() {
                hooks::set_read_to(connection, path, read, now)?;
            }
            let took = i64::try_from(host.started.elapsed().as_millis()).unwrap_or(i64::MAX);
            let session_id = &event.payload.session_id;
            hooks::log(connection, TENANT, session_id, &decision.log, now, took)?;
        }
        Ok(outcome)
    })
}

fn in_transaction<T>(
    database: &mut Database,
    work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    let transaction = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let done = work(&transaction)?;
    transaction.commit()?;
    Ok(done)
}

/// Writes as fast as it is read, and gives up on a reader that does not read.
fn write_in_time(text: &[u8], host: &Host<'_>) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for part in text.chunks(TAKEN_AT_ONCE) {
        let left = Timespec::try_from(host.patience()).unwrap_or_default();
        let pipe = rustix::stdio::stdout();
        if poll(&mut [PollFd::new(&pipe, PollFlags::OUT)], Some(&left))? == 0 {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        out.write_all(part)?;
        out.flush()?;
    }
    Ok(())
}
