//! From handing a commit in until a live reader has it, the commit itself included: readers in
//! the same process, in another process on the same file, on another node over PostgreSQL.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use shikiri_model::ids::TenantId;
use shikiri_store::{Append, Commit, Store};
use tokio::task::JoinSet;

use super::postgres::ScratchDatabase;
use super::reader::{Ages, Readers, open};
use crate::child::Process;
use crate::figure::{Figure, Goal};
use crate::payload;
use crate::world::World;

const STREAMS: u32 = 64;

/// Other processes follow a log that is busy, but leaves them some of the machine: the readers'
/// share of two cores is not what is asked.
const PAUSE: Duration = Duration::from_millis(10);

const FAR: [(&str, f64); 2] =
    [("commit to a reader in another process", 50.0), ("commit to a reader on another node", 20.0)];

pub(super) fn measure(world: &World) -> Result<Vec<Figure>> {
    let server = std::env::var("SHIKIRI_TEST_POSTGRES").ok();
    let (mut near, mut other, mut node) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..world.rounds() {
        let path = |name: &str| {
            world.scratch().join(format!("{name}-{round}.db")).to_string_lossy().into_owned()
        };
        near.push(world.runtime.block_on(same_process(&path("near"), world.turn()))?);
        other.push(world.runtime.block_on(other_process(&path("other"), world.turn()))?);
        if let Some(server) = &server {
            node.push(world.runtime.block_on(other_node(server, world.turn()))?);
        }
    }
    let name = "commit to a reader in the same process, full load";
    let mut figures = figures(name, &near, 2.0);
    figures.extend(self::figures(FAR[0].0, &other, FAR[0].1));
    if server.is_some() {
        figures.extend(self::figures(FAR[1].0, &node, FAR[1].1));
    } else {
        let reason = "SHIKIRI_TEST_POSTGRES is not set (`cargo xtask bench` sets it)";
        figures.push(Figure::missing(FAR[1].0, Goal::AtMost(FAR[1].1), reason));
    }
    Ok(figures)
}

fn figures(name: &str, ages: &[Ages], most_ms: f64) -> Vec<Figure> {
    let medians = ages.iter().map(|ages| ages.p50).collect();
    let slow = ages.iter().map(|ages| ages.p99).collect();
    vec![
        Figure::new(format!("{name}, p50"), "ms", medians).goal(Goal::AtMost(most_ms)),
        Figure::new(format!("{name}, p99"), "ms", slow),
    ]
}

async fn same_process(path: &str, turn: Duration) -> Result<Ages> {
    let store = open(path).await?;
    begin(&store).await?;
    let readers = Readers::start(Arc::clone(&store), STREAMS).await?;
    append(&store, turn, Duration::ZERO).await?;
    readers.finish().await
}

async fn other_process(place: &str, turn: Duration) -> Result<Ages> {
    let store = open(place).await?;
    begin(&store).await?;
    let mut reader = Process::role(["reader", place, &STREAMS.to_string()])?;
    reader.hear_word("ready")?;
    append(&store, turn, PAUSE).await?;
    let ages = serde_json::from_str(&reader.hear()?).context("a reader's answer")?;
    reader.finish()?;
    Ok(ages)
}

async fn other_node(server: &str, turn: Duration) -> Result<Ages> {
    let database = ScratchDatabase::create(server).await?;
    let ages = other_process(database.url(), turn).await;
    database.remove().await?;
    ages
}

/// Makes the streams.
async fn begin(store: &Arc<dyn Store>) -> Result<()> {
    for number in 0..STREAMS {
        store.commit(payload::commit(&payload::stream(number))).await?;
    }
    Ok(())
}

/// One appender for each stream, one event at a time; ends the streams.
async fn append(store: &Arc<dyn Store>, turn: Duration, pause: Duration) -> Result<()> {
    let started = Instant::now();
    let mut appenders = JoinSet::new();
    for number in 0..STREAMS {
        let (store, stream) = (Arc::clone(store), payload::stream(number));
        appenders.spawn(async move {
            while started.elapsed() < turn {
                store.commit(payload::commit(&stream)).await?;
                if !pause.is_zero() {
                    tokio::time::sleep(pause).await;
                }
            }
            let last = Append::new(TenantId::local(), stream, Vec::new());
            store.commit(Commit::new().append(Append { close: true, ..last })).await?;
            anyhow::Ok(())
        });
    }
    while let Some(appender) = appenders.join_next().await {
        appender??;
    }
    Ok(())
}
