//! Readers that follow streams live and note how long ago each event was handed in: in the
//! writer's process, or in one of their own.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use serde::{Deserialize, Serialize};
use shikiri_app::{App, AppOptions};
use shikiri_model::ids::TenantId;
use shikiri_store::Store;
use shikiri_store::postgres::{PostgresOptions, PostgresStore};
use tokio::task::JoinSet;

use crate::figure::percentile;
use crate::machine::monotonic_ns;
use crate::{child, payload};

#[derive(Args)]
pub(crate) struct Arguments {
    /// A file, or postgres://…
    store: String,
    streams: u32,
}

/// Milliseconds from handing an event in until a reader had it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Ages {
    pub(super) count: usize,
    pub(super) p50: f64,
    pub(super) p99: f64,
}

impl Ages {
    fn of(ages: &[f64]) -> Self {
        Self { count: ages.len(), p50: percentile(ages, 50), p99: percentile(ages, 99) }
    }
}

pub(super) struct Readers(JoinSet<Result<Vec<f64>>>);

impl Readers {
    /// Follows the streams from their end on. They exist already.
    pub(super) async fn start(store: Arc<dyn Store>, streams: u32) -> Result<Self> {
        let app = App::new(store, Vec::new(), AppOptions::default());
        let mut readers = JoinSet::new();
        for number in 0..streams {
            let mut watch = app.watch(&TenantId::local(), payload::stream(number), 1).await?;
            readers.spawn(async move {
                let mut ages = Vec::new();
                while let Some(delivery) = watch.next().await? {
                    let now = monotonic_ns();
                    for event in delivery.events() {
                        let then = payload::handed_in(event.data).context("a foreign event")?;
                        ages.push(now.saturating_sub(then) as f64 / 1e6);
                    }
                }
                Ok(ages)
            });
        }
        Ok(Self(readers))
    }

    /// Waits for the ends of the streams.
    pub(super) async fn finish(mut self) -> Result<Ages> {
        let mut ages = Vec::new();
        while let Some(reader) = self.0.join_next().await {
            ages.extend(reader??);
        }
        Ok(Ages::of(&ages))
    }
}

/// In a process of its own: `ready`, then the ages once the streams have ended.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let readers = Readers::start(open(&arguments.store).await?, arguments.streams).await?;
        child::tell("ready")?;
        let ages = readers.finish().await?;
        child::tell(&serde_json::to_string(&ages)?)
    })
}

pub(super) async fn open(place: &str) -> Result<Arc<dyn Store>> {
    if place.starts_with("postgres") {
        return Ok(Arc::new(PostgresStore::connect(place, PostgresOptions::default()).await?));
    }
    Ok(super::open(Path::new(place))?)
}
