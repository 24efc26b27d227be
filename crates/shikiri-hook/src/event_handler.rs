//! Handles one event: it is decided and written in one transaction, answered, and then confirmed.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, TransactionBehavior};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use shikiri_model::hook::{
    Conventions, EvidenceRequest, HookDecision, HookEvidence, HookInput, HookOutcome,
    HookRowChange, HookRows, HookRowsNeeded, decide as decide_on, paths_of_call,
};
use shikiri_model::time::Timestamp;
use shikiri_sqlite::{
    DatabaseOptions, LockWait, SqliteDatabase, SynchronousMode, hook_rows, set_aside_corrupt,
};

use crate::configured_store::ConfiguredStore;
use crate::evidence_finder::EvidenceFinder;
use crate::hook_project::{self, HookProject};
use crate::{DEADLINE, path_resolver, wal_cleanup};

/// The tenant of the rows: a hook runs on the machine of the person who runs Claude Code.
const TENANT: &str = "local";

/// The part of the deadline that is kept for the work after waiting for the database.
const FOR_THE_REST: Duration = Duration::from_millis(300);

/// How often to look whether the agent of another call has started, and the pause before it is looked
/// for again. On a busy machine it takes half a second.
pub const START_WAITS: u32 = 50;
const START_PAUSE: Duration = Duration::from_millis(20);

/// A pipe accepts this many bytes without waiting for its reader.
const TAKEN_AT_ONCE: usize = 4_096;

/// The process that handles the event, and its access to the machine.
pub struct HookHost<'a> {
    /// A unique name of this process.
    pub me: String,
    pub now: &'a dyn Fn() -> Timestamp,
    /// Whether another claimant is alive.
    pub lives: &'a dyn Fn(&str) -> bool,
    /// How often to look whether the agent of another call has started.
    pub start_waits: u32,
    pub started: Instant,
}

/// An event and its project.
pub struct HookEventContext<'a> {
    pub payload: &'a HookInput,
    pub project: &'a HookProject,
    pub conventions: &'a Conventions,
}

#[derive(Debug)]
pub enum HookDecisionError {
    Late,
    Store(rusqlite::Error),
}

impl std::fmt::Display for HookDecisionError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Late => f.write_str("the event could not be decided in time"),
            Self::Store(error) => write!(f, "the event was not recorded: {error}"),
        }
    }
}

impl HookHost<'_> {
    /// The time after which the hook does not wait any more.
    fn deadline(&self) -> Instant {
        self.started + DEADLINE.saturating_sub(FOR_THE_REST)
    }

    /// The time that is left for waiting.
    fn time_left(&self) -> Duration {
        self.deadline().saturating_duration_since(Instant::now())
    }
}

/// Why an event was not handled as it should be.
#[derive(Debug, Default)]
pub(crate) struct HookFailure {
    pub(crate) problem: String,
    /// A rule that needs no database denied the tool call.
    pub(crate) is_denied: bool,
}

impl From<String> for HookFailure {
    fn from(problem: String) -> Self {
        Self { problem, is_denied: false }
    }
}

impl std::fmt::Display for HookFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let effect =
            if self.is_denied { "a rule denies the tool call" } else { "the tool call goes on" };
        write!(f, "{}; {effect}", self.problem)
    }
}

/// Writes the answer to standard output. The process ends after it in any case. Without a database
/// that works, the rules hold that need none.
pub(crate) fn handle_event(
    event: &HookEventContext<'_>,
    host: &HookHost<'_>,
) -> Result<(), HookFailure> {
    match open_and_decide(event, host) {
        Ok((file, database, decision)) => {
            Ok(answer_and_confirm(&file, database, &decision, event, host)?)
        }
        Err(problem) => {
            let is_denied = answer_without_rows(event, host, &problem)?;
            Err(HookFailure { problem, is_denied })
        }
    }
}

