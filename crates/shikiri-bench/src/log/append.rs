//! 64 appenders that each wait for their own durable commit, against bare SQLite on the same
//! tables: one row for each commit, and 64 rows for each commit.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use rusqlite::{TransactionBehavior, params};
use shikiri_sqlite::{DatabaseOptions, SqliteDatabase};
use shikiri_store::Store;

use super::open;
use crate::figure::{Figure, Goal};
use crate::payload;
use crate::world::World;

const APPENDERS: u32 = 64;

pub(super) fn measure(world: &World) -> Result<Vec<Figure>> {
    let (mut store, mut singles, mut batches) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..world.rounds() {
        let path = |name: &str| world.scratch().join(format!("{name}-{round}.db"));
        singles.push(bare(&path("singles"), 1, world.turn())?);
        store.push(world.runtime.block_on(appenders(&path("store"), world.turn()))?);
        batches.push(bare(&path("batches"), APPENDERS, world.turn())?);
    }
    let name = "64 appenders, each awaiting its commit";
    Ok(vec![
        Figure::new(name, "events/s", store.clone())
            .against("bare one-row commits", &singles)
            .goal(Goal::RatioAtLeast(8.0)),
        Figure::new(name, "events/s", store)
            .against("bare batches of 64", &batches)
            .goal(Goal::RatioAtLeast(0.7)),
    ])
}

/// Rows in a second, `batch` of them in each commit, every row in another stream.
fn bare(path: &Path, batch: u32, turn: Duration) -> Result<f64> {
    let mut database = SqliteDatabase::open(path, &DatabaseOptions::default())?;
    for number in 0..APPENDERS {
        let sql = "INSERT INTO streams (name, tenant, head) VALUES (?1, 'local', 0)";
        database.execute(sql, [payload::stream(number).as_str()])?;
    }
    let started = Instant::now();
    let mut rows = 0_u32;
    while started.elapsed() < turn {
        let transaction = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
        {
            let mut head =
                transaction.prepare_cached("UPDATE streams SET head = ?2 WHERE id = ?1")?;
            let mut event = transaction.prepare_cached(
                "INSERT INTO events (stream, first_seq, last_seq, at, body)
                 VALUES (?1, ?2, ?2, 1794772800000, ?3)",
            )?;
            for _ in 0..batch {
                let (stream, seq) = (rows % APPENDERS + 1, rows / APPENDERS + 1);
                head.execute([stream, seq])?;
                event.execute(params![stream, seq, payload::stored_line()])?;
                rows += 1;
            }
        }
        transaction.commit()?;
    }
    Ok(f64::from(rows) / started.elapsed().as_secs_f64())
}

async fn appenders(path: &Path, turn: Duration) -> Result<f64> {
    let store = open(path)?;
    let started = Instant::now();
    let appenders: Vec<_> = (0..APPENDERS)
        .map(|number| {
            let (store, stream) = (store.clone(), payload::stream(number));
            tokio::spawn(async move {
                let mut events = 0_u32;
                while started.elapsed() < turn {
                    store.commit(payload::commit(&stream)).await?;
                    events += 1;
                }
                anyhow::Ok(events)
            })
        })
        .collect();
    let mut events = 0;
    for appender in appenders {
        events += appender.await??;
    }
    Ok(f64::from(events) / started.elapsed().as_secs_f64())
}
