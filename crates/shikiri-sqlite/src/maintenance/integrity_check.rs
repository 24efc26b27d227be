//! Checks the integrity of a database, including every event.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, Row};
use shikiri_model::event::Chunk;

use crate::database_files::with_suffix;
use crate::error::OpenError;
use crate::migrate;
use crate::open_database::{lock_existing, open_checked, real_path};

/// The most problems in a report: a torn file has thousands of the same kind.
const MOST_PROBLEMS: usize = 100;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntegrityReport {
    pub schema: u32,
    /// Bytes of the database file and its log.
    pub file_bytes: u64,
    pub log_bytes: u64,
    pub streams: u64,
    pub chunks: u64,
    pub events: u64,
    /// The problems, at most a hundred.
    pub problems: Vec<String>,
}

impl IntegrityReport {
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }

    fn problem(&mut self, text: String) {
        if self.problems.len() < MOST_PROBLEMS {
            self.problems.push(text);
        }
    }
}

/// Reads the whole database while others may write.
pub fn check(path: &Path) -> Result<IntegrityReport, OpenError> {
    let path = &real_path(path)?;
    let _lock = lock_existing(path, Duration::from_secs(5))?;
    let bytes = |path: &Path| path.metadata().map_or(0, |found| found.len());
    let mut report = IntegrityReport {
        file_bytes: bytes(path),
        log_bytes: bytes(&with_suffix(path, "-wal")),
        ..IntegrityReport::default()
    };
    let examined = open_checked(path).and_then(|connection| {
        examine(&connection, &mut report).map_err(|error| OpenError::sqlite(path, error))
    });
    match examined {
        // A damaged file is a result of the check, not a failure.
        Err(OpenError::Damaged { cause, .. }) => report.problem(cause),
        outcome => outcome?,
    }
    Ok(report)
}

pub(super) fn examine(
    connection: &Connection,
    report: &mut IntegrityReport,
) -> rusqlite::Result<()> {
    // One transaction, so that all checks see the same state.
    connection.execute_batch("BEGIN DEFERRED")?;
    report.schema = migrate::version(connection)?.unwrap_or(0);
    integrity(connection, report)?;
    // In a torn file, row errors would only repeat the problem.
    if report.is_sound() && report.schema > 0 {
        events(connection, report)?;
    }
    connection.execute_batch("COMMIT")
}

fn integrity(connection: &Connection, report: &mut IntegrityReport) -> rusqlite::Result<()> {
    let mut pragma = connection.prepare("PRAGMA integrity_check")?;
    for line in pragma.query_map([], |row| row.get::<_, String>(0))? {
        match line? {
            ok if ok == "ok" => {}
            problem => report.problem(problem),
        }
    }
    let mut pragma = connection.prepare("PRAGMA foreign_key_check")?;
    for table in pragma.query_map([], |row| row.get::<_, String>(0))? {
        report.problem(format!("a row of {} names one that does not exist", table?));
    }
    Ok(())
}

/// A stream as its row describes it, and how much of that its chunks have confirmed.
struct CheckedStream {
    name: String,
    first_kept: i64,
    head: i64,
    next: i64,
}

fn events(connection: &Connection, report: &mut IntegrityReport) -> rusqlite::Result<()> {
    let mut select = connection.prepare("SELECT id, name, first_kept, head FROM streams")?;
    let mut streams = select
        .query_map([], |row| {
            let first_kept = row.get(2)?;
            let (name, head) = (row.get(1)?, row.get(3)?);
            Ok((row.get::<_, i64>(0)?, CheckedStream { name, first_kept, head, next: first_kept }))
        })?
        .collect::<rusqlite::Result<HashMap<_, _>>>()?;
    report.streams = streams.len() as u64;
    let mut select = connection.prepare(
        "SELECT stream, first_seq, last_seq, body FROM events ORDER BY stream, last_seq",
    )?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        report.chunks += 1;
        match streams.get_mut(&row.get(0)?) {
            Some(stream) => chunk(row, stream, report)?,
            None => {
                report.problem(format!("events of the unknown stream {}", row.get::<_, i64>(0)?))
            }
        }
    }
    for stream in streams.values().filter(|stream| stream.next != stream.head + 1) {
        report.problem(format!(
            "{}: its head is {} but its events end at {}",
            stream.name,
            stream.head,
            stream.next - 1
        ));
    }
    Ok(())
}

fn chunk(
    row: &Row<'_>,
    stream: &mut CheckedStream,
    report: &mut IntegrityReport,
) -> rusqlite::Result<()> {
    let (first, last): (i64, i64) = (row.get(1)?, row.get(2)?);
    if first != stream.next {
        let what = if first < stream.first_kept { "was removed" } else { "is missing" };
        report.problem(format!(
            "{}: event {} {what}, yet a chunk begins at {first}",
            stream.name, stream.next
        ));
    }
    stream.next = last + 1;
    let unsigned = |seq: i64| u64::try_from(seq).unwrap_or(0);
    match Chunk::from_stored(unsigned(first), unsigned(last), row.get(3)?) {
        Ok(chunk) => report.events += chunk.last_seq() - chunk.first_seq() + 1,
        Err(_) => report.problem(format!("{}: the chunk {first}–{last} is damaged", stream.name)),
    }
    Ok(())
}