fn open_and_decide<'a>(
    event: &HookEventContext<'a>,
    host: &HookHost<'_>,
) -> Result<(DatabaseFile<'a>, SqliteDatabase, HookDecision), String> {
    let file = DatabaseFile::find(event.project)?;
    let mut database = file.open(host)?;
    let mut waits = 0;
    let decided = loop {
        match decide_after(&mut database, event, host, waits) {
            Ok(None) => {
                // With exclusive access, the start would not be recorded while it is waited for.
                drop(database);
                std::thread::sleep(START_PAUSE);
                database = file.open(host)?;
                waits += 1;
            }
            Err(HookDecisionError::Store(error)) if is_corrupt_error(&error) => {
                drop(database);
                file.replace(host)?;
                database = file.open(host)?;
                break decide(&mut database, event, host);
            }
            Ok(Some(decision)) => break Ok(decision),
            Err(error) => break Err(error),
        }
    };
    let decision = decided.map_err(|failure| failure.to_string())?;
    Ok((file, database, decision))
}

fn answer_and_confirm(
    file: &DatabaseFile<'_>,
    database: SqliteDatabase,
    decision: &HookDecision,
    event: &HookEventContext<'_>,
    host: &HookHost<'_>,
) -> Result<(), String> {
    let answer = answer_text(decision, event);
    let is_alone = database.is_exclusive();
    // Exclusive access blocks all other processes, and writing a long answer can take any time.
    let mut database = Some(database);
    if is_alone && answer.len() > TAKEN_AT_ONCE {
        database = None;
    }
    write_answer(&answer, host)?;
    // If other processes have the database open, the server cleans up.
    if is_alone && wal_cleanup::is_due(&file.path) {
        wal_cleanup::spawn_wal_cleanup(&file.path);
    }
    // An error prevents the delivery: with its exit code Claude Code ignores the answer. This is
    // the last step, because after the confirmation no other hook delivers again.
    if !confirm_or_reopen(database, file, decision, host) {
        std::process::exit(1);
    }
    Ok(())
}

/// Decides without the database, whose problem is known. Returns whether the call is denied.
fn answer_without_rows(
    event: &HookEventContext<'_>,
    host: &HookHost<'_>,
    problem: &str,
) -> Result<bool, String> {
    let mut finder = EvidenceFinder::new(event.project, event.payload, host.lives, host.deadline());
    let mut evidence =
        HookEvidence { store_problem: Some(problem.to_owned()), ..first_evidence(event, host) };
    // Without rows, the role in the prompt is all that can be asked for.
    for _ in 0..2 {
        match decide_on(
            event.payload,
            &HookRows::default(),
            &evidence,
            event.conventions,
            (host.now)(),
        ) {
            HookOutcome::Wants(wanted) => finder.find(&wanted, &mut evidence, &|_| None),
            HookOutcome::Done(decision) => {
                write_answer(&answer_text(&decision, event), host)?;
                return Ok(decision.answer.deny.is_some());
            }
        }
    }
    Ok(false)
}

/// The facts that are known before anything is looked up.
fn first_evidence(event: &HookEventContext<'_>, host: &HookHost<'_>) -> HookEvidence {
    let project = event.project.root.to_string_lossy().into_owned();
    let paths = paths_of_call(event.payload, event.conventions, Some(&project));
    HookEvidence {
        me: host.me.clone(),
        project: Some(project),
        paths: path_resolver::resolve(&event.project.root, event.payload.cwd.as_deref(), &paths),
        ..HookEvidence::default()
    }
}

fn answer_text(decision: &HookDecision, event: &HookEventContext<'_>) -> String {
    let answer = decision.answer.to_json(&event.payload.event);
    answer.map(|answer| format!("{answer}\n")).unwrap_or_default()
}

fn write_answer(answer: &str, host: &HookHost<'_>) -> Result<(), String> {
    write_with_timeout(answer.as_bytes(), host)
        .map_err(|error| format!("the answer could not be given: {error}"))
}

