//! Measures the SQLite store against bare rusqlite on the same tables: how much of the possible
//! rate is left when every caller waits for its own commit. Run it with `--release`; an argument
//! (part of a variant's name) measures only that.

#![expect(clippy::print_stdout, clippy::expect_used, reason = "a measurement for people")]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::params;
use shikiri_model::event::{NewEvent, StreamId};
use shikiri_model::ids::TenantId;
use shikiri_sqlite::{DatabaseOptions, SqliteDatabase};
use shikiri_store::sqlite::{SqliteOptions, SqliteStore};
use shikiri_store::{Commit, Store, StreamAppend};

const APPENDERS: usize = 64;
const ROUND: Duration = Duration::from_millis(1_000);
const ROUNDS: usize = 5;

fn main() {
    let folder = tempfile::tempdir().expect("a folder");
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let only = std::env::args().nth(1).unwrap_or_default();
    let mut variants: Vec<(&str, Variant, Vec<f64>)> = vec![
        ("bare, one row each commit", Variant::Bare(1), vec![]),
        ("bare, 64 rows of 64 streams each commit", Variant::Bare(APPENDERS), vec![]),
        ("store, 64 appenders, 64 streams", Variant::Waiting(APPENDERS), vec![]),
        ("store, 64 appenders, 1 stream", Variant::Waiting(1), vec![]),
        ("store, 1 stream running ahead", Variant::Ahead(1), vec![]),
        ("store, 1,000 streams running ahead", Variant::Ahead(1_000), vec![]),
    ];
    variants.retain(|(name, ..)| name.contains(&only));
    for round in 0..ROUNDS {
        for (number, (_, variant, rates)) in variants.iter_mut().enumerate() {
            let path = folder.path().join(format!("{number}-{round}.db"));
            rates.push(match variant {
                Variant::Bare(batch) => bare(&path, *batch),
                Variant::Waiting(streams) => runtime.block_on(waiting(&path, *streams)),
                Variant::Ahead(streams) => runtime.block_on(running_ahead(&path, *streams)),
            });
        }
    }
    for (name, _, rates) in &mut variants {
        println!("{name:42} {:>9.0} events/s", median(rates));
    }
}

enum Variant {
    Bare(usize),
    Waiting(usize),
    Ahead(usize),
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn event() -> NewEvent {
    NewEvent::new("log", &serde_json::json!({ "text": "x".repeat(190) })).expect("an event")
}

fn bare(path: &Path, batch: usize) -> f64 {
    let mut database = SqliteDatabase::open(path, &DatabaseOptions::default()).expect("a database");
    for stream in 0..batch {
        database
            .execute(
                "INSERT INTO streams (name, tenant, head) VALUES (?1, 'local', 0)",
                [format!("run/run_{stream:032}")],
            )
            .expect("a stream");
    }
    let body = format!("1794772800000 log {}\n", event().data());
    let started = Instant::now();
    let mut seq = 0;
    while started.elapsed() < ROUND {
        seq += 1;
        let transaction = database
            .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
            .expect("a transaction");
        let mut head = transaction
            .prepare_cached("UPDATE streams SET head = ?2 WHERE id = ?1")
            .expect("a statement");
        let mut insert = transaction
            .prepare_cached(
                "INSERT INTO events (stream, first_seq, last_seq, at, body)
                 VALUES (?1, ?2, ?3, ?4, ?5)",
            )
            .expect("a statement");
        for stream in 1..=batch {
            let id = i64::try_from(stream).expect("a small number");
            head.execute(params![id, seq]).expect("a head");
            insert.execute(params![id, seq, seq, 1_794_772_800_000_i64, body]).expect("a row");
        }
        drop((head, insert));
        transaction.commit().expect("a commit");
    }
    seq as f64 * batch as f64 / started.elapsed().as_secs_f64()
}

fn open(path: &Path) -> Arc<SqliteStore> {
    Arc::new(SqliteStore::open(path, SqliteOptions::default()).expect("a store"))
}

/// Every appender waits for each of its commits.
async fn waiting(path: &Path, streams: usize) -> f64 {
    let store = open(path);
    let started = Instant::now();
    let appenders: Vec<_> = (0..APPENDERS)
        .map(|n| {
            let store = Arc::clone(&store);
            let stream = StreamId::new(format!("run/run_{:032}", n % streams));
            tokio::spawn(async move {
                let mut count = 0_u32;
                while started.elapsed() < ROUND {
                    let append =
                        StreamAppend::new(TenantId::local(), stream.clone(), vec![event()]);
                    store.commit(Commit::new().append(append)).await.expect("a commit");
                    count += 1;
                }
                count
            })
        })
        .collect();
    let mut count = 0;
    for appender in appenders {
        count += appender.await.expect("an appender");
    }
    f64::from(count) / started.elapsed().as_secs_f64()
}

/// One producer for all streams that waits only when many commits are under way.
async fn running_ahead(path: &Path, streams: usize) -> f64 {
    use futures_util::StreamExt as _;
    use futures_util::stream::FuturesUnordered;
    let store = open(path);
    let names: Vec<_> = (0..streams).map(|n| StreamId::new(format!("run/run_{n:032}"))).collect();
    let started = Instant::now();
    let mut under_way = FuturesUnordered::new();
    let mut count = 0_u32;
    while started.elapsed() < ROUND {
        let stream = names[count as usize % streams].clone();
        let append = StreamAppend::new(TenantId::local(), stream, vec![event()]);
        let store = Arc::clone(&store);
        under_way.push(tokio::spawn(async move {
            store.commit(Commit::new().append(append)).await.expect("a commit");
        }));
        count += 1;
        while under_way.len() >= 4_096 {
            under_way.next().await;
        }
    }
    while under_way.next().await.is_some() {}
    f64::from(count) / started.elapsed().as_secs_f64()
}
