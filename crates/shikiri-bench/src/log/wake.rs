//! From a commit until a live reader has it: readers in the same process, in another process on
//! the same file, on another node over PostgreSQL. For the far ones the time runs from handing the
//! commit in, so that what the commit itself takes is included.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use shikiri_model::ids::TenantId;
use shikiri_store::{Commit, Store, StreamAppend};

use super::postgres::ScratchDatabase;
use super::reader::{Ages, Readers, open};
use crate::child::Process;
use crate::figure::{Figure, Goal};
use crate::machine::monotonic_ns;
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
    let (acknowledged, handed_in): (Vec<_>, Vec<_>) = near.into_iter().unzip();
    let mut figures = figures("commit to a reader in the same process", &acknowledged, Some(2.0));
    figures.extend(self::figures("the same, from handing the commit in", &handed_in, None));
    figures.extend(self::figures(FAR[0].0, &other, Some(FAR[0].1)));
    if server.is_some() {
        figures.extend(self::figures(FAR[1].0, &node, Some(FAR[1].1)));
    } else {
        let reason = "SHIKIRI_TEST_POSTGRES is not set (`cargo xtask bench` sets it)";
        let figure = Figure::new(FAR[1].0, "ms", Vec::new()).goal(Goal::AtMost(FAR[1].1));
        figures.push(figure.missing(reason));
    }
    Ok(figures)
}

fn figures(name: &str, ages: &[Ages], most_ms: Option<f64>) -> Vec<Figure> {
    let medians = ages.iter().map(|ages| ages.p50).collect();
    let slow = ages.iter().map(|ages| ages.p99).collect();
    let median = Figure::new(format!("{name}, p50"), "ms", medians);
    let goal = most_ms.map(Goal::AtMost);
    vec![Figure { goal, ..median }, Figure::new(format!("{name}, p99"), "ms", slow)]
}

/// Since the commit was acknowledged, and since it was handed in; with as much load as there can
/// be.
async fn same_process(path: &str, turn: Duration) -> Result<(Ages, Ages)> {
    let store = open(path).await?;
    begin(&store).await?;
    let readers = Readers::start(Arc::clone(&store), STREAMS).await?;
    let acknowledged = append(&store, turn, Duration::ZERO).await?;
    let arrivals = readers.finish().await?;
    for (acknowledged, arrivals) in acknowledged.iter().zip(&arrivals) {
        ensure!(acknowledged.len() == arrivals.len(), "a reader has not seen every event once");
    }
    let seen = arrivals.iter().flatten().map(|arrival| arrival.seen);
    let since_acknowledged = Ages::of(acknowledged.into_iter().flatten().zip(seen));
    Ok((since_acknowledged, Ages::since_handed_in(&arrivals)))
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

/// One appender for each stream, one event at a time; ends the streams. Gives the times at which
/// each stream's commits were acknowledged.
async fn append(store: &Arc<dyn Store>, turn: Duration, pause: Duration) -> Result<Vec<Vec<u64>>> {
    let started = Instant::now();
    let appenders = (0..STREAMS).map(|number| {
        let (store, stream) = (Arc::clone(store), payload::stream(number));
        tokio::spawn(async move {
            let mut acknowledged = Vec::new();
            while started.elapsed() < turn {
                store.commit(payload::commit(&stream)).await?;
                acknowledged.push(monotonic_ns());
                if !pause.is_zero() {
                    tokio::time::sleep(pause).await;
                }
            }
            let last = StreamAppend::new(TenantId::local(), stream, Vec::new());
            store.commit(Commit::new().append(StreamAppend { close: true, ..last })).await?;
            anyhow::Ok(acknowledged)
        })
    });
    let mut acknowledged = Vec::new();
    for appender in appenders.collect::<Vec<_>>() {
        acknowledged.push(appender.await??);
    }
    Ok(acknowledged)
}