/// Like [`confirm`], also if the database was closed for the answer. The process ends after it.
fn confirm_or_reopen(
    database: Option<SqliteDatabase>,
    file: &DatabaseFile<'_>,
    decision: &HookDecision,
    host: &HookHost<'_>,
) -> bool {
    let reopen = || (!decision.confirm.is_empty()).then(|| file.open(host).ok()).flatten();
    let Some(mut database) = database.or_else(reopen) else { return decision.confirm.is_empty() };
    let confirmed = confirm(&mut database, decision, host).unwrap_or(false);
    // Closing it would only take time.
    std::mem::forget(database);
    confirmed
}

/// Decides the event and writes everything except what [`confirm`] writes after the answer.
pub fn decide(
    database: &mut SqliteDatabase,
    event: &HookEventContext<'_>,
    host: &HookHost<'_>,
) -> Result<HookDecision, HookDecisionError> {
    let mut waits = 0;
    loop {
        if let Some(decision) = decide_after(database, event, host, waits)? {
            return Ok(decision);
        }
        waits += 1;
    }
}

/// Decides an event that has waited so often for the agents of other calls; None if it should wait
/// again.
fn decide_after(
    database: &mut SqliteDatabase,
    event: &HookEventContext<'_>,
    host: &HookHost<'_>,
    waits: u32,
) -> Result<Option<HookDecision>, HookDecisionError> {
    let mut finder = EvidenceFinder::new(event.project, event.payload, host.lives, host.deadline());
    let mut evidence = HookEvidence {
        start_waits: waits,
        start_wait_is_over: waits >= host.start_waits,
        ..first_evidence(event, host)
    };
    loop {
        database
            .wait_for_locks(LockWait::UpTo(host.time_left()))
            .map_err(HookDecisionError::Store)?;
        let wanted = match decide_in_transaction(database, event, &evidence, &finder, host) {
            Ok(HookOutcome::Done(decision)) => return Ok(Some(*decision)),
            Ok(HookOutcome::Wants(wanted)) => wanted,
            Err(error) => return Err(HookDecisionError::Store(error)),
        };
        match (host.time_left().is_zero(), evidence.is_late) {
            (false, _) => {}
            (true, true) => return Err(HookDecisionError::Late),
            // Decides without the missing evidence.
            (true, false) => {
                evidence.is_late = true;
                continue;
            }
        }
        if let EvidenceRequest::Start { .. } = wanted {
            return Ok(None);
        }
        let known = |path: &str| hook_rows::read_to(database, path).ok().flatten();
        finder.find(&wanted, &mut evidence, &known);
    }
}

/// Confirms that the answer was delivered. Returns false if the claim was lost: another claimant
/// then gives the same answer.
pub fn confirm(
    database: &mut SqliteDatabase,
    decision: &HookDecision,
    host: &HookHost<'_>,
) -> rusqlite::Result<bool> {
    if decision.confirm.is_empty() {
        return Ok(true);
    }
    database.wait_for_locks(LockWait::UpTo(host.time_left()))?;
    in_transaction(database, |connection| {
        hook_rows::confirm(connection, TENANT, &host.me, &decision.confirm)
    })
}

/// The database that a project's hooks write to.
struct DatabaseFile<'a> {
    path: PathBuf,
    /// The project, if the database is in its data folder.
    usual_of: Option<&'a HookProject>,
}

impl<'a> DatabaseFile<'a> {
    fn find(project: &'a HookProject) -> Result<Self, String> {
        let current = std::env::var_os("CLAUDE_PROJECT_DIR").map(PathBuf::from);
        let current = current.filter(|named| named.is_absolute());
        let current = current.or_else(|| std::env::current_dir().ok()).unwrap_or_default();
        match ConfiguredStore::find(&project.root, &current, &|name| std::env::var_os(name))? {
            ConfiguredStore::Default => {
                Ok(Self { path: project.database(), usual_of: Some(project) })
            }
            ConfiguredStore::File(path) => Ok(Self { path, usual_of: None }),
            ConfiguredStore::Server(source) => Err(format!(
                "{source} names a database server, which only a server of Shikiri writes to: post \
                 hooks to it with `shikiri hooks install --http URL`"
            )),
        }
    }

