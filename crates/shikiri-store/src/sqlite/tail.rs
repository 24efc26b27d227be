//! Notices what other processes wrote to the same file.
//!
//! `PRAGMA data_version` changes on a connection when any other connection has committed, and only
//! then. It costs a look at shared memory, so it is asked in every batch and while idle. What they
//! wrote is then found by the ids of new chunks. A stream that was changed without a chunk (closed,
//! a new note, erased) is told by the fact `quiet`: how many there were, and the last one's name.

use rusqlite::{Connection, OptionalExtension, Result};
use shikiri_model::event::StreamId;

use super::upkeep::set_fact;
use crate::hub::{Hub, Topic, Wake};

/// No version that SQLite gives.
const UNKNOWN: i64 = -1;

#[derive(Debug)]
pub(super) struct Tail {
    version: i64,
    /// The newest chunk that is known, of whomever.
    last_event: i64,
    /// Changes without a chunk so far, of whomever.
    quiet: u64,
    news: Option<News>,
}

/// Streams that others wrote to.
#[derive(Debug, Default)]
struct News {
    streams: Vec<StreamId>,
    /// More than could be named.
    any_stream: bool,
}

/// What of our own batch the tail must not take for news.
#[derive(Clone, Copy, Debug)]
pub(super) struct Own {
    pub(super) last_event: i64,
    pub(super) quiet: Option<u64>,
}

impl Tail {
    pub(super) fn new(connection: &Connection) -> Result<Self> {
        let version = data_version(connection)?;
        let (quiet, _) = quiet_changes(connection)?;
        Ok(Self { version, last_event: newest_event(connection)?, quiet, news: None })
    }

    /// True if somebody else has written since the last look. What they wrote is kept until
    /// [`Tail::publish`].
    pub(super) fn look(&mut self, connection: &Connection) -> Result<bool> {
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

    /// Remembers what is our own, which is published as itself.
    pub(super) fn wrote(&mut self, own: Own) {
        self.last_event = own.last_event;
        self.quiet = own.quiet.unwrap_or(self.quiet);
    }

    /// A write failed, and some of it may be there all the same: the next look finds it.
    pub(super) fn doubt(&mut self) {
        self.version = UNKNOWN;
    }

    /// Wakes whoever may wait for what others wrote.
    pub(super) fn publish(&mut self, hub: &Hub) {
        let Some(news) = self.news.take() else { return };
        for stream in news.streams {
            hub.publish(&Topic::Stream(stream), &Wake::Behind);
        }
        if news.any_stream {
            hub.publish_where(|topic| matches!(topic, Topic::Stream(_)));
        }
        // Which leases were freed and what became due is not known, only that it may have.
        hub.publish_where(|topic| matches!(topic, Topic::Due(_) | Topic::Lease(_)));
    }
}

fn data_version(connection: &Connection) -> Result<i64> {
    connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))
}

/// The number of the newest chunk that there ever was: numbers are not given twice, or others
/// would take a new chunk for one that they have seen.
fn newest_event(connection: &Connection) -> Result<i64> {
    let sql = "SELECT max(coalesce((SELECT max(id) FROM events), 0),
                coalesce((SELECT CAST(value AS INTEGER) FROM facts WHERE name = 'last_event'), 0))";
    connection.prepare_cached(sql)?.query_row([], |row| row.get(0))
}

/// Erases chunks; if the newest is among them, its number is kept.
pub(super) fn erasing<T>(connection: &Connection, erase: impl FnOnce() -> Result<T>) -> Result<T> {
    let newest = newest_event(connection)?;
    let erased = erase()?;
    if newest_event(connection)? < newest {
        set_fact(connection, "last_event", &newest.to_string())?;
    }
    Ok(erased)
}

/// Tells other processes of `count` streams that this transaction changed without a chunk.
pub(super) fn note_quiet(connection: &Connection, count: u64, last: &str) -> Result<u64> {
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
