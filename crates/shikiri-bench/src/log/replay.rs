//! Resuming after a cursor in a small log and in one a hundred times its size, every event in a
//! row of its own, which is the worst case for an index.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Result, ensure};
use rusqlite::params;
use shikiri_model::event::StreamId;
use shikiri_model::ids::TenantId;
use shikiri_sqlite::{DatabaseOptions, SqliteDatabase, SynchronousMode};
use shikiri_store::Store;

use super::open;
use crate::figure::{Figure, Goal, median};
use crate::payload;
use crate::report::number;
use crate::world::World;

/// Events that a resuming reader has missed.
const MISSED: u32 = 150;

/// How the events of a log lie: streams follow each other, some of them taking turns at a time.
struct Shape {
    name: &'static str,
    at_a_time: u32,
    /// None: as long as the log.
    length: Option<u32>,
}

const SHAPES: [Shape; 2] = [
    Shape { name: "many streams", at_a_time: 20, length: Some(500) },
    Shape { name: "one long stream", at_a_time: 1, length: None },
];

pub(super) fn measure(world: &World) -> Result<Vec<Figure>> {
    let sizes = [10_000, if world.quick { 100_000 } else { 1_000_000 }];
    let reads = if world.quick { 300 } else { 1_000 };
    let mut figures = Vec::new();
    for shape in SHAPES {
        let [small, large] = sizes.map(|events| build(world.scratch(), events, &shape));
        let (small, large) = (small?, large?);
        let (mut in_small, mut in_large) = (Vec::new(), Vec::new());
        for _ in 0..world.rounds() {
            in_small.push(world.runtime.block_on(replay(&small, reads))?);
            in_large.push(world.runtime.block_on(replay(&large, reads))?);
        }
        let size = number(sizes[1].into());
        let name = format!("replay of {MISSED} events in a log of {size}, {}", shape.name);
        figures.push(
            Figure::new(name, "µs", in_large)
                .against("in a log of 10,000", &in_small)
                .goal(Goal::RatioAtMost(1.5)),
        );
    }
    Ok(figures)
}

struct Log {
    path: PathBuf,
    streams: u32,
    head: u32,
    /// Of the events that a reader has missed.
    bytes: usize,
}

fn build(folder: &Path, events: u32, shape: &Shape) -> Result<Log> {
    let path = folder.join(format!("{}-{events}.db", shape.name));
    let options =
        DatabaseOptions { synchronous: SynchronousMode::Normal, ..DatabaseOptions::default() };
    let mut database = SqliteDatabase::open(&path, &options)?;
    let head = shape.length.unwrap_or(events);
    let streams = events / head;
    let transaction = database.transaction()?;
    for number in 0..streams {
        let sql = "INSERT INTO streams (name, tenant, head) VALUES (?1, 'local', ?2)";
        let name = payload::stream(number);
        transaction.prepare_cached(sql)?.execute(params![name.as_str(), head])?;
    }
    let line = payload::stored_line();
    for event in 0..events {
        let sql = "INSERT INTO events (stream, first_seq, last_seq, at, body)
                   VALUES (?1, ?2, ?2, 1794772800000, ?3)";
        let (before, within) = (event / (shape.at_a_time * head), event % (shape.at_a_time * head));
        let stream = before * shape.at_a_time + within % shape.at_a_time + 1;
        let seq = within / shape.at_a_time + 1;
        transaction.prepare_cached(sql)?.execute(params![stream, seq, line])?;
    }
    transaction.commit()?;
    Ok(Log { path, streams, head, bytes: line.len() * MISSED as usize })
}

/// The median time of one replay, in microseconds.
async fn replay(log: &Log, reads: u32) -> Result<f64> {
    let store = open(&log.path)?;
    let mut times = Vec::new();
    for read in 0..reads {
        // Spread over the whole log, the same places in every round.
        let place = read.wrapping_mul(0x9e37_79b1);
        let stream = payload::stream(place % log.streams);
        let after = (place / log.streams) % (log.head - MISSED);
        // A live log: after another's write a connection has forgotten the pages it knew.
        store.commit(payload::commit(&StreamId::new("other"))).await?;
        let started = Instant::now();
        let page = store.read(&TenantId::local(), &stream, after.into(), log.bytes).await?;
        times.push(started.elapsed().as_secs_f64() * 1e6);
        ensure!(page.chunks.len() == MISSED as usize, "{} events", page.chunks.len());
    }
    Ok(median(&times))
}
