//! Measures the SQLite store against bare rusqlite on the same tables: how much of the possible
//! rate is left when every caller waits for its own commit. Run it with `--release`.

#![expect(clippy::print_stdout, clippy::expect_used, reason = "a measurement for people")]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::params;
use shikiri_model::event::{NewEvent, StreamId};
use shikiri_model::ids::TenantId;
use shikiri_sqlite::{Database, OpenOptions};
use shikiri_store::sqlite::{SqliteOptions, SqliteStore};
use shikiri_store::{Append, Commit, Store};

const APPENDERS: usize = 64;
const ROUND: Duration = Duration::from_millis(1_000);
const ROUNDS: usize = 5;

fn main() {
    let folder = tempfile::tempdir().expect("a folder");
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let mut rates: Vec<(&str, Vec<f64>)> = [
        "bare, one row each commit",
        "bare, 64 rows of 64 streams each commit",
        "store, 64 appenders, 64 streams",
        "store, 64 appenders, 1 stream",
        "store, 1 stream running ahead",
        "store, 1,000 streams running ahead",
    ]
    .map(|name| (name, Vec::new()))
    .into();
    for round in 0..ROUNDS {
        let path = |name: &str| folder.path().join(format!("{name}-{round}.db"));
        rates[0].1.push(bare(&path("single"), 1));
        rates[1].1.push(bare(&path("bare"), APPENDERS));
        rates[2].1.push(runtime.block_on(waiting(&path("many"), APPENDERS)));
        rates[3].1.push(runtime.block_on(waiting(&path("one"), 1)));
        rates[4].1.push(runtime.block_on(running_ahead(&path("ahead"), 1)));
        rates[5].1.push(runtime.block_on(running_ahead(&path("thousand"), 1_000)));
    }
    let medians: Vec<f64> = rates.iter_mut().map(|(_, values)| median(values)).collect();
    for ((name, _), rate) in rates.iter().zip(&medians) {
        println!("{name:42} {rate:>9.0} events/s  {:.2} of bare batches", rate / medians[1]);
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn event() -> NewEvent {
    NewEvent::new("log", &serde_json::json!({ "text": "x".repeat(190) })).expect("an event")
}

fn bare(path: &Path, batch: usize) -> f64 {
    let mut database = Database::open(path, &OpenOptions::default()).expect("a database");
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
                    let append = Append::new(TenantId::local(), stream.clone(), vec![event()]);
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
        let append = Append::new(TenantId::local(), stream, vec![event()]);
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
