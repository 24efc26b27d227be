//! Detects other processes' writes to the same file.
//!
//! `PRAGMA data_version` changes on a connection when, and only when, another connection has
//! committed. It reads shared memory, so it is checked in every batch and while idle. The writes
//! are then found by the ids of new chunks. A change of a stream without a chunk (closed, a new
//! note, erased) is recorded in the fact `quiet`: the number of such changes and the last stream's
//! name.

use rusqlite::{Connection, OptionalExtension, Result};
use shikiri_model::event::StreamId;

use super::store_maintenance::set_fact;
use crate::hub::{Hub, HubTopic, HubWake};

/// A version that SQLite never returns.
const UNKNOWN: i64 = -1;

#[derive(Debug)]
pub(super) struct ForeignWriteDetector {
    version: i64,
    /// The newest known chunk, of any process.
    last_event: i64,
    /// The number of changes without a chunk, of any process.
    quiet: u64,
    news: Option<ForeignWrites>,
}

/// Streams that other processes wrote to.
#[derive(Debug, Default)]
struct ForeignWrites {
    streams: Vec<StreamId>,
    /// More streams changed than are named.
    any_stream: bool,
}

/// This process's writes, which must not be reported as foreign.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnWrites {
    pub(super) last_event: i64,
    pub(super) quiet: Option<u64>,
}

impl ForeignWriteDetector {
    pub(super) fn new(connection: &Connection) -> Result<Self> {
        let version = data_version(connection)?;
        let (quiet, _) = quiet_changes(connection)?;
        Ok(Self { version, last_event: newest_event(connection)?, quiet, news: None })
    }

    /// Returns true if another process has written since the last check. Its writes are kept until
    /// [`ForeignWriteDetector::publish`].
    pub(super) fn detect_writes(&mut self, connection: &Connection) -> Result<bool> {
        let version = data_version(connection)?;
        if version == self.version {
            return Ok(false);
        }
        let mut select = connection.prepare_cached(
            "SELECT DISTINCT streams.name FROM events JOIN streams ON streams.id = events.stream
             WHERE events.id > ?1",
        )?;
        let names = select
            .query_map([self.last_event], |row| Ok(StreamId::new(row.get_ref(0)?.as_str()?)))?;
        let news = self.news.get_or_insert_default();
        for name in names {
            news.streams.push(name?);
        }
        let (quiet, last) = quiet_changes(connection)?;
        match quiet.saturating_sub(self.quiet) {
            0 => {}
            1 => news.streams.push(StreamId::new(last)),
            _ => news.any_stream = true,
        }
        self.quiet = quiet;
        self.last_event = newest_event(connection)?;
        self.version = version;
        Ok(true)
    }

    pub(super) fn last_event(&self) -> i64 {
        self.last_event
    }

    /// Records this process's writes, which it publishes itself.
    pub(super) fn record_own_writes(&mut self, own: OwnWrites) {
        self.last_event = own.last_event;
        self.quiet = own.quiet.unwrap_or(self.quiet);
    }

    /// A write failed and may be in the file in part. The next check finds it.
    pub(super) fn invalidate_version(&mut self) {
        self.version = UNKNOWN;
    }

    /// Wakes the subscribers of other processes' writes.
    pub(super) fn publish(&mut self, hub: &Hub) {
        let Some(news) = self.news.take() else { return };
        for stream in news.streams {
            hub.publish(&HubTopic::Stream(stream), &HubWake::Behind);
        }
        if news.any_stream {
            hub.publish_where(|topic| matches!(topic, HubTopic::Stream(_)));
        }
        // It is unknown which leases were released and which records became due, so all their
        // subscribers are woken.
        hub.publish_where(|topic| matches!(topic, HubTopic::Due(_) | HubTopic::Lease(_)));
    }
}

fn data_version(connection: &Connection) -> Result<i64> {
    connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))
}

/// The number of the newest chunk that ever existed. Numbers are not reused, because other
/// processes would take a new chunk for a known one.
fn newest_event(connection: &Connection) -> Result<i64> {
    let sql = "SELECT max(coalesce((SELECT max(id) FROM events), 0),
                coalesce((SELECT CAST(value AS INTEGER) FROM facts WHERE name = 'last_event'), 0))";
    connection.prepare_cached(sql)?.query_row([], |row| row.get(0))
}

/// Removes chunks. If the newest is among them, its number is kept.
pub(super) fn erase_keeping_last_id<T>(
    connection: &Connection,
    erase: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let newest = newest_event(connection)?;
    let erased = erase()?;
    if newest_event(connection)? < newest {
        set_fact(connection, "last_event", &newest.to_string())?;
    }
    Ok(erased)
}

/// Records `count` stream changes without a chunk for other processes.
pub(super) fn record_quiet_changes(connection: &Connection, count: u64, last: &str) -> Result<u64> {
    let quiet = quiet_changes(connection)?.0 + count;
    set_fact(connection, "quiet", &format!("{quiet} {last}"))?;
    Ok(quiet)
}

fn quiet_changes(connection: &Connection) -> Result<(u64, String)> {
    let noted: Option<String> = connection
        .prepare_cached("SELECT value FROM facts WHERE name = 'quiet'")?
        .query_row([], |row| row.get(0))
        .optional()?;
    let parsed = noted.as_deref().and_then(|text| text.split_once(' '));
    Ok(parsed
        .map_or((0, String::new()), |(count, last)| (count.parse().unwrap_or(0), last.to_owned())))
}
