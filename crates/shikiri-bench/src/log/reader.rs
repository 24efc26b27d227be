//! Readers that follow streams live and note how long ago each event was handed in: in the
//! writer's process, or in one of their own.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use serde::{Deserialize, Serialize};
use shikiri_app::{App, AppOptions};
use shikiri_model::ids::TenantId;
use shikiri_runtime::Watch;
use shikiri_store::Store;
use shikiri_store::postgres::{PostgresOptions, PostgresStore};
use tokio::task::JoinHandle;

use crate::figure::percentile;
use crate::machine::monotonic_ns;
use crate::{child, payload};

#[derive(Args)]
pub(crate) struct Arguments {
    /// A file, or postgres://…
    store: String,
    streams: u32,
}

/// Milliseconds until a reader had an event.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Ages {
    pub(super) p50: f64,
    pub(super) p99: f64,
}

/// When an event was handed in and when a reader had it, in nanoseconds.
pub(super) struct Arrival {
    pub(super) handed_in: u64,
    pub(super) seen: u64,
}

impl Ages {
    pub(super) fn of(spans: impl Iterator<Item = (u64, u64)>) -> Self {
        let ages: Vec<_> =
            spans.map(|(then, seen)| seen.saturating_sub(then) as f64 / 1e6).collect();
        Self { p50: percentile(&ages, 50), p99: percentile(&ages, 99) }
    }

    pub(super) fn since_handed_in(arrivals: &[Vec<Arrival>]) -> Self {
        Self::of(arrivals.iter().flatten().map(|arrival| (arrival.handed_in, arrival.seen)))
    }
}

pub(super) struct Readers(Vec<JoinHandle<Result<Vec<Arrival>>>>);

impl Readers {
    /// Follows the streams from their end on. They exist already.
    pub(super) async fn start(store: Arc<dyn Store>, streams: u32) -> Result<Self> {
        let app = App::new(store, Vec::new(), AppOptions::default());
        let mut readers = Vec::new();
        for number in 0..streams {
            let watch = app.runtime.watch(&TenantId::local(), payload::stream(number), 1).await?;
            readers.push(tokio::spawn(read(watch)));
        }
        Ok(Self(readers))
    }

    /// Waits for the ends of the streams; the arrivals are in the order of the streams.
    pub(super) async fn finish(self) -> Result<Vec<Vec<Arrival>>> {
        let mut arrivals = Vec::new();
        for reader in self.0 {
            arrivals.push(reader.await??);
        }
        Ok(arrivals)
    }
}

async fn read(mut watch: Watch) -> Result<Vec<Arrival>> {
    let mut arrivals = Vec::new();
    while let Some(delivery) = watch.next().await? {
        let seen = monotonic_ns();
        for event in delivery.events() {
            let handed_in = payload::handed_in(event.data).context("a foreign event")?;
            arrivals.push(Arrival { handed_in, seen });
        }
    }
    Ok(arrivals)
}

/// In a process of its own: `ready`, then the ages once the streams have ended.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let readers = Readers::start(open(&arguments.store).await?, arguments.streams).await?;
        child::tell("ready")?;
        let ages = Ages::since_handed_in(&readers.finish().await?);
        child::tell(&serde_json::to_string(&ages)?)
    })
}

pub(super) async fn open(place: &str) -> Result<Arc<dyn Store>> {
    if place.starts_with("postgres") {
        return Ok(Arc::new(PostgresStore::connect(place, PostgresOptions::default()).await?));
    }
    Ok(super::open(Path::new(place))?)
}
