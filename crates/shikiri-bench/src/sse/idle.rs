//! What an SSE stream costs while nothing happens on it.

use std::time::Duration;

use anyhow::Result;

use super::client;
use super::server::Server;
use crate::figure::{Figure, Goal};
use crate::machine::resident_kib;
use crate::report::number;
use crate::world::World;

const STREAMS: usize = 5_000;

/// Runs that the streams follow, all of them waiting. Their memory counts as the streams'.
const RUNS: usize = 100;

/// For connections to be cleared away and caches to be filled.
const SETTLE: Duration = Duration::from_secs(1);

pub(super) fn measure(world: &World) -> Result<Vec<Figure>> {
    let mut samples = Vec::new();
    for round in 0..world.rounds().min(3) {
        let server = Server::product(&world.scratch().join(format!("idle-{round}.db")))?;
        // What the first requests need is not the streams'.
        client::start(&server, 1, 1, 0)?.finish()?;
        std::thread::sleep(SETTLE);
        let before = resident_kib(server.process_id())?;
        let client = client::start(&server, STREAMS, RUNS, 0)?;
        std::thread::sleep(SETTLE);
        samples.push((resident_kib(server.process_id())? - before) / STREAMS as f64);
        client.finish()?;
    }
    let name = format!("memory of each of {} idle streams", number(STREAMS as f64));
    Ok(vec![Figure::new(name, "KiB", samples).goal(Goal::AtMost(25.0))])
}
