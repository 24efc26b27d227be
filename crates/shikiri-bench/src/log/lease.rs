//! Taking a lease and giving it back, against two trivial calls of our own server: alone, and
//! with 64 callers, where commits share their syncs.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use shikiri_store::StoreExt;
use tokio::task::JoinSet;

use super::open;
use crate::figure::{Figure, Goal};
use crate::sse::http::Connection;
use crate::sse::server::Server;
use crate::world::World;

const TTL: Duration = Duration::from_secs(60);

pub(super) fn measure(world: &World) -> Result<Vec<Figure>> {
    let server = Server::product(&world.scratch().join("lease-server.db"))?;
    let address = server.address();
    let mut figures = Vec::new();
    for callers in [1, 64] {
        let (mut leases, mut calls) = (Vec::new(), Vec::new());
        for round in 0..world.rounds() {
            let path = world.scratch().join(format!("lease-{callers}-{round}.db"));
            calls.push(world.runtime.block_on(call(address, callers, world.turn()))?);
            leases.push(world.runtime.block_on(lease(&path, callers, world.turn()))?);
        }
        figures.push(
            Figure::new(format!("lease acquire + release, {callers} at once"), "µs", leases)
                .against("two GET /healthz", &calls)
                .goal(Goal::RatioAtMost(1.5)),
        );
    }
    Ok(figures)
}

/// Microseconds for each pair, all callers together.
async fn lease(path: &Path, callers: usize, turn: Duration) -> Result<f64> {
    let store = open(path)?;
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for caller in 0..callers {
        let store = Arc::clone(&store);
        tasks.spawn(async move {
            let (name, mut pairs) = (format!("bench/{caller}"), 0_u32);
            while started.elapsed() < turn {
                let lease = store.try_acquire(&name, "bench", TTL).await?;
                store.release(&lease.guard()).await?;
                pairs += 1;
            }
            anyhow::Ok(pairs)
        });
    }
    each(started, tasks).await
}

async fn call(address: SocketAddr, callers: usize, turn: Duration) -> Result<f64> {
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..callers {
        tasks.spawn(async move {
            let (mut connection, mut pairs) = (Connection::open(address).await?, 0_u32);
            while started.elapsed() < turn {
                connection.get("/healthz").await?;
                connection.get("/healthz").await?;
                pairs += 1;
            }
            anyhow::Ok(pairs)
        });
    }
    each(started, tasks).await
}

async fn each(started: Instant, mut tasks: JoinSet<Result<u32>>) -> Result<f64> {
    let mut pairs = 0;
    while let Some(task) = tasks.join_next().await {
        pairs += task??;
    }
    Ok(started.elapsed().as_secs_f64() * 1e6 / f64::from(pairs))
}