    fn open(&self, host: &HookHost<'_>) -> Result<SqliteDatabase, String> {
        if let Some(project) = self.usual_of {
            project.check_database()?;
            if !self.path.exists() {
                hook_project::prepare_folder(&project.folder()).map_err(|error| {
                    format!("cannot make {}: {error}", project.folder().display())
                })?;
            }
        }
        let options = DatabaseOptions {
            synchronous: SynchronousMode::Normal,
            busy_timeout: host.time_left(),
            checkpoint_on_close: false,
            brief: true,
        };
        let opened = SqliteDatabase::open(&self.path, &options);
        let database = opened.map_err(|error| error.to_string())?;
        if let Some(kept) = database.set_aside() {
            self.report_damage(kept);
        }
        Ok(database)
    }

    /// Handles damage that was not visible when the file was opened.
    fn replace(&self, host: &HookHost<'_>) -> Result<(), String> {
        let kept = set_aside_corrupt(&self.path, host.time_left());
        let kept = kept.map_err(|error| error.to_string())?;
        if let Some(kept) = kept {
            self.report_damage(&kept);
        }
        Ok(())
    }

    fn report_damage(&self, kept: &Path) {
        let _ = writeln!(
            std::io::stderr(),
            "shikiri hook: {} was damaged; it is kept as {}, and a new one was made",
            self.path.display(),
            kept.display()
        );
    }
}

fn is_corrupt_error(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}

/// Decides and writes in one transaction.
fn decide_in_transaction(
    database: &mut SqliteDatabase,
    event: &HookEventContext<'_>,
    evidence: &HookEvidence,
    finder: &EvidenceFinder<'_>,
    host: &HookHost<'_>,
) -> rusqlite::Result<HookOutcome> {
    let needs = HookRowsNeeded::of(event.payload, evidence, event.conventions);
    hook_rows::prepare(database, &needs)?;
    in_transaction(database, |connection| {
        let now = (host.now)();
        let known = hook_rows::load(connection, TENANT, &needs)?;
        let outcome = decide_on(event.payload, &known, evidence, event.conventions, now);
        if let HookOutcome::Wants(EvidenceRequest::Start { waiting: Some(call) }) = &outcome {
            hook_rows::write(connection, TENANT, &[HookRowChange::Spawn((**call).clone())])?;
        }
        if let HookOutcome::Done(decision) = &outcome {
            hook_rows::write(connection, TENANT, &decision.changes)?;
            for (path, read) in finder.read() {
                hook_rows::set_read_to(connection, path, read, now)?;
            }
            let took = i64::try_from(host.started.elapsed().as_millis()).unwrap_or(i64::MAX);
            let session_id = &event.payload.session_id;
            hook_rows::log(connection, TENANT, session_id, &decision.log, now, took)?;
        }
        Ok(outcome)
    })
}

fn in_transaction<T>(
    database: &mut SqliteDatabase,
    work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    let transaction = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let done = work(&transaction)?;
    transaction.commit()?;
    Ok(done)
}

/// Writes as fast as the reader reads, and gives up on a reader that does not read.
fn write_with_timeout(text: &[u8], host: &HookHost<'_>) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for part in text.chunks(TAKEN_AT_ONCE) {
        let left = Timespec::try_from(host.time_left()).unwrap_or_default();
        let pipe = rustix::stdio::stdout();
        if poll(&mut [PollFd::new(&pipe, PollFlags::OUT)], Some(&left))? == 0 {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        out.write_all(part)?;
        out.flush()?;
    }
    Ok(())
}
