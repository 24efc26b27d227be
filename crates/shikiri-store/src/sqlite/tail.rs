//! Notices what other processes wrote to the same file.
//!
//! `PRAGMA data_version` changes on a connection when any other connection has committed, and only
//! then. It costs a look at shared memory, so it is asked in every batch and while idle.

use rusqlite::{Connection, OptionalExtension, Result};
use shikiri_model::event::StreamId;

use crate::hub::{Hub, Topic, Wake};

#[derive(Debug)]
pub(super) struct Tail {
    version: i64,
    /// The newest chunk that is known, of whomever.
    last_event: i64,
    news: Option<Vec<StreamId>>,
}

impl Tail {
    pub(super) fn new(connection: &Connection) -> Result<Self> {
        let version = data_version(connection)?;
        Ok(Self { version, last_event: newest_event(connection)?, news: None })
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
            news.push(name?);
        }
        self.last_event = newest_event(connection)?;
        self.version = version;
        Ok(true)
    }

    /// Remembers a chunk of our own, which is published as itself.
    pub(super) fn wrote(&mut self, event: i64) {
        self.last_event = self.last_event.max(event);
    }

    /// Wakes whoever may wait for what others wrote.
    pub(super) fn publish(&mut self, hub: &Hub) {
        let Some(news) = self.news.take() else { return };
        for stream in news {
            hub.publish(&Topic::Stream(stream), &Wake::Behind);
        }
        // Which leases were freed and what became due is not known, only that it may have.
        hub.publish_where(|topic| matches!(topic, Topic::Due(_) | Topic::Lease(_)));
    }
}

fn data_version(connection: &Connection) -> Result<i64> {
    connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))
}

fn newest_event(connection: &Connection) -> Result<i64> {
    // Not max(id): after an erasure that is smaller than what was there.
    connection
        .prepare_cached("SELECT seq FROM sqlite_sequence WHERE name = 'events'")?
        .query_row([], |row| row.get(0))
        .optional()
        .map(|newest| newest.unwrap_or(0))
}
